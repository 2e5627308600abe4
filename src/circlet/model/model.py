"""A trained tagger: everything between a document and its ranked labels, in one object and one folder.

A folder holds `config.json`, `weights.safetensors`, `history.json`, `labels.txt` if labels have names, and the
text vectoriser's state if documents are texts. No pickle. `config.json` is written last and names the digest of
the weights, so that a folder is either whole or refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import nn

from circlet import __version__, files
from circlet.data.dataset import Split, check_label_names
from circlet.data.mapped import is_mapped
from circlet.errors import CircletError, DataError, ParameterError
from circlet.features.scaling import Features
from circlet.features.vectorizer import TextVectorizer, load_vectorizer
from circlet.features.vectorizer_state import STATE_FILE, TENSOR_FILE
from circlet.model import precision as storage
from circlet.model.folder import (
    FORMAT,
    WEIGHTS,
    check_codebook,
    check_features,
    check_shapes,
    read_config,
    read_history,
    read_labels,
    read_weights,
)
from circlet.network.network import Network, NetworkSettings
from circlet.training import checkpoint
from circlet.training.loop import Reporter, TrainingSettings, predict_top_k, train

__all__ = ["FORMAT", "Model", "fit"]

#: Training rows that probabilities are calibrated on where there are no validation rows.
ENOUGH_TO_CALIBRATE = 2000
Vectorizer = TextVectorizer


class Model:
    """A network and what surrounds it.

    Parameters
    ----------
    network : Network
    features : Features
        Fitted; what is done to rows before the network sees them.
    n_features : int
    sparse : bool
    label_names : list of str or None
    vectorizer : optional
        Turns texts into rows; None if documents are rows already.
    calibration : (slope, intercept)
        A label's probability is σ(slope · score + intercept).
    history : list of dict
        A record per epoch.
    training : dict
        How it was trained.
    """

    def __init__(
        self,
        network: Network,
        features: Features,
        *,
        n_features: int,
        sparse: bool,
        label_names: list[str] | None = None,
        vectorizer: Vectorizer | None = None,
        calibration: tuple[float, float] = (1.0, 0.0),
        history: list[dict[str, Any]] | None = None,
        training: dict[str, Any] | None = None,
    ) -> None:
        self.network, self.features = network, features
        self.n_features, self.sparse = n_features, sparse
        self.label_names, self.vectorizer, self.calibration = label_names, vectorizer, calibration
        self.history, self.training = history or [], training or {}

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return self.network.loss.n_labels

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.network.parameters()).device

    def rows(self, documents: Any) -> Any:
        """Scaled feature rows of texts, a sparse matrix or an array."""
        if self.vectorizer is not None:
            if not _is_texts(documents):
                raise DataError("this model was trained on texts; wanted a list of texts, got feature rows")
            documents = self.vectorizer.transform(documents)
        elif _is_texts(documents):
            raise DataError("this model was trained on feature rows; wanted rows, got texts")
        if documents.ndim != 2 or documents.shape[1] != self.n_features:
            raise DataError(
                f"found rows of shape {tuple(documents.shape)}; this model wants {self.n_features} features"
            )
        if sp.issparse(documents) != self.sparse:
            documents = sp.csr_matrix(documents) if self.sparse else documents.toarray()
        return self.features.transform(documents)

    def top_k(
        self,
        documents: Any,
        k: int,
        *,
        memory: int | None = None,
        allowed: npt.NDArray[np.bool_] | None = None,
        threshold: float | None = None,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Ids and scores of the k best labels of each document, `(n, min(k, n_labels))`, best first.

        Parameters
        ----------
        documents : list of str, or rows
        k : int
        memory : int, optional
            Bytes that scores may take at a time; see `circlet.codebooks.decoding.top_k`.
        allowed : bool ndarray of shape (n_labels,), optional
            Labels that are False are never suggested.
        threshold : float, optional
            Labels with a lower score are left out: their id is −1 and their score −∞.
        """
        ids, scores = predict_top_k(
            self.network,
            self.rows(documents),
            k,
            self.device,
            memory=memory,
            allowed=allowed,
            threshold=threshold,
        )
        return ids, scores

    def probabilities(self, scores: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Calibrated probabilities of scores."""
        slope, intercept = self.calibration
        logits = torch.from_numpy(slope * np.asarray(scores, dtype=np.float64) + intercept)
        return torch.sigmoid(logits).float().numpy()

    def save(self, folder: Path | str, store: str = "float32") -> None:
        """Write the model to a folder, its weights stored as `circlet.model.precision.STORES` says."""
        folder = Path(folder)
        state = {name: tensor.detach().cpu().contiguous() for name, tensor in self.network.state_dict().items()}
        state |= {f"features.{name}": torch.from_numpy(array) for name, array in self.features.arrays.items()}
        state = storage.packed(state, store)
        files.prepare_folder(folder)
        weights = folder / WEIGHTS
        checkpoint.write_tensors(weights, state)
        files.write_json(folder / "history.json", self.history)
        if self.label_names is not None:
            files.write_text(folder / "labels.txt", "".join(f"{name}\n" for name in self.label_names))
        if self.vectorizer is not None:
            self.vectorizer.save(folder)
        config = {
            "format": FORMAT,
            "circlet": __version__,
            "network": self.network.settings.as_dict(),
            "n_features": self.n_features,
            "n_labels": self.n_labels,
            "sparse": self.sparse,
            "codebook": None if self.network.codebook is None else self.network.codebook.state(),
            "scaling": self.features.scaling,
            "calibration": list(self.calibration),
            "named_labels": self.label_names is not None,
            "texts": self.vectorizer is not None,
            "weights_sha256": files.sha256(weights),
            "store": store,
            "training": self.training,
        }
        files.write_json(folder / "config.json", config)
        checkpoint.remove(folder)
        # What a model that was here before had, and this one does not.
        stale = ["estimator.json"]
        stale += ["labels.txt"] if self.label_names is None else []
        stale += [STATE_FILE, TENSOR_FILE] if self.vectorizer is None else []
        for name in stale:
            (folder / name).unlink(missing_ok=True)

    @classmethod
    def load(
        cls, folder: Path | str, device: torch.device | None = None, encoder: nn.Module | None = None
    ) -> Model:
        """Read a model from a folder; whatever is wrong with it is a `DataError`.

        A model trained with an encoder of its own needs one of the same shape to load the weights into.
        """
        folder = Path(folder)
        config = read_config(folder)
        try:
            return cls._restore(folder, config, device or torch.device("cpu"), encoder)
        except CircletError as error:
            known = str(error).startswith(str(folder))
            raise DataError(str(error) if known else f"{folder / 'config.json'}: {error}") from error
        except (TypeError, RuntimeError) as error:  # keys that settings do not have; sizes beyond all memory
            reason = str(error).splitlines()[0]
            raise DataError(f"{folder / 'config.json'}: found a damaged configuration ({reason})") from error

    @classmethod
    def _restore(
        cls, folder: Path, config: dict[str, Any], device: torch.device, encoder: nn.Module | None
    ) -> Model:
        settings = NetworkSettings(**config["network"])
        check_codebook(settings, config)
        weights = folder / WEIGHTS
        tensors = read_weights(weights, config["weights_sha256"], config["store"])
        check_features(weights, tensors, config["n_features"])
        network = Network(
            settings,
            config["n_features"],
            config["n_labels"],
            sparse=config["sparse"],
            encoder=encoder,
            codebook=config["codebook"],
            blank=True,
        )
        arrays = {name: tensors.pop(name) for name in list(tensors) if name.startswith("features.")}
        check_shapes(weights, network.state_dict(), tensors)
        network.load_state_dict(tensors)
        slope, intercept = config["calibration"]
        return cls(
            network.to(device),
            Features.restore(
                config["scaling"],
                {name.removeprefix("features."): tensor.numpy() for name, tensor in arrays.items()},
                config["n_features"],
            ),
            n_features=config["n_features"],
            sparse=config["sparse"],
            label_names=read_labels(folder, config["n_labels"]) if config["named_labels"] else None,
            vectorizer=load_vectorizer(folder) if config["texts"] else None,
            calibration=(float(slope), float(intercept)),
            history=read_history(folder / "history.json"),
            training=config["training"],
        )


def fit(
    train_split: Split,
    *,
    network: NetworkSettings,
    training: TrainingSettings,
    label_names: list[str] | None = None,
    scaling: str = "auto",
    vectorizer: Vectorizer | None = None,
    validation: Split | None = None,
    encoder: nn.Module | None = None,
    device: torch.device | None = None,
    reporter: Reporter | None = None,
    folder: Path | None = None,
    resume: bool = False,
) -> Model:
    """Train a model on documents and their labels.

    Parameters
    ----------
    train_split : Split
        Rows, or texts, which then need a `vectorizer` (fitted here).
    network, training : settings
    label_names : list of str, optional
    scaling : str
        See `circlet.features.scaling.SCALINGS`; texts come scaled out of their vectoriser.
    validation : Split, optional
        Rows to choose the best epoch by and to calibrate probabilities on.
    encoder : nn.Module, optional
        In place of the library's own; see `Network`.
    device, reporter, folder, resume
        See `circlet.training.loop.train`.
    """
    if not train_split.n:
        raise ParameterError("there are no documents to train on")
    if label_names is not None:
        check_label_names(label_names, int(train_split.Y.shape[1]), "label_names")
    X: Any = train_split.X
    if X is None:
        if vectorizer is None or train_split.texts is None:
            raise ParameterError("documents without features need texts and a vectorizer")
        X, scaling = vectorizer.fit_transform(train_split.texts), "none"
    else:
        vectorizer = None
    n_features, sparse = int(X.shape[1]), bool(sp.issparse(X) or is_mapped(X))
    features = Features(scaling).fit(X)
    made = Network(network, n_features, int(train_split.Y.shape[1]), sparse=sparse, encoder=encoder)
    model = Model(
        made,
        features,
        n_features=n_features,
        sparse=sparse,
        label_names=label_names,
        vectorizer=vectorizer,
        training={**asdict(training), "documents": train_split.n},
    )
    judged = None
    if validation is not None and validation.n:
        judged = (model.rows(validation.texts if vectorizer is not None else validation.X), validation.Y)
    rows = features.transform(X)
    model.history = train(
        made,
        rows,
        train_split.Y,
        training,
        validation=judged,
        device=device,
        reporter=reporter,
        folder=folder,
        resume=resume,
    )
    if judged is None and network.loss != "bce":
        # Cosines and softmax's scores are no log-odds. Training rows flatter, but less than no curve at all errs.
        judged = rows[:ENOUGH_TO_CALIBRATE], train_split.Y[:ENOUGH_TO_CALIBRATE]
    if judged is not None:
        model.calibration = calibrate(made, *judged, model.device)
    return model


def calibrate(
    network: Network, X: Any, Y: sp.csr_matrix, device: torch.device, *, depth: int = 50
) -> tuple[float, float]:
    """Platt's scaling: the logistic curve from score to how often such a score was right.

    Fitted on the `depth` best labels of each validation row: those are what anybody asks the probability of. As
    Platt does, a curve that has seen n right ones is to reach (n + 1) / (n + 2) for them, and likewise for wrong
    ones: a handful of rows makes nothing certain.
    """
    from sklearn.linear_model import LogisticRegression

    ids, scores = predict_top_k(network, X, depth, device)
    rows = np.arange(len(ids))[:, None]
    right = np.asarray(Y[np.broadcast_to(rows, ids.shape).ravel(), ids.ravel()]).ravel() > 0
    if right.all() or not right.any():
        return 1.0, 0.0
    n_right = int(right.sum())
    target = np.where(right, (n_right + 1) / (n_right + 2), 1 / (right.size - n_right + 2))
    both = np.tile(scores.reshape(-1, 1), (2, 1)), np.repeat([True, False], right.size)
    curve = LogisticRegression(C=1e6).fit(*both, sample_weight=np.concatenate([target, 1 - target]))
    slope, intercept = float(curve.coef_[0, 0]), float(curve.intercept_[0])
    # A curve that falls would turn the ranking around: there was nothing to learn.
    return (slope, intercept) if slope > 0 else (1.0, 0.0)


def _is_texts(documents: Any) -> bool:
    return isinstance(documents, Sequence) and not isinstance(documents, np.ndarray)
