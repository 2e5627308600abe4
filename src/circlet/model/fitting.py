"""From documents and their labels to a trained model."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import nn

from circlet.data.dataset import Split, check_entries, check_label_names
from circlet.data.sparse import as_csr, column_counts, is_mapped
from circlet.errors import DataError, ParameterError
from circlet.features.rows import Scaling
from circlet.features.tokenizer import Tokenizer
from circlet.features.vectorizer import TextVectorizer
from circlet.folder.layout import MOST_LABELS
from circlet.folder.sample import REMEMBERED_NUMBERS, merged, sample_of
from circlet.model import rehearsal
from circlet.model.calibration import as_if_new, calibration_record, choose_threshold
from circlet.model.deciding import Decider
from circlet.model.indexing import add_to_index
from circlet.model.model import Model
from circlet.model.sharing import share_weights
from circlet.network import Ensemble, Network
from circlet.settings import RunSettings, TrainingSettings
from circlet.settings.network import FEATURES
from circlet.training import CALIBRATION, THRESHOLD, Joining, Reporter, checkpoint, train
from circlet.training.distributed import ALONE, World

__all__ = ["fit", "fit_further", "further_settings"]

#: How a model is trained further: for a few epochs, at up to this share of its original learning rate.
FURTHER_EPOCHS, FURTHER_RATE = 5, 0.5
#: The number of training rows that probabilities are calibrated on if no rows are held out.
ENOUGH_TO_CALIBRATE = 2000


def fit(
    split: Split,
    settings: RunSettings,
    *,
    validation: Split | None = None,
    label_names: list[str] | None = None,
    encoder: nn.Module | None = None,
    device: torch.device | None = None,
    reporter: Reporter | None = None,
    folder: Path | None = None,
    resume: bool = False,
    world: World = ALONE,
) -> Model:
    """Train a model on documents and their labels.

    Settings that are left open are decided first. The rows that the settings hold out serve for validation and
    calibration; then they join the others, if the settings say so. Of few documents, a model is trained without
    them first; see `circlet.model.rehearsal`.

    Parameters
    ----------
    split : Split
        Rows, or texts if there are no rows or the encoder reads texts.
    settings : RunSettings
        Texts are always weighted by tf-idf, whatever the scaling.
    validation : Split, optional
        Rows for choosing the best epoch and calibrating probabilities, instead of rows that are held out.
    label_names : list of str, optional
        What labels are called, in the order of the columns.
    encoder : nn.Module, optional
        Replaces the default encoder; see `Network`. Each of several networks has a copy of it.
    device : torch.device, optional
        Where to train; by default on the CPU.
    reporter : Reporter, optional
        Told how training goes.
    folder : Path, optional
        Where a checkpoint is written after every epoch.
    resume : bool
        Continue from the checkpoint in `folder`, if there is one.
    world : World
        The processes that train together; see `circlet.training.train`.
    """
    split = _for_encoder(split, settings, encoder)
    validation = validation and _for_encoder(validation, settings, encoder)
    _check(split, validation)
    folder = folder if world.is_first else None
    n_labels = int(split.Y.shape[1])
    if n_labels > MOST_LABELS:  # before they are counted: a file may claim any number
        raise DataError(f"found {n_labels:,} labels; wanted at most {MOST_LABELS:,}, which a saved model may have")
    if label_names is not None:
        check_label_names(label_names, n_labels, "label_names")
    reporter = reporter or Reporter()
    decider = Decider(split, settings, reporter, device, folder if resume else None, world)
    settings = decider.by_rule()
    held_out = None if validation is not None else settings.held_out(split.n)
    if held_out is not None and not settings.joins:
        split, validation = split.take(np.delete(np.arange(split.n), held_out), copy=False), split.take(held_out)
        held_out = None
    X: Any = split.X
    vectorizer, kind = None, settings.scaling
    if X is None:
        vectorizer, kind = _vectorizer(settings), "none"
        X = vectorizer.fit_transform(split.texts or [])
    n_features, sparse = int(X.shape[1]), bool(sp.issparse(X) or is_mapped(X))
    scaling = Scaling(kind).fit(X)
    rows = scaling.transform(X)
    evaluated = None
    if held_out is not None:
        evaluated = as_if_new(rows, held_out), split.Y[held_out]
    elif validation is not None and validation.n:
        new = vectorizer.transform(validation.texts or []) if vectorizer is not None else validation.X
        evaluated = scaling.transform(new), validation.Y
    settings = decider.by_trial(rows, held_out, evaluated)
    if folder is not None:
        decider.save(folder)
    networks = [
        Network(each, n_features, n_labels, sparse=sparse, encoder=copy.deepcopy(encoder) if i else encoder)
        for i, each in enumerate(settings.networks())
    ]
    model = Model(
        Ensemble(networks),
        scaling,
        n_features=n_features,
        sparse=sparse,
        label_names=label_names,
        vectorizer=vectorizer,
        training={
            **asdict(settings.training),
            "threshold_for": settings.threshold_for,
            "documents": split.n,
            "held_out": 0,
            **decider.record(),
        },
        label_counts=column_counts(split.Y),
    )
    model.training["remember"] = settings.remember
    _remember(model, rows, split.Y)
    rehearse = held_out is not None and settings.rehearses(split.n)
    if evaluated is not None and not rehearse and not settings.network.reads_texts:
        # A rehearsed model has learned from all rows as from any: they would say nothing about others. What its
        # rehearsal lost is in its history instead. Smaller copies are measured without torch, which can't read
        # texts.
        model.sample = sample_of(*evaluated)
    if validation is not None and validation.n:
        model.count(validation.Y, held_out=True)
    _train(
        model,
        rows,
        split.Y,
        settings.training,
        validation=evaluated,
        held_out=held_out,
        rehearse=rehearse,
        share=settings.rehearses(split.n),
        aim=settings.threshold_for,
        device=device,
        reporter=reporter,
        folder=folder,
        resume=resume,
        world=world,
    )
    if held_out is not None:
        return model
    if evaluated is None and settings.network.loss != "bce":
        # Scores of cosine and softmax are not log-odds. Training rows make them look too good, but no calibration
        # at all would be worse.
        model.calibrate(rows[:ENOUGH_TO_CALIBRATE], split.Y[:ENOUGH_TO_CALIBRATE])
    if evaluated is not None:
        model.calibrate(*evaluated)
        model.threshold = choose_threshold(model.ranker, *evaluated, model.calibration, settings.threshold_for)
    return model


def _train(
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
    rehearse: bool = False,
    share: bool = False,
    aim: str = "f1",
    **options: Any,
) -> None:
    """Train the networks of a model one after the other, and add their records to its history.

    Rows that are held out join in the end, and each network is calibrated just before. Or, if it is rehearsed, it
    learns from all rows from the start, and has the calibration of one that did not. With `share`, features that
    can't be told apart share their weights in the end. The model's threshold is the mean of those of its networks,
    which are best for `aim` on these rows.

    Each network has its own checkpoint in the folder until the model is saved, those of rehearsals included, so
    that an interrupted run goes on with the network that it was at. `options` are further arguments of
    `circlet.training.train`.
    """
    if folder is not None and not (resume and (folder / checkpoint.NAME).exists()):
        # The first network starts anew. Old checkpoints of the others must not be taken for this run's.
        checkpoint.remove(folder)
    several, thresholds = len(model.networks) > 1, []
    reporter.plan(settings.epochs, len(model.networks))
    for member, network in enumerate(model.networks):
        before = sum(record.get("member", 1) == member + 1 for record in model.history)
        number = member if several else None
        shared = {**options, "reporter": reporter, "folder": folder, "resume": resume, "member": number}
        shared["label_names"] = model.label_names
        joining, found, stage = None, None, number
        if held_out is not None and validation is not None and rehearse:
            stage = 2 * member + 1
            first = {**shared, "stage": stage - 1, "sparse": model.sparse, "aim": aim}
            found = rehearsal.rehearse(network, rows, Y, held_out, validation, settings, **first)
        elif held_out is not None and validation is not None:
            joining = Joining(held_out, partial(calibration_record, Ensemble([network]), *validation, aim))
        known = None if rehearse else validation
        records = train(network, rows, Y, settings, validation=known, joining=joining, stage=stage, **shared)
        if share:
            share_weights(network, rows)
        if found is not None:
            records[-1] |= found
        model.history += [{**record, "epoch": before + record["epoch"]} for record in records]
        for record in records:
            if CALIBRATION in record:
                slope, intercept = record[CALIBRATION]
                model.set_curve(member, (slope, intercept))
            if record.get(THRESHOLD) is not None:
                thresholds.append(record[THRESHOLD])
    if thresholds:  # no rows are left to choose one for several networks by
        model.threshold = float(np.mean(thresholds))


def further_settings(model: Model, **changes: Any) -> TrainingSettings:
    """Settings for training a model further: those it was trained with, but gentler; `changes` override them."""
    known = (each.name for each in fields(TrainingSettings) if each.name in model.training)
    training = TrainingSettings(**{name: model.training[name] for name in known})
    gentle = replace(
        training,
        epochs=FURTHER_EPOCHS,
        lr=training.lr * FURTHER_RATE,
        schedule="one-cycle",
        patience=None,
    )
    return replace(gentle, **changes)


def _for_encoder(split: Split, settings: RunSettings, custom: nn.Module | None) -> Split:
    """Documents as the encoder takes them: if it reads texts, without the features that they may also have."""
    if not settings.network.reads_texts:
        return split
    if custom is not None:
        raise ParameterError(
            f"found an encoder of its own beside encoder {settings.network.encoder}; wanted one of them"
        )
    if split.texts is None:
        raise DataError(
            f"found feature rows without texts; encoder {settings.network.encoder} reads texts: name documents as "
            f"text, or choose encoder {FEATURES}"
        )
    return Split(None, split.Y, split.texts)


def _vectorizer(settings: RunSettings) -> TextVectorizer | Tokenizer:
    """What turns texts into what the encoder takes."""
    text, network = settings.text, settings.network
    if network.reads_texts:
        return Tokenizer(min_df=text.min_df, max_features=text.max_features, max_words=network.words_read)
    return TextVectorizer(**asdict(text))


def _check(split: Split, validation: Split | None) -> None:
    """Refuse documents that nothing can be learned from, or that could crash the process."""
    if not split.n:
        raise ParameterError("there are no documents to train on")
    for name, matrix in (("X", split.X), ("Y", split.Y)):
        if matrix is not None and not matrix.shape[1]:
            raise ParameterError(f"found no columns in {name}; wanted at least one")
    check_entries(split, "split")
    check_entries(validation, "validation")


def fit_further(
    model: Model,
    documents: Any,
    Y: sp.csr_matrix,
    settings: TrainingSettings,
    *,
    reporter: Reporter | None = None,
    folder: Path | None = None,
    resume: bool = False,
    ids: Sequence[str | int] | None = None,
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
    folder = folder if world.is_first else None
    rows, Y = model.rows(documents), as_csr(Y, "Y")
    if Y.shape[1] > model.n_labels:
        model.ranker.grow(Y.shape[1])
    _train(
        model,
        rows,
        Y,
        settings,
        device=model.device,
        reporter=reporter or Reporter(),
        folder=folder,
        resume=resume,
        world=world,
        fresh=False,
    )
    model.count(Y)
    if model.index is not None:
        add_to_index(model, documents, ids)
    _remember(model, rows, Y)


def _remember(model: Model, rows: Any, Y: sp.csr_matrix) -> None:
    """Keep some of these rows, in proportion to all that the model has seen, for teaching it later."""
    if model.network.settings.reads_texts:
        return  # teaching needs rows of features
    most = int(model.training.get("remember", RunSettings.remember))
    new = sample_of(rows, Y, most, REMEMBERED_NUMBERS)
    model.remembered = merged(model.remembered, new, Y.shape[0] / max(model.documents_seen, 1), most)
