"""A trained tagger: everything between a document and its ranked labels, in one object."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import nn

from circlet.data.mapped import column_counts
from circlet.errors import CircletError, DataError
from circlet.features.scaling import Scaling
from circlet.features.vectorizer import TextVectorizer
from circlet.folder.config import FORMAT
from circlet.folder.contents import Contents, read
from circlet.folder.layout import CONFIG, WEIGHTS
from circlet.folder.precision import Stored
from circlet.model.calibration import calibrate
from circlet.model.folder import as_tensors, write
from circlet.model.rarity import check_favor_rare, log_weights
from circlet.network import Ensemble, Network, inference
from circlet.network.gain import Gain
from circlet.settings import NetworkSettings

__all__ = ["Model"]

#: The prefix of the scaling's arrays among the tensors of a folder.
ARRAYS = "features."
#: The name of the label counts among them: ids and counts of the labels that occur.
COUNTS = "label_counts"


class Model:
    """A network, or several that are used as one, and everything that tagging documents needs.

    Parameters
    ----------
    network : Network or Ensemble
        What scores labels; it becomes the attribute `ranker`.
    scaling : Scaling
        Fitted; it is applied to rows before the network sees them.
    n_features : int
    sparse : bool
    label_names : list of str or None
    vectorizer : TextVectorizer or None
        Turns texts into rows; None if documents are rows already.
    calibration : (slope, intercept)
        A label's probability is σ(slope · score + intercept).
    history : list of dict
        A record per epoch.
    training : dict
        How it was trained.
    label_counts : int64 ndarray of shape (n_labels,) or None
        How many of all documents seen have each label, held-out ones included; None if unknown.
    """

    def __init__(
        self,
        network: Network | Ensemble,
        scaling: Scaling,
        *,
        n_features: int,
        sparse: bool,
        label_names: list[str] | None = None,
        vectorizer: TextVectorizer | None = None,
        calibration: tuple[float, float] = (1.0, 0.0),
        history: list[dict[str, Any]] | None = None,
        training: dict[str, Any] | None = None,
        label_counts: npt.NDArray[np.int64] | None = None,
    ) -> None:
        self.ranker, self.scaling = network, scaling
        self.n_features, self.sparse = n_features, sparse
        self.label_names, self.vectorizer, self.calibration = label_names, vectorizer, calibration
        self.history, self.training, self.label_counts = history or [], training or {}, label_counts
        self._gain: tuple[Any, Any, Gain] | None = None

    @property
    def networks(self) -> list[Network]:
        """Its networks, mostly one."""
        return self.ranker.networks if isinstance(self.ranker, Ensemble) else [self.ranker]

    @property
    def network(self) -> Network:
        """Its only or first network; others differ from it in seed, codes and weights."""
        return self.networks[0]

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return self.ranker.n_labels

    @property
    def device(self) -> torch.device:
        """Where the networks are."""
        return self.ranker.device

    @property
    def documents_seen(self) -> int:
        """How many documents it was trained or validated on."""
        return int(self.training.get("documents", 0)) + int(self.training.get("held_out", 0))

    def count(self, Y: sp.csr_matrix, *, held_out: bool = False) -> None:
        """Add documents with these labels to the documents seen."""
        name = "held_out" if held_out else "documents"
        self.training[name] = int(self.training.get(name, 0)) + Y.shape[0]
        if self.label_counts is not None:
            counts = column_counts(Y)
            counts[: len(self.label_counts)] += self.label_counts
            self.label_counts = counts

    def calibrate(self, rows: Any, Y: sp.csr_matrix) -> None:
        """Fit the curve from scores to probabilities on scaled rows and their labels.

        Each of several networks gets its own curve first. Their mean needs another one: together they know more
        than each of them, but the mean of their probabilities is no more certain than each of them is.
        """
        if isinstance(self.ranker, Ensemble):
            self.ranker.scorer.calibrations = [calibrate(network, rows, Y) for network in self.networks]
        self.calibration = calibrate(self.ranker, rows, Y)

    def set_curve(self, member: int, curve: tuple[float, float]) -> None:
        """Set the curve from the scores of one network to probabilities.

        The mean of several networks' probabilities is then taken as it is, since no rows are left to fit another
        curve on.
        """
        if isinstance(self.ranker, Ensemble):
            self.ranker.scorer.calibrations[member] = curve
        else:
            self.calibration = curve

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
        return self.scaling.transform(documents)

    def top_k(
        self,
        documents: Any,
        k: int,
        *,
        memory: int | None = None,
        allowed: npt.NDArray[np.bool_] | None = None,
        threshold: float | None = None,
        favor_rare: float = 0.0,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Ids and scores of the k best labels of each document, `(n, min(k, n_labels))`, best first.

        Parameters
        ----------
        documents : list of str, or rows
        k : int
        memory : int, optional
            Bytes that scores may take at a time; see `circlet.codebooks.decoding.top_k`.
        allowed : bool ndarray of shape (n_labels,), optional
            Labels where it is False are never suggested.
        threshold : float, optional
            Labels with a lower score are left out: their id is −1 and their score −∞.
        favor_rare : float
            τ between 0 and 1: labels are ranked by p · w^τ, with a label's probability p and its inverse
            propensity w. With 0 the most probable come first; with 1 those with the highest expected PSP.
        """
        gain, rows = self.gain(favor_rare), self.rows(documents)
        return inference.top_k(
            self.ranker, rows, k, memory=memory, allowed=allowed, threshold=threshold, gain=gain
        )

    def gain(self, favor_rare: float) -> Gain | None:
        """What labels are ranked by if rare ones are favored to this degree; None for 0, which is by score."""
        check_favor_rare(favor_rare)
        if not favor_rare:
            return None
        # It is kept, because documents may come one by one, and it has an entry for each of all labels.
        made_from = (favor_rare, self.calibration, self.documents_seen, self.n_labels, self.device)
        if self._gain is None or self._gain[0] is not self.label_counts or self._gain[1] != made_from:
            weights = log_weights(self.label_counts, self.documents_seen, self.n_labels, favor_rare)
            gain = Gain(*self.calibration, torch.from_numpy(weights).to(self.device))
            self._gain = self.label_counts, made_from, gain
        return self._gain[2]

    def score_blocks(self, documents: Any) -> Iterator[npt.NDArray[np.float32]]:
        """Scores of all labels, `(some documents, n_labels)` at a time; there is at least one block."""
        return inference.score_blocks(self.ranker, self.rows(documents))

    def probabilities(self, scores: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Calibrated probabilities of scores."""
        slope, intercept = self.calibration
        logits = torch.from_numpy(slope * np.asarray(scores, dtype=np.float64) + intercept)
        return torch.sigmoid(logits).float().numpy()

    def least_score(self, probability: float) -> float | None:
        """A score that no label of at least this probability is below; None for 0, which has no such score."""
        # A little lower, because `probabilities` are rounded to single precision.
        least = float(probability) * (1 - 2**-23)
        slope, intercept = self.calibration
        return (math.log(least / (1 - least)) - intercept) / slope if least else None

    def save(self, folder: Path | str, store: str = "float32") -> None:
        """Write the model to a folder, its weights stored as `circlet.folder.precision.STORES` says."""
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.ranker.weights().items()}
        tensors |= {ARRAYS + name: torch.from_numpy(array) for name, array in self.scaling.arrays.items()}
        if self.label_counts is not None:
            tensors[COUNTS] = _packed_counts(self.label_counts)
        config = {
            "network": self.network.settings.as_dict(),
            "n_features": self.n_features,
            "n_labels": self.n_labels,
            "sparse": self.sparse,
            **self._codes(),
            "scaling": self.scaling.kind,
            "calibration": list(self.calibration),
            "training": self.training,
        }
        contents = Contents(config, tensors, self.history, self.label_names, self.vectorizer)
        write(Path(folder), contents, store)

    def _codes(self) -> dict[str, Any]:
        """What the configuration says about codes, and what else differs between several networks."""
        books = [network.codebook for network in self.networks]
        states = [None if book is None else book.state() for book in books]
        if not isinstance(self.ranker, Ensemble):
            return {"codebook": states[0]}
        each = zip(self.networks, states, self.ranker.scorer.calibrations, strict=True)
        members = [
            {"seed": network.settings.seed, "codebook": state, "calibration": list(curve)}
            for network, state, curve in each
        ]
        return {"members": members}

    @classmethod
    def load(
        cls, folder: Path | str, device: torch.device | None = None, encoder: nn.Module | None = None
    ) -> Model:
        """Read a model from a folder; if anything is wrong with it, a `DataError` says what.

        A model that was trained with a custom encoder needs one of the same shape to load the weights into.
        """
        folder = Path(folder)
        config = folder / CONFIG
        try:
            return cls._restore(folder, read(folder), device or torch.device("cpu"), encoder)
        except CircletError as error:
            known = str(error).startswith(str(folder))
            raise DataError(str(error) if known else f"{config}: {error}") from error
        except (TypeError, RuntimeError) as error:  # unknown settings, or sizes that do not fit into memory
            reason = str(error).splitlines()[0]
            raise DataError(f"{config}: found a damaged configuration ({reason})") from error

    @classmethod
    def _restore(
        cls, folder: Path, saved: Contents[Stored], device: torch.device, encoder: nn.Module | None
    ) -> Model:
        config, tensors, weights = saved.config, as_tensors(saved.tensors), folder / WEIGHTS
        _check_features(weights, tensors, config["n_features"])
        network = _blank(config, encoder)
        arrays = {name: tensors.pop(name) for name in list(tensors) if name.startswith(ARRAYS)}
        counts = tensors.pop(COUNTS, None)  # older folders have none
        _check_shapes(weights, network.weights(), tensors)
        network.load_weights(tensors)
        slope, intercept = config["calibration"]
        return cls(
            network.to(device),
            Scaling.restore(
                config["scaling"],
                {name.removeprefix(ARRAYS): tensor.numpy() for name, tensor in arrays.items()},
                config["n_features"],
            ),
            n_features=config["n_features"],
            sparse=config["sparse"],
            label_names=saved.label_names,
            vectorizer=saved.vectorizer,
            calibration=(float(slope), float(intercept)),
            history=saved.history,
            training=config["training"],
            label_counts=None if counts is None else _unpacked_counts(weights, counts, config["n_labels"]),
        )


def _blank(config: dict[str, Any], encoder: nn.Module | None) -> Network | Ensemble:
    """The network, or the networks, that a configuration describes, without their weights."""
    settings = NetworkSettings(**config["network"])

    def make(settings: NetworkSettings, codebook: dict[str, Any] | None, encoder: nn.Module | None) -> Network:
        _check_codebook(settings, config["n_labels"], codebook)
        sizes = config["n_features"], config["n_labels"]
        return Network(settings, *sizes, sparse=config["sparse"], encoder=encoder, codebook=codebook, blank=True)

    if config["format"] == FORMAT:
        return make(settings, config["codebook"], encoder)
    members = config["members"]
    networks = [
        make(replace(settings, seed=each["seed"]), each["codebook"], copy.deepcopy(encoder)) for each in members
    ]
    curves = (each["calibration"] for each in members)
    return Ensemble(networks, [(float(slope), float(intercept)) for slope, intercept in curves])


def _check_codebook(settings: NetworkSettings, n_labels: int, state: dict[str, Any] | None) -> None:
    """Raise `DataError` if the codebook's labels or dimension differ from the network's."""
    wanted = {"n_labels": n_labels, "dim": settings.dim}
    found = state and {name: state.get(name) for name in wanted}
    if found != (None if settings.codes is None else wanted):
        raise DataError(f"found the codebook {state}; wanted one that fits {wanted} and head {settings.head}")


def _check_features(path: Path, tensors: dict[str, torch.Tensor], n_features: int) -> None:
    """Raise `DataError` for a wrong number of features, before a network is made that may not fit into memory."""
    for name, first in tensors.items():
        if name.endswith("encoder.layers.0.weight") and n_features not in first.shape:
            shape = tuple(first.shape)
            raise DataError(f"{path}: found a first layer of shape {shape}; wanted {n_features} features")


def _check_shapes(path: Path, wanted: dict[str, torch.Tensor], found: dict[str, torch.Tensor]) -> None:
    """Raise `DataError` for tensors whose names, shapes or types are not the network's."""
    for name in sorted({*wanted, *found}):
        shapes = [tuple(part[name].shape) if name in part else None for part in (found, wanted)]
        if shapes[0] != shapes[1]:
            raise DataError(f"{path}: found {name} of shape {shapes[0]}; wanted {shapes[1]}")
        types = [str(part[name].dtype).removeprefix("torch.") for part in (found, wanted)]
        if types[0] != types[1]:
            raise DataError(f"{path}: found {name} in {types[0]}; wanted {types[1]}")


def _packed_counts(counts: npt.NDArray[np.int64]) -> torch.Tensor:
    """Ids and counts of the labels that occur, `(2, m)`: the folder does not grow with labels never seen."""
    ids = np.flatnonzero(counts)
    return torch.from_numpy(np.stack([ids, counts[ids]]).astype(np.int32))


def _unpacked_counts(path: Path, packed: torch.Tensor, n_labels: int) -> npt.NDArray[np.int64]:
    fits = packed.dtype == torch.int32 and packed.dim() == 2 and len(packed) == 2
    ids, values = packed.numpy().astype(np.int64) if fits else (np.array([-1]), np.array([0]))
    if (ids < 0).any() or (ids >= n_labels).any() or (np.diff(ids) <= 0).any() or (values < 1).any():
        raise DataError(f"{path}: found damaged {COUNTS}; wanted ascending ids below {n_labels} and their counts")
    counts = np.zeros(n_labels, dtype=np.int64)
    counts[ids] = values
    return counts


def _is_texts(documents: Any) -> bool:
    return isinstance(documents, Sequence) and not isinstance(documents, np.ndarray)
