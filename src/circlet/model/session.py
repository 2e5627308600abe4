"""A run of `circlet train`, started or resumed; its description is kept beside its checkpoint."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import typer

from circlet import files
from circlet.checks import is_integer
from circlet.cli.console import err, track
from circlet.cli.progress import TrainingBar
from circlet.data import Dataset, load_dataset
from circlet.data.feedback import FeedbackLog, corrected, judged
from circlet.errors import CircletError, DataError, ParameterError
from circlet.features import TextVectorizer
from circlet.folder.deflated import DEFLATED
from circlet.folder.layout import CONFIG, RUN, read_config
from circlet.folder.publish import new_generation, remove_run, settle
from circlet.folder.tensors import check_store
from circlet.metrics.evaluation import in_label_space, label_columns
from circlet.model import Model, add_to_index, fit, fit_further, further_settings
from circlet.settings import RunSettings
from circlet.settings.run import FEWEST_TO_SPLIT
from circlet.training import InterruptedRunError, Reporter, checkpoint
from circlet.training.distributed import RESTARTS, LostError, World

__all__ = ["begun", "carry_out", "check_folder", "finished", "resumed"]

#: How data is read unless options say otherwise.
READ: dict[str, Any] = {
    name: value for name, value in (load_dataset.__kwdefaults__ or {}).items() if name != "ids"
}
#: Options of a run that its settings do not have.
OWN = ("store", "keep_index")
#: What an option says to switch something off, where leaving the option out would leave it to the data.
NONE = "none"
#: What presets meant in version 0.1.0, which decided nothing from the data; its interrupted runs can be resumed.
BEFORE: dict[str, dict[str, Any]] = {
    "default": {},
    "accurate": {"hidden": (2048,), "dropout": 0.8, "epochs": 60},
}
#: The settings that training a finished model further can change; the others are the model's.
FURTHER = ("epochs", "batch_size", "optimizer", "lr", "schedule", "weight_decay", "input_dropout")


def begun(folder: Path, run: dict[str, Any], *, resume: bool, overwrite: bool) -> dict[str, Any] | None:
    """The run to carry out in `folder`: this one, or the one to resume; None if that one is finished already."""
    # Processes that torchrun starts again, because one of them ended, go on with their own run.
    again = os.environ.get(RESTARTS, "0") != "0" and (folder / RUN).is_file()
    resume = resume or again
    if settle(folder) and resume:
        return None
    if resume:
        return resumed(folder, run)
    check_folder(folder, run, overwrite=overwrite)
    return run


def check_folder(folder: Path, run: dict[str, Any], *, overwrite: bool) -> None:
    """Raise `ParameterError` rather than replace a finished model or discard an interrupted run by mistake."""
    if (folder / checkpoint.NAME).exists():
        raise ParameterError(
            f"{folder} holds the checkpoint of an interrupted run: continue it with --resume, or choose another "
            "folder"
        )
    finished, further = (folder / CONFIG).exists(), run.get("continue", False)
    if further and not finished:
        raise ParameterError(f"--continue: {folder} holds no finished model; train without --continue")
    if further and (overwrite or run["preset"] is not None or run["seed"] is not None):
        raise ParameterError("--continue keeps the model's preset and seed, and replaces nothing: leave those out")
    if finished and not further and not overwrite:
        raise ParameterError(
            f"{folder} holds a finished model: train it further with --continue, replace it with --overwrite, "
            "or choose another folder"
        )


def resumed(folder: Path, run: dict[str, Any]) -> dict[str, Any]:
    """The run that was started in `folder`; options that are given again must agree with it."""
    path = folder / RUN
    if not path.is_file():
        raise ParameterError(f"--resume: {folder} holds no interrupted run; train without --resume")
    try:
        started: dict[str, Any] = files.read_json(path)
        before = {
            **READ,
            **started["given"],
            **started["read"],
            "preset": started["preset"],
            "seed": started["seed"],
        }
        _check_description(started)
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}: found no readable description of the run ({error!r}); train again in another folder"
        ) from error
    now = {**run["given"], **run["read"], "preset": run["preset"], "seed": run["seed"]}
    for name, value in now.items():
        if value is not None and value != before.get(name):
            raise ParameterError(
                f"--resume: the run was started with {name.replace('_', '-')} {before.get(name)}, not {value}; "
                "leave the option out"
            )
    if run.get("continue", False) and not started.get("continue", False):
        raise ParameterError("--resume: the run was started without --continue; leave the option out")
    given, was = ((each.get("feedback") or {}).get("file") for each in (run, started))
    if given is not None and given != was:
        raise ParameterError(
            f"--resume: the run was started with the feedback of {was or 'no file'}, not of {given}; leave the "
            "option out"
        )
    if run["data"] != started.get("data"):
        raise ParameterError(
            f"--resume: the run was started on {_in_words(started['data'])}, not on {_in_words(run['data'])}; "
            "name the same data"
        )
    return started


def _in_words(data: str | list[str]) -> str:
    return data if isinstance(data, str) else " ".join(map(str, data))


def _check_description(run: dict[str, Any]) -> None:
    """Raise `KeyError`, `TypeError` or `ValueError` unless a run is described as `circlet train` describes it."""
    kinds: dict[str, tuple[type, ...]] = {
        "data": (str, list), "preset": (str, type(None)), "seed": (int, type(None)), "given": (dict,),
        "read": (dict,),
    }  # fmt: skip
    run["read"]["text_column"]
    columns = set(READ)
    wrong = [name for name, wanted in kinds.items() if type(run[name]) not in wanted]
    wrong += sorted(run["read"].keys() - columns) + sorted(run["given"].keys() - {*RunSettings.names(), *OWN})
    wrong += [
        name for name, value in run["read"].items()
        if not (value is None or type(value) is (int if name == "split" else str))
    ]  # fmt: skip
    if run.get("feedback") is not None:
        wrong += [] if type(run["feedback"]["records"]) is int and run["feedback"]["file"] else ["feedback"]
    wrong += [] if is_integer(run.get("processes", 1), 1) else ["processes"]
    wrong += [] if type(run["given"].get("keep_index")) in (bool, type(None)) else ["keep_index"]
    lists = (run["given"].get(name) for name in ("hidden", "char_ngrams"))
    if wrong or not all(isinstance(each, (list, str, type(None))) for each in lists):
        raise ValueError(f"the values of {', '.join(wrong) or 'hidden or char_ngrams'}")


def carry_out(run: dict[str, Any], folder: Path, place: Any, world: World) -> dict[str, Any] | None:
    """Train the model that `run` describes on a device, save it, and return a summary.

    Of several processes, only the first one saves it and has a summary.
    """
    further = run.get("continue", False)
    read = {**READ, **{name: value for name, value in run["read"].items() if value is not None}}
    run = {**run, "preset": run["preset"] or "default", "seed": run["seed"] or 0, "read": read}
    store = run["given"].get("store") or (_store_before(folder) if further else "float32")
    check_store(store)
    given = {name: value for name, value in run["given"].items() if name not in OWN and value is not None}
    without = {name: None for name in ("char_ngrams",) if given.get(name) == NONE}
    given = {name: value for name, value in given.items() if name not in without}
    for name in ("hidden", "char_ngrams"):
        if name in given:
            given[name] = tuple(given[name])
    if "batch_size" in given:
        # As many as there were when the run was started: a resumed run has the same batches.
        given["batch_size"] *= run.get("processes", 1)
    if not run.get("decides") and run["preset"] in BEFORE:
        settings = RunSettings.of({**BEFORE[run["preset"]], **given}, seed=run["seed"])
    else:
        settings = RunSettings.from_preset(run["preset"], given, seed=run["seed"]).with_values(without)
    TextVectorizer(**vars(settings.text))  # rejects invalid settings before any data is read
    keep_index = bool(run["given"].get("keep_index"))
    if keep_index and settings.network.reads_texts:
        raise ParameterError(
            f"--keep-index: found encoder {settings.network.encoder}, which only torch can run; leave it out"
        )
    before = _before(folder, place, given, keep_index) if further else None
    keep_index = keep_index if before is None else before.index is not None
    dataset = _dataset(run, ids=keep_index, model=before)
    with _described(run, folder) if world.is_first else _silent():
        if before is None:
            model = _train(dataset, settings, folder, place, world, keep_index=keep_index)
        else:
            model = _train_further(before, dataset, given, folder, world)
    if not world.is_first:
        return None
    model.training |= {"processes": world.size} if world.size > 1 else {}
    if before is None:
        model.training |= {"data": dataset.name, "format": dataset.format, "preset": run["preset"]}
    else:
        model.training["continued_on"] = [*model.training.get("continued_on", []), dataset.name]
    model.save(folder, store)
    return _summary(folder, model, store)


@contextmanager
def _described(run: dict[str, Any], folder: Path) -> Iterator[None]:
    """Keep the description of a run beside its checkpoint until it is over, and say how to resume it."""
    files.prepare_folder(folder)
    # A number that no model here has had: if there is one when the run is resumed, the run has saved it.
    files.write_json(folder / RUN, {"generation": new_generation(folder), **run})
    try:
        yield
    except InterruptedRunError as error:
        err.print(
            f"{error}\nto resume: circlet train {_in_words(run['data'])} --model {folder} --resume",
            highlight=False,
            soft_wrap=True,
        )
        raise typer.Exit(130) from error
    except LostError:  # the run goes on when all processes are there again
        raise
    except CircletError:
        _clean_up(folder)
        raise


@contextmanager
def _silent() -> Iterator[None]:
    """Leave it to the first process to say that the run was interrupted."""
    try:
        yield
    except InterruptedRunError as error:
        raise typer.Exit(130) from error


def _dataset(run: dict[str, Any], *, ids: bool, model: Model | None = None) -> Dataset:
    """The documents to train on, or to train a model further on, with the feedback of users."""
    dataset = load_dataset(run["data"], **run["read"], ids=ids)
    if run.get("feedback") is not None:
        # As many records as there were when the run was started, so that it can be resumed.
        log = FeedbackLog(run["feedback"]["file"], run["feedback"]["records"])
        dataset = corrected(dataset, judged(log.entries(), _names_in_data(dataset, model)))
    if not dataset.train.Y.nnz:
        raise DataError(
            f"{dataset.source}: found no label in any of the {dataset.train.n:,} documents; "
            "wanted some to learn from"
        )
    return dataset


def _names_in_data(dataset: Dataset, model: Model | None) -> dict[str, str]:
    """What data calls the labels of a model that has names and URIs, by what else feedback may call them.

    If the data has names for its URIs, these may be others than the model's, so that URIs tell the labels apart.
    """
    if model is None or model.label_names is None or model.label_uris is None:
        return {}
    own = set(dataset.label_uris or dataset.label_names or ())
    both = zip(model.label_names, model.label_uris, strict=True)
    return dict((uri, name) if name in own else (name, uri) for name, uri in both)


def finished(folder: Path) -> dict[str, Any]:
    """The summary of a run that was killed after it had saved its model."""
    return _summary(folder, Model.load(folder), read_config(folder)["store"])


def _summary(folder: Path, model: Model, store: str) -> dict[str, Any]:
    return {
        "model": str(folder),
        "members": len(model.networks),
        "network": model.network.settings.as_dict(),
        "training": model.training,
        "n_features": model.n_features,
        "n_labels": model.n_labels,
        "threshold": model.threshold,
        "parameters": model.ranker.parameter_counts(),
        "store": store,
        "bytes": sum(path.stat().st_size for path in folder.glob("[!.]*") if path.is_file()),
        "history": model.history,
    }


def _store_before(folder: Path) -> str:
    """How the weights of a model that is trained further are stored."""
    store: str = read_config(folder)["store"]
    # What `circlet compress` would choose for the new weights is not known before they are learned.
    return "float32" if store == DEFLATED else store


def _before(folder: Path, device: Any, given: dict[str, Any], keep_index: bool) -> Model:
    """The finished model that is trained further, if that is possible with these options."""
    model = Model.load(folder, device)
    if fixed := sorted(set(given) - set(FURTHER)):
        raise ParameterError(f"--continue: {', '.join(fixed)} can't change, only {', '.join(FURTHER)}")
    if keep_index and model.index is None:
        raise ParameterError(
            f"--continue: {folder} has no index, and the documents that it learned from are not known: leave "
            "--keep-index out"
        )
    return model


def _train(
    dataset: Dataset, settings: RunSettings, folder: Path, device: Any, world: World, *, keep_index: bool
) -> Model:
    if world.is_first:
        _announce(dataset, dataset.train.n, dataset.n_labels, world)
        _warn(dataset.train.n, dataset.n_labels)
    with _reporter(world) as reporter:
        model = fit(
            dataset.train,
            settings,
            label_names=dataset.label_names,
            device=device,
            reporter=reporter,
            folder=folder,
            resume=_has_checkpoint(folder, world),
            world=world,
        )
    if keep_index and world.is_first:
        documents: Any = dataset.train.X if model.vectorizer is None else dataset.train.texts
        add_to_index(model, documents, dataset.train.ids, track=partial(track, "indexing documents"))
    model.label_uris = dataset.label_uris
    return model


def _train_further(model: Model, dataset: Dataset, given: dict[str, Any], folder: Path, world: World) -> Model:
    documents: Any = dataset.train.texts if model.vectorizer is not None else dataset.train.X
    if documents is None:
        wanted = "texts" if model.vectorizer is not None else "feature rows"
        raise DataError(f"{dataset.source}: found {dataset.format}; this model wants {wanted}")
    names, more = model.label_names, dataset.label_names
    if names is None and dataset.n_labels > model.n_labels:
        Y = dataset.train.Y  # additional columns are new labels
    else:
        Y = in_label_space(model, dataset, dataset.train.Y)
    if names is not None and more is not None:
        _, new = label_columns(model, dataset)
        if model.label_uris is not None:
            uris = dataset.label_uris or more
            model.label_uris = [*model.label_uris, *(uris[label] for label in new)]
        model.label_names = [*names, *(more[label] for label in new)]
    settings = further_settings(model, **given)
    if world.is_first:
        _announce(dataset, dataset.train.n, Y.shape[1], world)
    with _reporter(world) as reporter:
        fit_further(
            model,
            documents,
            Y,
            settings,
            reporter=reporter,
            folder=folder,
            resume=_has_checkpoint(folder, world),
            world=world,
            ids=dataset.train.ids,
        )
    return model


def _reporter(world: World) -> AbstractContextManager[Reporter]:
    """A progress bar; of several processes, only the first one has it."""
    return TrainingBar() if world.is_first else nullcontext(Reporter())


def _has_checkpoint(folder: Path, world: World) -> bool:
    return bool(world.from_first((folder / checkpoint.NAME).exists))


def _announce(dataset: Dataset, documents: int, labels: int, world: World) -> None:
    processes = f", {world.size} processes" if world.size > 1 else ""
    err.print(
        f"{dataset.name}: {dataset.format}; {documents:,} documents, {labels:,} labels{processes}", soft_wrap=True
    )


def _warn(documents: int, labels: int) -> None:
    """Say where there is too little to learn from."""
    if documents < FEWEST_TO_SPLIT:
        err.print(
            f"{documents} documents are very few: none are held out, so nothing shows how good the model is; "
            f"wanted at least {FEWEST_TO_SPLIT}, and better some hundred",
            style="yellow",
            soft_wrap=True,
        )
    if labels == 1:
        err.print("found only one label, which every document will get; wanted two or more", style="yellow")


def _clean_up(folder: Path) -> None:
    """Remove what a failed run left, unless it has a checkpoint and can be resumed."""
    if not (folder / checkpoint.NAME).exists():
        remove_run(folder)
