"""From documents and their labels to a trained model."""

from __future__ import annotations

import copy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import scipy.sparse as sp
import torch
from torch import nn

from circlet.data.dataset import Split, check_label_names
from circlet.data.mapped import column_counts, is_mapped
from circlet.errors import ParameterError
from circlet.features.scaling import Scaling
from circlet.features.vectorizer import TextVectorizer
from circlet.model.model import Model
from circlet.network import Network
from circlet.network.ensemble import as_one
from circlet.settings import RunSettings, TrainingSettings
from circlet.training import Reporter, checkpoint, train

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
) -> Model:
    """Train a model on documents and their labels.

    Parameters
    ----------
    split : Split
        Rows, or texts if there are no rows.
    settings : RunSettings
        `settings.hold_out` gives this split and the next. Texts are always weighted by tf-idf, whatever the
        scaling.
    validation : Split, optional
        Rows for choosing the best epoch and calibrating probabilities.
    label_names : list of str, optional
    encoder : nn.Module, optional
        Replaces the default encoder; see `Network`. Each of several networks has a copy of it.
    device, reporter, folder, resume
        See `circlet.training.train`.
    """
    if not split.n:
        raise ParameterError("there are no documents to train on")
    n_labels = int(split.Y.shape[1])
    if label_names is not None:
        check_label_names(label_names, n_labels, "label_names")
    X: Any = split.X
    vectorizer, kind = None, settings.scaling
    if X is None:
        vectorizer, kind = TextVectorizer(**asdict(settings.text)), "none"
        X = vectorizer.fit_transform(split.texts or [])
    n_features, sparse = int(X.shape[1]), bool(sp.issparse(X) or is_mapped(X))
    scaling = Scaling(kind).fit(X)
    networks = [
        Network(each, n_features, n_labels, sparse=sparse, encoder=copy.deepcopy(encoder) if i else encoder)
        for i, each in enumerate(settings.networks())
    ]
    model = Model(
        as_one(networks),
        scaling,
        n_features=n_features,
        sparse=sparse,
        label_names=label_names,
        vectorizer=vectorizer,
        training={**asdict(settings.training), "documents": split.n, "held_out": 0},
        label_counts=column_counts(split.Y),
    )
    evaluated = None
    if validation is not None and validation.n:
        model.count(validation.Y, held_out=True)
        evaluated = (model.rows(validation.texts if vectorizer is not None else validation.X), validation.Y)
    rows = scaling.transform(X)
    _train(
        model,
        rows,
        split.Y,
        settings.training,
        validation=evaluated,
        device=device,
        reporter=reporter,
        folder=folder,
        resume=resume,
    )
    if evaluated is None and settings.network.loss != "bce":
        # Scores of cosine and softmax are not log-odds. Training rows make them look too good, but no calibration
        # at all would be worse.
        evaluated = rows[:ENOUGH_TO_CALIBRATE], split.Y[:ENOUGH_TO_CALIBRATE]
    if evaluated is not None:
        model.calibrate(*evaluated)
    return model


def _train(
    model: Model,
    rows: Any,
    Y: sp.csr_matrix,
    settings: TrainingSettings,
    *,
    folder: Path | None,
    resume: bool,
    **options: Any,
) -> None:
    """Train the networks of a model one after the other, and add their records to its history.

    Each network has its own checkpoint in the folder until the model is saved, so that an interrupted run goes on
    with the network that it was at. `options` are further arguments of `circlet.training.train`.
    """
    if folder is not None and not (resume and (folder / checkpoint.NAME).exists()):
        # The first network starts anew. Old checkpoints of the others must not be taken for this run's.
        checkpoint.remove(folder)
    several = len(model.networks) > 1
    for member, network in enumerate(model.networks):
        before = sum(record.get("member", 1) == member + 1 for record in model.history)
        number = member if several else None
        records = train(network, rows, Y, settings, folder=folder, resume=resume, member=number, **options)
        model.history += [{**record, "epoch": before + record["epoch"]} for record in records]


def further_settings(training: TrainingSettings, **changes: Any) -> TrainingSettings:
    """Settings for training a model further that was trained with these settings; `changes` override them."""
    gentle = replace(
        training,
        epochs=FURTHER_EPOCHS,
        lr=training.lr * FURTHER_RATE,
        schedule="one-cycle",
        patience=None,
    )
    return replace(gentle, **changes)


def fit_further(
    model: Model,
    documents: Any,
    Y: sp.csr_matrix,
    settings: TrainingSettings,
    *,
    reporter: Reporter | None = None,
    folder: Path | None = None,
    resume: bool = False,
) -> None:
    """Train a model on more documents, in place.

    Labels in columns beyond the model's are added. Features and calibration stay as they are.

    Parameters
    ----------
    model : Model
    documents : list of str, or rows
    Y : csr_matrix of shape (n, n_labels)
        Labels in the model's order, then new ones.
    settings : TrainingSettings
        Usually those of `further_settings`.
    reporter, folder, resume
        See `circlet.training.train`.
    """
    rows = model.rows(documents)
    if Y.shape[1] > model.n_labels:
        model.ranker.grow(Y.shape[1])
    _train(
        model,
        rows,
        Y,
        settings,
        device=model.device,
        reporter=reporter,
        folder=folder,
        resume=resume,
        fresh=False,
    )
    model.count(Y)
