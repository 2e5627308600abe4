"""Training runs: begin, resume or continue a run in a folder, save its model there, and update saved models.

`circlet train`, the estimator, Annif's backend and the service use this module. During a run, the folder has
`run.json` with the request, the checkpoints, and the old model, if any. The writer holds the folder's lock.
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

from circlet import files
from circlet.checks import is_integer
from circlet.data import Dataset, Split, load_dataset
from circlet.data.dataset import as_csr
from circlet.data.feedback import FeedbackLog, TextFeedback, apply_feedback, merge_feedback
from circlet.errors import CircletError, DataError, ParameterError
from circlet.identity import Identity
from circlet.metrics.evaluation import in_label_space, label_columns
from circlet.model.feedback import Update, update
from circlet.model.model import Model, write
from circlet.model.plan import fit, remember, train_members
from circlet.runtime.documents import count
from circlet.settings import RunSettings, TrainingSettings
from circlet.storage.contents import read
from circlet.storage.kept_rows import Identifier, Index
from circlet.storage.layout import CHECKPOINT, CONFIG, RUN, read_config
from circlet.storage.model import explained
from circlet.storage.packed_weights import DEFLATED
from circlet.storage.publish import folder_lock, new_generation, remove_run, settle
from circlet.storage.tensors import check_store
from circlet.training import InterruptedRunError, Reporter
from circlet.training.distributed import ALONE, RESTARTS, LostError, World

#: The default options for reading data.
READ: dict[str, Any] = {
    name: value for name, value in (load_dataset.__kwdefaults__ or {}).items() if name != "ids"
}
#: The settings that can change when a finished model is trained further.
FURTHER = ("epochs", "batch_size", "optimizer", "lr", "schedule", "weight_decay", "input_dropout")


@dataclass(frozen=True)
class Run:
    """A request to `circlet train`, which `run.json` stores until the run is finished; None is not given."""

    #: A dataset's name, or files and folders.
    data: str | list[str]
    #: Settings by name. The character n-grams may be "none".
    given: dict[str, Any]
    #: Options for reading data, with the names of `READ`.
    read: dict[str, Any]
    preset: str | None = None
    seed: int | None = None
    #: How weights are stored.
    store: str | None = None
    #: Whether the model gets an index of its documents.
    keep_index: bool | None = None
    #: `file`, a log of feedback to learn from, and its number of `records` at the start of the run.
    feedback: dict[str, Any] | None = None
    #: Whether to train the finished model in the folder further.
    further: bool = False
    #: Number of processes at the start of the run.
    processes: int = 1

    @cached_property
    def settings(self) -> RunSettings:
        """The checked settings; those that depend on the data are still open."""
        given = {name: tuple(each) if isinstance(each, list) else each for name, each in self.given.items()}
        if "batch_size" in given and given["batch_size"] is not None:
            # The number of processes at the start, so that a resumed run has the same batches.
            given["batch_size"] *= self.processes
        without = {"char_ngrams": None} if given.get("char_ngrams") == "none" else {}
        settings = RunSettings.from_preset(self.preset or "default", {**given, **without}, seed=self.seed or 0)
        return settings.with_values(without) if without else settings

    @property
    def reads(self) -> dict[str, Any]:
        """All options for reading the data."""
        return {**READ, **{name: value for name, value in self.read.items() if value is not None}}

    @property
    def source(self) -> str:
        """The data, as on the command line."""
        return self.data if isinstance(self.data, str) else " ".join(self.data)

    def save(self, folder: Path) -> None:
        """Write `run.json`."""
        # A number that no model here has had: if a resumed run finds this model, the run has already saved it.
        files.write_json(folder / RUN, {"generation": new_generation(folder), **asdict(self)})

    @classmethod
    def load(cls, folder: Path) -> Run:
        """Read `run.json`; raise `DataError` unless `save` wrote it."""
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
        """Raise `KeyError`, `TypeError` or `ValueError` for invalid values."""
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

    `resume` continues the interrupted run in the folder, which must equal this one; `overwrite` replaces the
    finished model in the folder. An `InterruptedRunError` says that the run can be resumed from the folder.

    If several processes train together, only the first one reads and writes the folder and returns the model.
    """
    reporter = reporter or Reporter()
    with folder_lock(folder, patience=0) if world.is_first else nullcontext():
        begun = world.from_first(lambda: _choose_run(folder, run, resume=resume, overwrite=overwrite))
        if begun is None:  # a process was killed after it had saved the model
            return Model.load(folder) if world.is_first else None
        run = Run(**begun)
        check_store(store := run.store or (store_of(folder) if run.further else "float32"))
        settings, before = run.settings, _finished_model(run, folder, device)
        keep_index = bool(run.keep_index) if before is None else before.index is not None
        with reporter.timed("read"):
            dataset = read_documents(run, ids=keep_index, model=before)
        with _description(run, folder) if world.is_first else nullcontext():
            options: dict[str, Any] = {"reporter": reporter, "folder": folder, "world": world}
            options["resume"] = bool(world.from_first((folder / CHECKPOINT).exists))
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


def _choose_run(folder: Path, run: Run, *, resume: bool, overwrite: bool) -> dict[str, Any] | None:
    """Return the run to carry out: this one, or the one to resume; None if that one is already finished."""
    # If torchrun restarts all processes because one of them ended, they continue their run.
    again = os.environ.get(RESTARTS, "0") != "0" and (folder / RUN).is_file()
    resume = resume or again
    if settle(folder) and resume:
        return None
    if resume:
        return asdict(_interrupted_run(folder, run))
    # Never overwrite a finished model or an interrupted run by mistake.
    if (folder / CHECKPOINT).exists():
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


def _interrupted_run(folder: Path, run: Run) -> Run:
    """Read the run that was started in `folder`; options that are given again must be the same."""
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


def _finished_model(run: Run, folder: Path, device: torch.device | None) -> Model | None:
    """Load the finished model to train further, if requested; raise an error if an option rules it out."""
    text_encoder = run.settings.network.text_encoder
    if run.keep_index and text_encoder is not None and text_encoder.learns:
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
def _description(run: Run, folder: Path) -> Iterator[None]:
    """Keep the description of a run beside its checkpoint until the run is finished."""
    files.prepare_folder(folder)
    run.save(folder)
    try:
        yield
    except (InterruptedRunError, LostError):  # the run can be continued
        raise
    except CircletError:
        if not (folder / CHECKPOINT).exists():
            remove_run(folder)
        raise


def read_documents(run: Run, *, ids: bool, model: Model | None = None) -> Dataset:
    """Read the documents to train on, with the feedback of users."""
    dataset = load_dataset(run.data, **run.reads, ids=ids)
    if run.feedback is not None:
        # The data's names for URIs may differ from the model's, so labels are matched by URI.
        names: dict[str, str] = {}
        if model is not None and model.label_names is not None and model.label_uris is not None:
            own = set(dataset.label_uris or dataset.label_names or ())
            both = zip(model.label_names, model.label_uris, strict=True)
            names = dict((uri, name) if name in own else (name, uri) for name, uri in both)
        # Only the records at the start of the run, so that a resumed run has the same data.
        log = FeedbackLog(run.feedback["file"], run.feedback["records"])
        dataset = apply_feedback(dataset, merge_feedback(log.entries(), names))
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
    label_uris: list[str] | None = None,
    keep_index: bool = False,
    reporter: Reporter | None = None,
    world: World = ALONE,
    **options: Any,
) -> Model:
    """Train a new model by `fit`, and optionally add an index of its documents and the URIs of its labels."""
    reporter = reporter or Reporter()
    model = fit(split, settings, reporter=reporter, world=world, **options)
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
    """Train a model further, in place, on the documents of a dataset, which may have new labels.

    Labels are matched by name or URI. `changes` override `further_settings`.
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
    """Return settings for training a model further; `changes` override them.

    They are the model's own settings, but with 5 epochs and half of the original learning rate.
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

    Labels in columns beyond the model's are added. Features and calibration stay unchanged. If the model has an
    index of its training documents, the new documents are added to it.

    Parameters
    ----------
    model : Model
    documents : list of str, or rows
        Of the kind that the model was trained on.
    Y : csr_matrix of shape (n, n_labels)
        Labels in the model's order, then new ones.
    settings : TrainingSettings
        Usually those of `further_settings`.
    ids : sequence of str or int, optional
        Ids of the documents in the index.
    reporter : Reporter, optional
    folder : Path, optional
        Checkpoints are written there.
    resume : bool
        Whether to start from a checkpoint.
    world : World
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
    """Add documents to a model's index, with the model's current predictions; create the index if needed.

    Earlier predictions for other documents stay in the index: codes do not change, and further training changes
    predictions little. By default, ids continue the numbering of the index. `batch_size` documents are added at a
    time.
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
    """Return how to store the weights of the model in a folder after further training."""
    store: str = read_config(folder)["store"]
    # Deflated weights would need a new search by `circlet compress`.
    return "float32" if store == DEFLATED else store


def update_saved(folder: Path, output: Path, corrections: Sequence[TextFeedback]) -> Update:
    """Update the model in a folder by feedback, and write the result to another folder."""
    with explained(folder):
        saved = read(folder, whole=True, estimator=True)
        model = Model.restore(folder, saved)
    state = saved.estimator
    named = state is None or state["target"] == "indicator" or state["classes"]["values"] is None
    changed = update(model, corrections, may_grow=named)
    write(output, replace(model.contents(), estimator=state), store_of(folder))
    return changed
