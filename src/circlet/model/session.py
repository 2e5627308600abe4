"""A run of training: begun, resumed or continued in a folder, and published there; and teaching a saved model.

`circlet train`, the estimator, Annif's backend and the lessons of the service come here. While a run trains, its
folder holds `run.json`, which says what was asked for, beside its checkpoints and the model of before, if there is
one. Whoever writes holds the folder's lock.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn

from circlet import files
from circlet.checks import is_integer
from circlet.data import Dataset, Split, load_dataset
from circlet.data.feedback import FeedbackLog, Judged, corrected, judged
from circlet.data.sparse import as_csr
from circlet.errors import CircletError, DataError, ParameterError
from circlet.folder.contents import explained, read
from circlet.folder.deflated import DEFLATED
from circlet.folder.index import Identifier, Index
from circlet.folder.layout import CONFIG, RUN, read_config
from circlet.folder.lock import writing
from circlet.folder.publish import new_generation, remove_run, settle
from circlet.folder.tensors import check_store
from circlet.identity import Identity
from circlet.metrics.evaluation import in_label_space, label_columns
from circlet.model.fitting import fit, remember, train_members
from circlet.model.model import Model, write
from circlet.model.teaching import Taught, teach
from circlet.runtime.documents import count
from circlet.settings import RunSettings, TrainingSettings
from circlet.training import InterruptedRunError, Reporter, checkpoint
from circlet.training.distributed import ALONE, RESTARTS, LostError, World

__all__ = [
    "FURTHER",
    "READ",
    "Run",
    "add_to_index",
    "begin",
    "carry_out",
    "fit_further",
    "further_settings",
    "go_on",
    "read_documents",
    "store_of",
    "teach_saved",
]

#: How data is read unless options say otherwise.
READ: dict[str, Any] = {
    name: value for name, value in (load_dataset.__kwdefaults__ or {}).items() if name != "ids"
}
#: The settings that training a finished model further can change; the others are the model's.
FURTHER = ("epochs", "batch_size", "optimizer", "lr", "schedule", "weight_decay", "input_dropout")


@dataclass(frozen=True)
class Run:
    """What `circlet train` was asked for, and `run.json` keeps until the run is over.

    Parameters
    ----------
    data : str or list of str
        A dataset's name, or files and folders.
    given : dict
        Settings by name; those that are None were not given. The character n-grams may be "none".
    read : dict
        How data is read, by the names of `READ`; None was not given.
    preset : str or None
    seed : int or None
    store : str or None
        How weights are stored.
    keep_index : bool or None
        Whether the model gets an index of its documents.
    feedback : dict or None
        A log of feedback to learn from, `file`, and the number of `records` that it had.
    further : bool
        Whether the finished model in the folder is trained further.
    processes : int
        How many processes the run was started with.
    """

    data: str | list[str]
    given: dict[str, Any]
    read: dict[str, Any]
    preset: str | None = None
    seed: int | None = None
    store: str | None = None
    keep_index: bool | None = None
    feedback: dict[str, Any] | None = None
    further: bool = False
    processes: int = 1

    @cached_property
    def settings(self) -> RunSettings:
        """Its settings, which are checked here; what is decided from the data is still open."""
        given = {name: tuple(each) if isinstance(each, list) else each for name, each in self.given.items()}
        if "batch_size" in given and given["batch_size"] is not None:
            # As many as there were when the run was started: a resumed run has the same batches.
            given["batch_size"] *= self.processes
        without = {"char_ngrams": None} if given.get("char_ngrams") == "none" else {}
        settings = RunSettings.from_preset(self.preset or "default", {**given, **without}, seed=self.seed or 0)
        return settings.with_values(without) if without else settings

    @property
    def reads(self) -> dict[str, Any]:
        """How its data is read."""
        return {**READ, **{name: value for name, value in self.read.items() if value is not None}}

    @property
    def source(self) -> str:
        """Its data, as on the command line."""
        return self.data if isinstance(self.data, str) else " ".join(self.data)

    def save(self, folder: Path) -> None:
        """Write `run.json`."""
        # A number that no model here has had: if there is one when the run is resumed, the run has saved it.
        files.write_json(folder / RUN, {"generation": new_generation(folder), **asdict(self)})

    @classmethod
    def load(cls, folder: Path) -> Run:
        """Read `run.json`; a `DataError` unless it is what `save` wrote."""
        path = folder / RUN
        try:
            found = files.read_json(path)
            if other := set(found) ^ {"generation", *(each.name for each in fields(cls))}:
                raise ValueError(", ".join(sorted(other)))
            del found["generation"]
            run = cls(**found)
            run._check()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{path}: found no readable description of the run ({error!r}); train again in another folder"
            ) from error
        return run

    def _check(self) -> None:
        """Raise `KeyError`, `TypeError` or `ValueError` for values that no run has."""
        about = self.feedback or {"file": "", "records": 0}
        sound = {
            "data": isinstance(self.data, str)
            or (isinstance(self.data, list) and all(isinstance(each, str) for each in self.data)),
            "preset": self.preset is None or isinstance(self.preset, str),
            "seed": self.seed is None or is_integer(self.seed, 0),
            "read": self.read.keys() <= READ.keys()
            and all(
                each is None or (is_integer(each) if name == "split" else isinstance(each, str))
                for name, each in self.read.items()
            ),
            "keep_index": self.keep_index in (None, False, True) and not is_integer(self.keep_index),
            "feedback": isinstance(about["file"], str) and is_integer(about["records"], 0),
            "further": isinstance(self.further, bool),
            "processes": is_integer(self.processes, 1),
        }
        if wrong := [name for name, is_sound in sound.items() if not is_sound]:
            raise ValueError(f"the values of {', '.join(wrong)}")
        check_store(self.store or "float32")
        self.settings  # noqa: B018 (it is checked when it is made)


def carry_out(
    folder: Path,
    run: Run,
    *,
    resume: bool = False,
    overwrite: bool = False,
    device: torch.device | None = None,
    world: World = ALONE,
    reporter: Reporter | None = None,
) -> Model | None:
    """Carry out a run in a folder, and save its model there.

    Parameters
    ----------
    folder : Path
    run : Run
    resume : bool
        Go on with the interrupted run in the folder, which must be this one.
    overwrite : bool
        Replace the finished model in the folder.
    device : torch.device, optional
    world : World
        The processes that train together; only the first one looks at the folder and writes into it.
    reporter : Reporter, optional

    Returns
    -------
    Model or None
        None in all processes but the first one.

    Raises
    ------
    InterruptedRunError
        If it was interrupted; the folder then holds what resumes it.
    """
    reporter = reporter or Reporter()
    with writing(folder, patience=0) if world.is_first else nullcontext():
        begun = world.from_first(lambda: _begun(folder, run, resume=resume, overwrite=overwrite))
        if begun is None:  # a process was killed after it had saved the model
            return Model.load(folder) if world.is_first else None
        run = Run(**begun)
        check_store(store := run.store or (store_of(folder) if run.further else "float32"))
        settings, before = run.settings, _before(run, folder, device)
        keep_index = bool(run.keep_index) if before is None else before.index is not None
        with reporter.timed("read"):
            dataset = read_documents(run, ids=keep_index, model=before)
        with _described(run, folder) if world.is_first else nullcontext():
            options: dict[str, Any] = {"reporter": reporter, "folder": folder, "world": world}
            options["resume"] = bool(world.from_first((folder / checkpoint.NAME).exists))
            if before is None:
                reporter.begins(dataset, dataset.n_labels, processes=world.size)
                model = begin(
                    dataset.train,
                    settings,
                    label_names=dataset.label_names,
                    label_uris=dataset.label_uris,
                    keep_index=keep_index,
                    device=device,
                    **options,
                )
            else:
                model = before
                given = {name: value for name, value in run.given.items() if value is not None}
                if "batch_size" in given:
                    given["batch_size"] = settings.training.batch_size
                go_on(model, dataset, **options, **given)
        if not world.is_first:
            return None
        model.training |= {"processes": world.size} if world.size > 1 else {}
        if before is None:
            model.training |= {"data": dataset.name, "format": dataset.format, "preset": run.preset or "default"}
        else:
            model.training["continued_on"] = [*model.training.get("continued_on", []), dataset.name]
        with reporter.timed("save"):
            model.save(folder, store)
        return model


def _begun(folder: Path, run: Run, *, resume: bool, overwrite: bool) -> dict[str, Any] | None:
    """The run to carry out in `folder`: this one, or the one to resume; None if that one is finished already."""
    # Processes that torchrun starts again, because one of them ended, go on with their own run.
    again = os.environ.get(RESTARTS, "0") != "0" and (folder / RUN).is_file()
    resume = resume or again
    if settle(folder) and resume:
        return None
    if resume:
        return asdict(_resumed(folder, run))
    # Neither a finished model nor an interrupted run is lost by mistake.
    if (folder / checkpoint.NAME).exists():
        raise ParameterError(
            f"{folder} holds the checkpoint of an interrupted run: continue it with --resume, or choose another "
            "folder"
        )
    finished = (folder / CONFIG).exists()
    if run.further and not finished:
        raise ParameterError(f"--continue: {folder} holds no finished model; train without --continue")
    if run.further and (overwrite or run.preset is not None or run.seed is not None):
        raise ParameterError("--continue keeps the model's preset and seed, and replaces nothing: leave those out")
    if finished and not run.further and not overwrite:
        raise ParameterError(
            f"{folder} holds a finished model: train it further with --continue, replace it with --overwrite, "
            "or choose another folder"
        )
    return asdict(run)


def _resumed(folder: Path, run: Run) -> Run:
    """The run that was started in `folder`; options that are given again must agree with it."""
    if not (folder / RUN).is_file():
        raise ParameterError(f"--resume: {folder} holds no interrupted run; train without --resume")
    started = Run.load(folder)
    own = ("preset", "seed", "store", "keep_index")
    now, before = (
        {**each.given, **each.read, **{name: getattr(each, name) for name in own}} for each in (run, started)
    )
    before = {**before, **started.reads, "preset": started.preset or "default", "seed": started.seed or 0}
    again = {name: value for name, value in now.items() if value is not None}
    for other in Identity(again).differences({name: before.get(name) for name in again}):
        raise ParameterError(
            f"--resume: the run was started with {other.name.replace('_', '-')} {other.before}, not {other.now}; "
            "leave the option out"
        )
    if run.further and not started.further:
        raise ParameterError("--resume: the run was started without --continue; leave the option out")
    given, was = ((each.feedback or {}).get("file") for each in (run, started))
    if given is not None and given != was:
        raise ParameterError(
            f"--resume: the run was started with the feedback of {was or 'no file'}, not of {given}; leave the "
            "option out"
        )
    if run.data != started.data:
        raise ParameterError(
            f"--resume: the run was started on {started.source}, not on {run.source}; name the same data"
        )
    return started


def _before(run: Run, folder: Path, device: torch.device | None) -> Model | None:
    """The finished model that is trained further, if that is asked for, and possible with these options."""
    if run.keep_index and run.settings.network.reads_texts:
        raise ParameterError(
            f"--keep-index: found encoder {run.settings.network.encoder}, which only torch can run; leave it out"
        )
    if not run.further:
        return None
    model = Model.load(folder, device)
    if fixed := sorted(name for name, value in run.given.items() if value is not None and name not in FURTHER):
        raise ParameterError(f"--continue: {', '.join(fixed)} can't change, only {', '.join(FURTHER)}")
    if run.keep_index and model.index is None:
        raise ParameterError(
            f"--continue: {folder} has no index, and the documents that it learned from are not known: leave "
            "--keep-index out"
        )
    return model


@contextmanager
def _described(run: Run, folder: Path) -> Iterator[None]:
    """Keep the description of a run beside its checkpoint until it is over."""
    files.prepare_folder(folder)
    run.save(folder)
    try:
        yield
    except (InterruptedRunError, LostError):  # it goes on when it is resumed, or all processes are there again
        raise
    except CircletError:
        if not (folder / checkpoint.NAME).exists():
            remove_run(folder)
        raise


def read_documents(run: Run, *, ids: bool, model: Model | None = None) -> Dataset:
    """The documents to train on, or to train a model further on, with the feedback of users."""
    dataset = load_dataset(run.data, **run.reads, ids=ids)
    if run.feedback is not None:
        # If the data has names for its URIs, these may be others than the model's, so that URIs tell labels apart.
        names: dict[str, str] = {}
        if model is not None and model.label_names is not None and model.label_uris is not None:
            own = set(dataset.label_uris or dataset.label_names or ())
            both = zip(model.label_names, model.label_uris, strict=True)
            names = dict((uri, name) if name in own else (name, uri) for name, uri in both)
        # As many records as there were when the run was started, so that it can be resumed.
        log = FeedbackLog(run.feedback["file"], run.feedback["records"])
        dataset = corrected(dataset, judged(log.entries(), names))
    if not dataset.train.Y.nnz:
        raise DataError(
            f"{dataset.source}: found no label in any of the {dataset.train.n:,} documents; "
            "wanted some to learn from"
        )
    return dataset


def begin(
    split: Split,
    settings: RunSettings,
    *,
    label_names: list[str] | None = None,
    label_uris: list[str] | None = None,
    encoder: nn.Module | None = None,
    keep_index: bool = False,
    device: torch.device | None = None,
    reporter: Reporter | None = None,
    folder: Path | None = None,
    resume: bool = False,
    world: World = ALONE,
) -> Model:
    """Train a new model by `fit`; it may get an index of its documents, and URIs of its labels."""
    reporter = reporter or Reporter()
    model = fit(
        split,
        settings,
        label_names=label_names,
        encoder=encoder,
        device=device,
        reporter=reporter,
        folder=folder,
        resume=resume,
        world=world,
    )
    if keep_index and world.is_first:
        with reporter.timed("index"):
            documents: Any = split.X if model.vectorizer is None else split.texts
            add_to_index(model, documents, split.ids, reporter=reporter)
    model.label_uris = label_uris
    return model


def go_on(
    model: Model,
    dataset: Dataset,
    *,
    reporter: Reporter | None = None,
    folder: Path | None = None,
    resume: bool = False,
    world: World = ALONE,
    **changes: Any,
) -> None:
    """Train a model further on the documents of a dataset, in place, labels that are new to it included.

    Labels are matched by their names or URIs. `changes` override `further_settings`.
    """
    documents: Any = dataset.train.texts if model.vectorizer is not None else dataset.train.X
    if documents is None:
        wanted = "texts" if model.vectorizer is not None else "feature rows"
        raise DataError(f"{dataset.source}: found {dataset.format}; this model wants {wanted}")
    names, more, reporter = model.label_names, dataset.label_names, reporter or Reporter()
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
    reporter.begins(dataset, Y.shape[1], new=Y.shape[1] - model.n_labels, processes=world.size)
    settings, ids = further_settings(model, **changes), dataset.train.ids
    options: dict[str, Any] = {"reporter": reporter, "folder": folder, "resume": resume, "world": world}
    fit_further(model, documents, Y, settings, ids=ids, **options)


def further_settings(model: Model, **changes: Any) -> TrainingSettings:
    """Settings for training a model further: those it was trained with, but gentler; `changes` override them.

    For 5 epochs, at up to half of the original learning rate.
    """
    known = (each.name for each in fields(TrainingSettings) if each.name in model.training)
    training = TrainingSettings(**{name: model.training[name] for name in known})
    gentle: dict[str, Any] = {"epochs": 5, "lr": 0.5 * training.lr, "schedule": "one-cycle", "patience": None}
    return replace(training, **{**gentle, **changes})


def fit_further(
    model: Model,
    documents: Any,
    Y: sp.csr_matrix,
    settings: TrainingSettings,
    *,
    reporter: Reporter | None = None,
    folder: Path | None = None,
    resume: bool = False,
    ids: Sequence[Identifier] | None = None,
    world: World = ALONE,
) -> None:
    """Train a model on more documents, in place.

    Labels in columns beyond the model's are added. Features and calibration stay as they are. If the model has an
    index of the documents that it learned from, these are added to it.

    Parameters
    ----------
    model : Model
        What is trained further.
    documents : list of str, or rows
        Of the kind that the model was trained on.
    Y : csr_matrix of shape (n, n_labels)
        Labels in the model's order, then new ones.
    settings : TrainingSettings
        Usually those of `further_settings`.
    reporter : Reporter, optional
        Told how training goes.
    folder : Path, optional
        Where a checkpoint is written after every epoch.
    resume : bool
        Continue from the checkpoint in `folder`, if there is one.
    ids : sequence of str or int, optional
        What the documents are called in the index.
    world : World
        The processes that train together; see `circlet.training.train`.
    """
    reporter, folder = reporter or Reporter(), folder if world.is_first else None
    with reporter.timed("features"):
        rows, Y = model.rows(documents), as_csr(Y, "Y")
    if Y.shape[1] > model.n_labels:
        model.ranker.grow(Y.shape[1])
    options: dict[str, Any] = {"reporter": reporter, "folder": folder, "resume": resume, "world": world}
    train_members(model, rows, Y, settings, device=model.device, fresh=False, **options)
    model.count(Y)
    if model.index is not None:
        with reporter.timed("index"):
            add_to_index(model, documents, ids, reporter=reporter)
    remember(model, rows, Y)


def add_to_index(
    model: Model,
    documents: Any,
    ids: Sequence[Identifier] | None = None,
    *,
    reporter: Reporter | None = None,
    batch_size: int = 4096,
) -> None:
    """Add what a model now predicts for documents to its index, or begin one.

    What an earlier state of the model predicted for other documents stays as it is: codes do not change, and
    training further changes predictions little.

    Parameters
    ----------
    model : Model
    documents : list of str, or rows
    ids : sequence of str or int, optional
        What they are called; by default they are numbered, after those that are in the index.
    reporter : Reporter, optional
        Told how far it has come.
    batch_size : int
        Documents at a time.
    """
    view, n = model.as_runtime(), count(documents)
    parts = []
    for start in range(0, n, batch_size):
        if reporter is not None:
            reporter.indexing(start, n)
        parts += [Index.of(vectors) for vectors in view.vectors(documents[start : start + batch_size])]
    if parts:
        numbers, scales = (
            np.concatenate(each) for each in zip(*((p.numbers, p.scales) for p in parts), strict=True)
        )
        new = Index(numbers, scales, None if ids is None else list(ids))
        model.index = new if model.index is None else model.index.extended(new)


def store_of(folder: Path) -> str:
    """How the weights of the model in a folder are stored again after it has learned more."""
    store: str = read_config(folder)["store"]
    # What `circlet compress` would choose for the new weights is not known before they are learned.
    return "float32" if store == DEFLATED else store


def teach_saved(folder: Path, output: Path, corrections: Sequence[Judged]) -> Taught:
    """Teach the model in a folder, and write the taught one to another; what became of the corrections."""
    with explained(folder):
        saved = read(folder, whole=True, estimator=True)
        model = Model.restore(folder, saved)
    state = saved.estimator
    named = state is None or state["target"] == "indicator" or state["classes"]["values"] is None
    taught = teach(model, corrections, may_grow=named)
    write(output, replace(model.contents(), estimator=state), store_of(folder))
    return taught
