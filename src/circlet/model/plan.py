"""Fit a model to documents and their labels; `fit` reads as the plan.

Settings that are left open are decided by rules, by a trial, or by the record of an interrupted run. In the trial,
small networks, trained on some of the rows, show which optimizer suits the first layer. On most sparse data SGD is
better, because Adam overfits rare words. If documents have only a handful of words, rare words are the only
evidence, and Adam is better. No simpler criterion has distinguished the two cases.
"""

from __future__ import annotations

import copy
import math
import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from scipy.sparse.linalg import norm
from torch import nn

from circlet import files
from circlet.data.dataset import Split, check_entries, check_label_names, column_counts, is_mapped
from circlet.encoders import FEATURES, RowPairs, TextEncoder, TextInput, TextRows, features_of, register
from circlet.errors import DataError, ParameterError
from circlet.features.rows import ScaledRows, Scaling
from circlet.features.vectorizer import TextVectorizer
from circlet.metrics import evaluate
from circlet.model.calibration import calibration_record, choose_threshold
from circlet.model.model import Model
from circlet.network import Ensemble, Network
from circlet.network.encoders import Encoder
from circlet.network.network import top_k
from circlet.runtime.compression import losses_by_rounding
from circlet.settings import Decision, Facts, RunSettings, TrainingSettings
from circlet.settings.auto import effort_of
from circlet.storage.kept_rows import REMEMBERED_NUMBERS, Sample, merged, sample_of
from circlet.storage.layout import CHECKPOINT, DECIDED, MOST_LABELS
from circlet.training import CALIBRATION, THRESHOLD, FinalEpoch, Reporter, checkpoint, measured, train
from circlet.training.distributed import ALONE, World


class Rows(NamedTuple):
    """Documents as input of the networks, and the fitted objects that made them."""

    rows: Any
    Y: sp.csr_matrix
    #: Numbers of the rows that are held out at first and trained on in the end.
    held_out: npt.NDArray[np.int64] | None
    #: Held-out rows for validation and calibration, with only the features that new documents could have.
    evaluated: tuple[Any, sp.csr_matrix] | None
    vectorizer: TextVectorizer | TextInput | None
    scaling: Scaling
    sparse: bool


def fit(
    split: Split,
    settings: RunSettings,
    *,
    validation: Split | None = None,
    label_names: list[str] | None = None,
    encoder: TextEncoder | nn.Module | None = None,
    device: torch.device | None = None,
    reporter: Reporter | None = None,
    folder: Path | None = None,
    resume: bool = False,
    world: World = ALONE,
) -> Model:
    """Train a model on documents and their labels.

    The plan:

    1. Decide: rules choose the settings that are left open.
    2. Features: hold some rows out, and turn texts into features.
    3. Trial: if no rule decides, two small networks show which optimizer suits the first layer.
    4. With few documents, make a calibration run for each member: train an equal network without the held-out
       rows, calibrate it on them, and discard it. A copy with rounded weights shows what a smaller model loses.
    5. Train each member: after a calibration run, on all rows. Otherwise on the rows that are not held out; then
       calibrate it on the held-out rows, and train on these in a last, short epoch.
    6. Calibrate, if held-out rows are not trained on.

    So with the default settings, a few thousand documents take five networks for one member, and four of them are
    trained: two in the trial, one in the calibration run, and the member. Saving the model is the last stage; see
    `circlet.model.session`.

    Parameters
    ----------
    split : Split
        Rows, or texts if there are no rows or the network has an encoder of texts.
    settings : RunSettings
        Texts are always weighted by tf-idf, whatever the scaling.
    validation : Split, optional
        Rows for choosing the best epoch and calibrating probabilities, instead of held-out rows.
    label_names : list of str, optional
        Names of the labels, in the order of the columns.
    encoder : TextEncoder or nn.Module, optional
        An encoder of texts, instead of one that the settings name; or a module that replaces the hidden layers,
        see `Network`. Each of several networks gets a copy of a module.
    device : torch.device, optional
        Device for training; by default the CPU.
    reporter : Reporter, optional
        Receives the progress of training.
    folder : Path, optional
        Folder for a checkpoint after every epoch.
    resume : bool
        Continue from the checkpoint in `folder`, if there is one.
    world : World
        The processes that train together.
    """
    reporter, folder = reporter or Reporter(), folder if world.is_first else None
    if isinstance(encoder, TextEncoder) and settings.network.encoder == FEATURES:
        settings = settings.with_values({"encoder": register(type(encoder)).name})
    split = _for_encoder(split, settings, encoder)
    validation = validation and _for_encoder(validation, settings, encoder)
    _check(split, validation, label_names)
    with reporter.timed("decide"):
        decider = Decider(split, settings, resumed=folder if resume else None, world=world)
        settings = decider.by_rule()
    with reporter.timed("features"):
        data = _as_rows(split, validation, settings, encoder if isinstance(encoder, TextEncoder) else None)
    if decider.tries(data.held_out) and data.held_out is not None and data.evaluated is not None:
        with reporter.timed("trial"):
            # The trial is about the layer that takes features.
            evaluated = features_of(data.evaluated[0]), data.evaluated[1]
            settings = decider.by_trial(features_of(data.rows), data.held_out, evaluated, device)
    reporter.decided(decider.decisions)
    if folder is not None:
        decider.save(folder)
    custom = encoder if isinstance(encoder, nn.Module) else None
    model = _untrained(data, settings, decider.record(), label_names, custom)
    train_members(
        model,
        data.rows,
        data.Y,
        settings.training,
        validation=data.evaluated,
        held_out=data.held_out,
        few=settings.has_calibration_run(data.Y.shape[0]),
        goal=settings.threshold_for,
        device=device,
        reporter=reporter,
        folder=folder,
        resume=resume,
        world=world,
    )
    if data.held_out is None:
        with reporter.timed("calibrate"):
            if data.evaluated is not None:
                goal = settings.threshold_for
                model.calibrate(*data.evaluated)
                model.threshold = choose_threshold(model.ranker, *data.evaluated, model.calibration, goal)
            elif settings.network.loss != "bce":
                # Scores of cosine and softmax are not log-odds. Calibrating on training rows is too optimistic,
                # but better than no calibration.
                model.calibrate(data.rows[:2000], data.Y[:2000])
    return model


def _for_encoder(split: Split, settings: RunSettings, given: TextEncoder | nn.Module | None) -> Split:
    """Return the documents as input of the network: without their features if it has an encoder of texts."""
    name = settings.network.encoder
    if name == FEATURES:
        return split
    if given is not None and getattr(given, "name", None) != name:
        raise ParameterError(f"found an encoder of its own beside encoder {name}; wanted one of them")
    if split.texts is None:
        raise DataError(
            f"found feature rows without texts; encoder {name} reads texts: name documents as text, or choose "
            f"encoder {FEATURES}"
        )
    return Split(None, split.Y, split.texts)


def _check(split: Split, validation: Split | None, label_names: list[str] | None) -> None:
    """Raise an error for documents that cannot be trained on, or that could crash the process."""
    if not split.n:
        raise ParameterError("there are no documents to train on")
    for name, matrix in (("X", split.X), ("Y", split.Y)):
        if matrix is not None and not matrix.shape[1]:
            raise ParameterError(f"found no columns in {name}; wanted at least one")
    check_entries(split, "split")
    check_entries(validation, "validation")
    n_labels = int(split.Y.shape[1])
    if n_labels > MOST_LABELS:  # before they are counted: a file may claim any number
        raise DataError(f"found {n_labels:,} labels; wanted at most {MOST_LABELS:,}, which a saved model may have")
    if label_names is not None:
        check_label_names(label_names, n_labels, "label_names")


def _as_rows(split: Split, validation: Split | None, settings: RunSettings, encoder: TextEncoder | None) -> Rows:
    """Hold rows out unless there is a validation set, and turn texts into rows of features or of the encoder."""
    held_out = None if validation is not None else settings.held_out(split.n)
    if held_out is not None and not settings.has_final_epoch:
        split, validation = split.take(np.delete(np.arange(split.n), held_out), copy=False), split.take(held_out)
        held_out = None
    X: Any = split.X
    vectorizer: TextVectorizer | TextInput | None = None
    if X is None:
        network = settings.network
        words = TextVectorizer(**asdict(settings.text)) if network.takes_features else None
        kind = network.text_encoder
        vectorizer = words if kind is None else TextInput(encoder or kind.of(settings.flat()), words)
        assert vectorizer is not None
        X = vectorizer.fit_transform(split.texts or [])
    scaling = Scaling("none" if vectorizer is not None else settings.scaling).fit(X)
    rows = scaling.transform(X)
    evaluated = None
    if held_out is not None:
        evaluated = as_if_new(rows, held_out), split.Y[held_out]
    elif validation is not None and validation.n:
        new = vectorizer.transform(validation.texts or []) if vectorizer is not None else validation.X
        evaluated = scaling.transform(new), validation.Y
    bags = features_of(X)
    sparse = bool(sp.issparse(bags) or is_mapped(bags))
    return Rows(rows, split.Y, held_out, evaluated, vectorizer, scaling, sparse)


def as_if_new(rows: Any, held_out: npt.NDArray[np.int64]) -> Any:
    """Return held-out rows without the features that no other row has, so that they are like new documents.

    A vectorizer fitted on all texts also knows the words that only held-out texts have, but the network has
    learned nothing about them. The remaining features are rescaled to the row's original norm.
    """
    if isinstance(rows, RowPairs):
        return RowPairs(as_if_new(rows.features, held_out), as_if_new(rows.texts, held_out))
    if isinstance(rows, TextRows):
        return rows.as_if_new(held_out)
    own = rows[held_out]
    if not sp.issparse(own) or isinstance(rows, ScaledRows):
        return own
    unseen = column_counts(rows) == column_counts(own)
    lengths = norm(own, axis=1)
    own = own.copy()
    own.data[unseen[own.indices]] = 0
    own.eliminate_zeros()
    left = norm(own, axis=1)
    scale = np.divide(lengths, left, out=np.ones_like(lengths), where=left > 0)
    own.data *= np.repeat(scale, np.diff(own.indptr)).astype(own.dtype)
    return own


def _untrained(
    data: Rows,
    settings: RunSettings,
    decided: dict[str, Any],
    label_names: list[str] | None,
    custom: nn.Module | None,
) -> Model:
    """Make a model with new networks, which counts its documents already."""
    n, n_labels = data.Y.shape
    n_features = int(data.rows.shape[1])
    texts = data.vectorizer.encoder if isinstance(data.vectorizer, TextInput) else None
    networks = [
        Network(
            each,
            n_features,
            n_labels,
            sparse=data.sparse,
            encoder=texts or (copy.deepcopy(custom) if i else custom),
        )
        for i, each in enumerate(settings.networks())
    ]
    model = Model(
        Ensemble(networks),
        data.scaling,
        n_features=n_features,
        sparse=data.sparse,
        label_names=label_names,
        vectorizer=data.vectorizer,
        training={
            **asdict(settings.training),
            "threshold_for": settings.threshold_for,
            "documents": n,
            "held_out": 0,
            **decided,
            "remember": settings.remember,
        },
        label_counts=column_counts(data.Y),
    )
    remember(model, data.rows, data.Y)
    if data.evaluated is None:
        return model
    calibration_runs = data.held_out is not None and settings.has_calibration_run(n)
    if not calibration_runs and not isinstance(data.rows, (RowPairs, TextRows)):
        # After a calibration run, the model is trained on these rows too, so they cannot measure a copy; the
        # history has the loss of the calibration run instead. Samples are rows of a matrix.
        model.sample = sample_of(*data.evaluated)
    if data.held_out is None:
        model.count(data.evaluated[1], held_out=True)
    return model


def train_members(
    model: Model,
    rows: Any,
    Y: sp.csr_matrix,
    settings: TrainingSettings,
    *,
    reporter: Reporter,
    folder: Path | None,
    resume: bool,
    validation: tuple[Any, sp.csr_matrix] | None = None,
    held_out: npt.NDArray[np.int64] | None = None,
    few: bool = False,
    goal: str = "f1",
    **options: Any,
) -> None:
    """Train the networks of a model one after the other, and add their records to its history.

    Held-out rows are trained on in the end, and each network is calibrated just before. With few documents, each
    network has a calibration run instead, and in the end, features that occur in the same rows share their
    weights. The model's threshold is the mean of its networks' thresholds, which are best for `goal` on the
    held-out rows.

    Until the model is saved, each network and each calibration run has a checkpoint in the folder, so that an
    interrupted run continues with the network that it was training. `options` are those of
    `circlet.training.train`.
    """
    if folder is not None and not (resume and (folder / CHECKPOINT).exists()):
        # A new run starts. Remove old checkpoints, so that they are not mistaken for this run's.
        checkpoint.remove(folder)
    several, thresholds = len(model.networks) > 1, []
    shared = {**options, "reporter": reporter, "folder": folder, "resume": resume}
    shared["label_names"] = model.label_names
    reporter.plan(settings.epochs, len(model.networks))
    for number, network in enumerate(model.networks):
        about = {"member": number + 1} if several else {}
        before = sum(record.get("member", 1) == number + 1 for record in model.history)
        shared["member"] = shared["stage"] = number if several else None
        final, known, found = None, validation, {}
        if several:
            reporter.member(number)
        if held_out is not None and validation is not None and few:
            with reporter.timed("calibration run", **about):
                first = {**shared, "stage": 2 * number, "sparse": model.sparse, "goal": goal}
                found = calibration_run(network, rows, Y, held_out, validation, settings, **first)
            shared["stage"], known = 2 * number + 1, None
        elif held_out is not None and validation is not None:
            final = FinalEpoch(held_out, partial(calibration_record, Ensemble([network]), *validation, goal))
        with reporter.timed("train", **about):
            records = train(network, rows, Y, settings, validation=known, final=final, **shared)
            if few:
                share_weights(network, rows)
        records[-1] |= found
        model.history += [{**record, "epoch": before + record["epoch"]} for record in records]
        for record in records:
            if CALIBRATION in record:
                slope, intercept = record[CALIBRATION]
                model.set_curve(number, (slope, intercept))
            if record.get(THRESHOLD) is not None:
                thresholds.append(record[THRESHOLD])
    if thresholds:  # no held-out rows are left to choose a common threshold
        model.threshold = float(np.mean(thresholds))


def calibration_run(
    network: Network,
    rows: Any,
    Y: sp.csr_matrix,
    held_out: npt.NDArray[np.int64],
    validation: tuple[Any, sp.csr_matrix],
    settings: TrainingSettings,
    *,
    goal: str,
    sparse: bool,
    reporter: Reporter,
    **options: Any,
) -> dict[str, Any]:
    """Train an equal network without the held-out rows, measure it on these, and discard it.

    The given network is not changed; it will be trained on all rows. Metric, calibration, threshold and the loss
    of rounded weights are returned as entries for its record. `validation` is the held-out rows, like new
    documents, and their labels; `goal` is the goal of the threshold; `options` are those of
    `circlet.training.train`.
    """
    encoder = copy.deepcopy(network.encoder) if network.custom else network.texts
    trained = Network(network.settings, rows.shape[1], network.n_labels, sparse=sparse, encoder=encoder)
    learned = np.delete(np.arange(Y.shape[0]), held_out)
    reporter.calibration_run(len(learned))
    train(trained, rows[learned], Y[learned], settings, reporter=reporter, **options)
    share_weights(trained, rows[learned])
    metrics = measured(trained, *validation, settings.metric)
    reporter.calibration_run_over(metrics)
    found = {**metrics, **calibration_record(Ensemble([trained]), *validation, goal)}
    if network.custom or isinstance(rows, (RowPairs, TextRows)):
        return found  # smaller copies are measured on rows of a matrix, by the runtime
    model = Model(Ensemble([trained]), Scaling("none"), n_features=rows.shape[1], sparse=sparse)
    return {**found, **losses_by_rounding(model.contents(), Sample(*validation))}


def share_weights(network: Network, rows: Any) -> None:
    """Give features that occur in the same rows the mean of their weights.

    With few documents, many features occur in exactly the same ones: a rare word and most of its character
    n-grams. Training moves their weights in the same direction, so these differ only by their random start. With
    the mean of the weights, the network's outputs for these documents stay the same, and a smaller copy
    (`circlet.storage.packed_weights`) stores the weights only once.

    Features are weighted by the size of their values, so that the sum over the features of such a row stays the
    same. Dense and mapped rows, and custom encoders, are left unchanged.
    """
    if not sp.issparse(rows) or not isinstance(network.encoder, Encoder):
        return
    # Each row has a random number. The sums of these, modulo 2⁶⁴, differ between sets of rows.
    numbers = np.random.default_rng(0).integers(1, 1 << 62, rows.shape[0])
    present = sp.csr_matrix((rows.data != 0, rows.indices, rows.indptr), shape=rows.shape)
    sums = present.astype(np.int64).T @ numbers
    _, group, count = np.unique(sums, return_inverse=True, return_counts=True)
    shared = np.flatnonzero((sums != 0) & (count[group] > 1))
    if not len(shared):
        return
    group = np.unique(group[shared], return_inverse=True)[1]
    squares = np.bincount(rows.indices, rows.data.astype(np.float64) ** 2, minlength=rows.shape[1])[shared]
    values = np.sqrt(squares)
    shares = values / np.bincount(group, values)[group]
    weight: Any = network.encoder.hidden[0].weight
    with torch.no_grad():
        own = weight[torch.from_numpy(shared)].cpu().numpy()
        means = sp.csr_matrix((shares.astype(np.float32), (group, np.arange(len(shared))))) @ own
        weight[torch.from_numpy(shared)] = torch.from_numpy(means[group]).to(weight.device)


def remember(model: Model, rows: Any, Y: sp.csr_matrix) -> None:
    """Keep some of these rows for learning from corrections, in proportion to all rows seen."""
    if isinstance(rows, (RowPairs, TextRows)):
        return  # samples are rows of a matrix
    most = int(model.training.get("remember", RunSettings.remember))
    new = sample_of(rows, Y, most, REMEMBERED_NUMBERS)
    model.remembered = merged(model.remembered, new, Y.shape[0] / max(model.documents_seen, 1), most)


class Trial(NamedTuple):
    """The size of a trial: quick, but long enough for the slower optimizer to win if it is better."""

    #: With fewer rows, a trial shows nothing.
    fewest_rows: int = 1000
    #: The most rows for training, and for evaluation.
    most_rows: int = 2500
    most_ranked: int = 1000
    #: The largest hidden layer and code dimension.
    width: int = 256
    dim: int = 400
    training: TrainingSettings = TrainingSettings(epochs=4, batch_size=64)
    #: How much better AdamW must be to be chosen, since it takes longer and needs more memory.
    margin: float = 0.003


class Decider:
    """Decides the open settings of one run; `settings` has all decisions so far, and `decisions` only these.

    The decisions of an interrupted run in the folder `resumed` are kept. Of several processes, the first one
    decides for all.
    """

    def __init__(
        self, split: Split, settings: RunSettings, *, resumed: Path | None = None, world: World = ALONE
    ) -> None:
        self.split, self.settings, self.world = split, settings, world
        self.decisions: list[Decision] = []
        self._may_try = "first_layer" in settings.undecided and effort_of(settings.preset).trial
        path = (resumed or Path()) / DECIDED
        try:
            known = resumed is not None and path.is_file()
            found = world.from_first(lambda: [files.read_json(path)] if known else [])
            if not found:  # no such run, or no decisions yet
                return
            # Settings given now take precedence. If they differ from the decisions, the checkpoint does not fit.
            decided = [Decision.from_dict(each) for each in found[0]]
            self.decisions = [each for each in decided if each.name in settings.undecided]
            self.settings = settings.with_values({each.name: each.value for each in self.decisions})
            self._may_try = False
        except (TypeError, KeyError, ValueError) as error:
            raise DataError(
                f"{path}: found no readable decisions ({error!r}); train again in another folder"
            ) from error

    def by_rule(self) -> RunSettings:
        """Apply the rules and return the settings."""
        X, Y = self.split.X, self.split.Y
        documents, labels = Y.shape
        bags = X is None and self.settings.network.takes_features
        facts = Facts(
            documents,
            labels,
            texts=bags,
            sparse=bags or (X is not None and bool(sp.issparse(X) or is_mapped(X))),
            adam=self.settings.training.optimizer in ("adam", "adamw"),
            features=None if X is None else int(X.shape[1]),
            typical=_typical(column_counts(Y)),
            final_epoch=self.settings.has_final_epoch,
        )
        self.settings, decided = self.settings.decided(facts)
        self.decisions += decided
        return self.settings

    def tries(self, held_out: npt.NDArray[np.int64] | None) -> bool:
        """Whether a trial decides the optimizer of the first layer: not if the rule has chosen AdamW."""
        ruled = self.settings.training.first_layer == "sgd"
        enough = held_out is not None and self.split.n - len(held_out) >= Trial().fewest_rows
        return self._may_try and ruled and enough

    def by_trial(
        self,
        rows: Any,
        held_out: npt.NDArray[np.int64],
        evaluated: tuple[Any, sp.csr_matrix],
        device: torch.device | None = None,
    ) -> RunSettings:
        """Choose the optimizer of the first layer by a trial on scaled rows, and return the settings."""
        learned = np.delete(np.arange(self.split.n), held_out)
        # Each process runs the whole trial, so that it does not depend on the number of processes.
        own = first_layer(rows, self.split.Y, learned, evaluated, self.settings, device)
        found = Decision.from_dict(self.world.from_first(own.as_dict))
        self.decisions = [found if each.name == found.name else each for each in self.decisions]
        self.settings = self.settings.with_values({found.name: found.value})
        return self.settings

    def record(self) -> dict[str, Any]:
        """Return the decisions, for the model's record."""
        return {"decided": [each.as_dict() for each in self.decisions]} if self.decisions else {}

    def save(self, folder: Path) -> None:
        """Save the decisions beside a run's checkpoints."""
        files.prepare_folder(folder)
        if self.decisions:
            files.write_json(folder / DECIDED, self.record()["decided"])
        else:
            (folder / DECIDED).unlink(missing_ok=True)  # left by a run that was never resumed


def _typical(counts: npt.NDArray[np.int64]) -> float:
    """Return the document count of a typical label: half of all assignments are to labels with at most so many."""
    ordered = np.sort(counts)
    if not ordered.sum():
        return math.inf
    return float(ordered[np.searchsorted(ordered.cumsum(), ordered.sum() / 2)])


def first_layer(
    rows: Any,
    Y: sp.csr_matrix,
    learned: npt.NDArray[np.int64],
    evaluated: tuple[Any, sp.csr_matrix],
    settings: RunSettings,
    device: torch.device | None,
    size: Trial = Trial(),  # noqa: B008 (it can't be changed)
) -> Decision:
    """Compare both optimizers of the first layer in a trial on scaled rows; its seed is that of the run.

    The networks are trained on some of the rows `learned`, and evaluated on other rows and their labels.
    """
    started, given = time.perf_counter(), settings.network
    hidden = tuple(min(width, size.width) for width in given.hidden)
    small = replace(given, hidden=hidden, dim=min(given.dim, size.dim), dropout=0.0, slots=None)
    some = np.sort(np.random.default_rng([given.seed, 1]).permutation(learned)[: size.most_rows])
    X, labels = rows[some], Y[some]
    judged, right = (each[: size.most_ranked] for each in evaluated)
    found = {}
    for optimizer in ("sgd", "same"):
        network = Network(small, X.shape[1], labels.shape[1], sparse=True)
        training = replace(size.training, first_layer=optimizer, optimizer=settings.training.optimizer)
        train(network, X, labels, training, device=device)
        ids, _ = top_k(Ensemble([network]), judged, 5)
        found[optimizer] = evaluate(right, ids, k=5, metrics=("nDCG",))["nDCG@5"]
    best = "same" if found["same"] > found["sgd"] + size.margin else "sgd"
    shown = f"SGD {100 * found['sgd']:.1f}, {settings.training.optimizer} {100 * found['same']:.1f}"
    why = f"nDCG@5 of a trial on {len(some):,} rows, which took {time.perf_counter() - started:.1f} s: {shown}"
    return Decision("first_layer", best, why, tried=True)
