"""What a model is besides its networks, and what a `circlet.runtime.Tagger` asks of it.

There are two kinds: `circlet.runtime.RuntimeModel` computes with NumPy, and `circlet.model.Model`, which learns,
with torch.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.checks import check_ranking, check_share
from circlet.data.dataset import as_csr, is_mapped
from circlet.encoders import TextInput
from circlet.errors import CircletError, DataError
from circlet.features.rows import Scaling
from circlet.features.vectorizer import TextVectorizer
from circlet.scoring.arrays import Found
from circlet.scoring.ranking import Gain
from circlet.storage.contents import Contents, parts_of
from circlet.storage.layout import CONFIG, WEIGHTS, located
from circlet.storage.network_spec import Member, check_weights, members_of
from circlet.storage.tensors import Stored

M = TypeVar("M", bound="BaseModel")


class BaseModel(ABC):
    """Everything between a document and its ranked labels, except the networks.

    Parameters
    ----------
    scaling : Scaling
        Fitted scaling of the networks' input.
    n_features : int
    sparse : bool
    label_names : list of str or None
    label_uris : list of str or None
        URIs of the labels, if they have names as well.
    vectorizer : TextVectorizer, TextInput or None
        Turns texts into rows; None if documents are rows already.
    calibration : (slope, intercept)
        A label's probability is σ(slope · score + intercept).
    history : list of dict
        A record per epoch.
    training : dict
        Settings and counts of the training.
    threshold : float or None
        The best probability threshold on held-out rows; None if unknown.
    label_counts : int64 ndarray of shape (n_labels,) or None
        Number of documents seen with each label, including held-out ones; None if unknown.
    """

    #: Where gains are computed, if not with NumPy.
    device: Any = None

    def __init__(
        self,
        scaling: Scaling,
        *,
        n_features: int,
        sparse: bool,
        label_names: list[str] | None = None,
        vectorizer: TextVectorizer | TextInput | None = None,
        calibration: tuple[float, float] = (1.0, 0.0),
        history: list[dict[str, Any]] | None = None,
        training: dict[str, Any] | None = None,
        label_counts: npt.NDArray[np.int64] | None = None,
        threshold: float | None = None,
        label_uris: list[str] | None = None,
    ) -> None:
        self.scaling, self.n_features, self.sparse = scaling, n_features, sparse
        self.label_names, self.vectorizer, self.calibration = label_names, vectorizer, calibration
        self.history, self.training, self.label_counts = history or [], training or {}, label_counts
        self.threshold, self.label_uris = threshold, label_uris
        self._gain: tuple[Any, Any, Gain] | None = None

    @classmethod
    def restore(cls: type[M], folder: Path, saved: Contents[Stored], **options: Any) -> M:
        """Make a model from a folder's content; `load` gives better error messages.

        Options are those of the kind of model; with an `encoder`, its weights are not checked here.
        """
        config, path = saved.config, located(folder, saved.config, WEIGHTS)
        members, (weights, scaling, label_counts) = members_of(config), parts_of(path, saved.tensors, config)
        own = options.get("encoder") is not None
        check_weights(path, members, config, weights, own_encoder=own, texts=saved.encoder)
        about = {
            "scaling": scaling,
            "n_features": config["n_features"],
            "sparse": config["sparse"],
            "label_names": saved.label_names,
            "label_uris": saved.label_uris,
            "vectorizer": saved.vectorizer,
            "calibration": (float(config["calibration"][0]), float(config["calibration"][1])),
            "history": saved.history,
            "training": config["training"],
            "label_counts": label_counts,
            "threshold": config.get("threshold"),
        }
        return cls._of(path, saved, members, weights, about, **options)

    @classmethod
    @abstractmethod
    def _of(
        cls: type[M],
        path: Path,
        saved: Contents[Stored],
        members: list[Member],
        weights: dict[str, Stored],
        about: dict[str, Any],
        **options: Any,
    ) -> M:
        """Make a model of checked weights from the file `path`; `about` has the arguments of `BaseModel`."""

    @property
    @abstractmethod
    def n_labels(self) -> int:
        """Number of labels."""

    @abstractmethod
    def as_runtime(self) -> BaseModel:
        """Return the current state as a `RuntimeModel`, which explains and compares labels."""

    @abstractmethod
    def score_blocks(self, documents: Any) -> Iterator[npt.NDArray[np.float32]]:
        """Yield the scores of all labels in at least one block, `(some documents, n_labels)`."""

    def top_k(
        self,
        documents: Any,
        k: int,
        *,
        memory: int | None = None,
        allowed: npt.NDArray[np.bool_] | None = None,
        threshold: float | None = None,
        favor_rare: float = 0.0,
    ) -> Found:
        """Return ids and scores of the k best labels of each document, `(n, min(k, n_labels))`, best first.

        Parameters
        ----------
        documents : list of str, or rows
        k : int
        memory : int, optional
            Bytes that scores may take at a time; see `circlet.scoring.ranking.top_k`.
        allowed : bool ndarray of shape (n_labels,), optional
            Labels where it is False are never suggested.
        threshold : float, optional
            Labels with a lower score are left out: their id is −1 and their score −∞.
        favor_rare : float
            τ between 0 and 1: labels are ranked by p · w^τ, with a label's probability p and its inverse
            propensity w. With 0 the most probable come first; with 1 those with the highest expected PSP.
        """
        mask = None if allowed is None else np.asarray(allowed)
        check_ranking(self.n_labels, memory, mask, threshold)
        gain = self.gain(favor_rare)
        return self._best(self.checked(documents), k, memory=memory, allowed=mask, threshold=threshold, gain=gain)

    @abstractmethod
    def _best(self, documents: Any, k: int, *, memory: int | None, **options: Any) -> Found:
        """Rank labels for checked documents, with the options of `circlet.scoring.scorers.Ensemble.top_k`."""

    def gain(self, favor_rare: float) -> Gain | None:
        """Return what labels are ranked by if rare ones are favored to this degree; None for 0, by score."""
        if type(favor_rare) is float and favor_rare == 0:
            return None  # the usual case, which needs no import
        from circlet.metrics.measures import log_weights

        check_share("favor_rare", favor_rare)
        if not favor_rare:
            return None
        # Cached, because documents may come one by one, and it has an entry for each of all labels.
        made_from = (favor_rare, self.calibration, self.documents_seen, self.n_labels, self.device)
        known = self._gain
        if known is None or known[0] is not self.label_counts or known[1] != made_from:
            weights = log_weights(self.label_counts, self.documents_seen, self.n_labels, favor_rare)
            known = self._gain = self.label_counts, made_from, self._gain_of(weights)
        return known[2]

    def _gain_of(self, log_weights: npt.NDArray[np.float64]) -> Gain:
        return Gain(*self.calibration, log_weights)

    @property
    def documents_seen(self) -> int:
        """Number of documents that the model was trained or validated on."""
        return int(self.training.get("documents", 0)) + int(self.training.get("held_out", 0))

    def probabilities(self, scores: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Convert scores to calibrated probabilities."""
        slope, intercept = self.calibration
        logits = slope * np.asarray(scores, dtype=np.float64) + intercept
        chances: npt.NDArray[np.float64] = np.exp(-np.logaddexp(0, -logits))
        return chances.astype(np.float32)

    def least_score(self, probability: float) -> float | None:
        """Return a lower bound on the scores of labels with at least this probability; None for 0."""
        # A little lower, because `probabilities` are rounded to single precision.
        least = float(probability) * (1 - 2**-23)
        slope, intercept = self.calibration
        return (math.log(least / (1 - least)) - intercept) / slope if least else None

    def checked(self, documents: Any) -> Any:
        """Check that documents are of the model's kind: a list of texts, or sparse or dense rows."""
        texts = isinstance(documents, Sequence) and not isinstance(documents, np.ndarray)
        if self.vectorizer is not None:
            if not texts:
                raise DataError("this model was trained on texts; wanted a list of texts, got feature rows")
            return documents
        if texts:
            raise DataError("this model was trained on feature rows; wanted rows, got texts")
        if documents.ndim != 2 or documents.shape[1] != self.n_features:
            raise DataError(
                f"found rows of shape {tuple(documents.shape)}; this model wants {self.n_features} features"
            )
        if sp.issparse(documents):
            documents = as_csr(documents, "the rows")
        if (sp.issparse(documents) or is_mapped(documents)) != self.sparse:
            return sp.csr_matrix(documents) if self.sparse else documents.toarray()
        return documents


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn the errors of a damaged folder into a `DataError` that names the file."""
    path = folder / CONFIG
    try:
        yield
    except CircletError as error:
        known = str(error).startswith(str(folder))
        raise DataError(str(error) if known else f"{path}: {error}") from error
    # Unknown settings, or sizes that do not fit into memory.
    except (TypeError, RuntimeError, MemoryError, OverflowError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path}: found a damaged configuration ({reason})") from error
