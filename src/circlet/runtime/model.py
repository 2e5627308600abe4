"""Apply a saved model without torch, with the same methods as `circlet.model.Model`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.checks import check_ranking, check_share
from circlet.data.dataset import as_csr, is_mapped, release
from circlet.errors import DataError
from circlet.features.rows import Entries, Scaling
from circlet.features.tokenizer import Tokenizer
from circlet.features.vectorizer import TextVectorizer
from circlet.runtime.codebooks import CODEBOOKS, Codebook
from circlet.runtime.documents import count
from circlet.runtime.network import LARGEST, Floats, Network
from circlet.scoring.arrays import Found, unit
from circlet.scoring.heads import HEADS
from circlet.scoring.ranking import MEMORY, Gain, budget_of, together, top_k_by_gain
from circlet.scoring.scorers import Ensemble, Scorer
from circlet.storage.contents import Contents, explained, parts_of, read
from circlet.storage.kept_rows import Index
from circlet.storage.layout import WEIGHTS, located
from circlet.storage.network_spec import BIAS, LOG_SCALE, Member, check_weights, members_of
from circlet.storage.tensors import Stored
from circlet.threads import in_parallel, steps, worker_count

__all__ = [
    "BaseModel",
    "RuntimeModel",
]


class BaseModel:
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
    vectorizer : TextVectorizer, Tokenizer or None
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

    def __init__(
        self,
        scaling: Scaling,
        *,
        n_features: int,
        sparse: bool,
        label_names: list[str] | None = None,
        vectorizer: TextVectorizer | Tokenizer | None = None,
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
        if self.vectorizer is not None:
            if not _is_texts(documents):
                raise DataError("this model was trained on texts; wanted a list of texts, got feature rows")
            return documents
        if _is_texts(documents):
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


def _is_texts(documents: Any) -> bool:
    return isinstance(documents, Sequence) and not isinstance(documents, np.ndarray)


#: Documents at a time, and the fewest that are worth a separate thread.
BATCH, FEWEST = 512, 64


class RuntimeModel(BaseModel):
    """One or more networks, and everything else that tagging documents needs; read-only.

    Several threads can use it at once.

    Parameters
    ----------
    members : list of Member
    networks : list of Network
        One for each member.
    scorer : Ensemble
        Turns the outputs of all networks into scores.
    index : Index or None
        Vectors of the training documents.
    scaling : Scaling
        Fitted scaling of the networks' input.
    **about
        See `BaseModel`.

    Attributes
    ----------
    parameter_counts : dict
        Numbers of parameters: of the encoders, the heads, the losses (scales and biases), and in all.
    """

    def __init__(
        self,
        members: list[Member],
        networks: list[Network],
        scorer: Ensemble,
        *,
        parameter_counts: dict[str, int],
        index: Index | None = None,
        **about: Any,
    ) -> None:
        super().__init__(**about)
        self.members, self.networks, self.scorer = members, networks, scorer
        self.parameter_counts, self.n_labels, self.index = parameter_counts, scorer.n_labels, index
        self._gain: tuple[float, Gain] | None = None

    @classmethod
    def load(cls, folder: Path | str) -> RuntimeModel:
        """Read a model from a folder; raise `DataError` if the folder is damaged."""
        folder = Path(folder)
        with explained(folder):
            return cls.restore(folder, read(folder))

    @classmethod
    def restore(cls, folder: Path, saved: Contents[Stored], *, used: bool = True) -> RuntimeModel:
        """Make a model from a folder's content; `load` gives better error messages.

        If not `used`, the model may have encoders that only torch can run; it then has no networks.
        """
        config, path = saved.config, located(folder, saved.config, WEIGHTS)
        members, parts = members_of(config), parts_of(path, saved.tensors, config)
        check_weights(path, members, config, parts.weights)
        read = members[0].settings.reads_texts
        if read and used:
            raise DataError(
                f"{folder}: found a model with encoder {members[0].settings.encoder}, which only torch can run: "
                "pip install 'circlet[train]', then circlet predict, circlet evaluate, CircletClassifier.load or "
                "circlet.model.Model.load use it"
            )
        networks = [] if read else [Network(each, parts.weights, sparse=config["sparse"]) for each in members]
        scorers = [_scorer(member, parts.weights, config["n_labels"]) for member in members]
        slope, intercept = config["calibration"]
        return cls(
            members,
            networks,
            Ensemble(scorers, [member.calibration for member in members]),
            parameter_counts=_parameter_counts(members, parts.weights),
            index=saved.index,
            scaling=parts.scaling,
            n_features=config["n_features"],
            sparse=config["sparse"],
            label_names=saved.label_names,
            label_uris=saved.label_uris,
            vectorizer=saved.vectorizer,
            calibration=(float(slope), float(intercept)),
            history=saved.history,
            training=config["training"],
            label_counts=parts.label_counts,
            threshold=config.get("threshold"),
        )

    def as_runtime(self) -> RuntimeModel:
        """Itself."""
        return self

    @property
    def codebook(self) -> Codebook | None:
        """Codebook of the first network; None for `fc`."""
        book: Codebook | None = self.scorers[0].codebook
        return book

    @property
    def scorers(self) -> list[Scorer]:
        """The scorer of each network."""
        return self.scorer.scorers

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
            Bytes that scores may take at a time, 64 MB by default; tables that do not depend on the documents are
            extra. If it is less than a row needs, rows are processed one by one.
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
        documents = self.checked(documents)

        def rank(output: list[Floats], budget: int) -> Found:
            if gain is None:
                return self.scorer.top_k(output, k, memory=budget, allowed=mask, threshold=threshold)
            found: Found = top_k_by_gain(
                self.scorer, output, k, gain, memory=budget, allowed=mask, threshold=threshold
            )
            return found

        return self._ranked(lambda start, end: self._rows(documents, start, end), count(documents), rank, memory)

    def gain(self, favor_rare: float) -> Gain | None:
        """What labels are ranked by if rare ones are favored to this degree; None for 0, which is by score."""
        if type(favor_rare) is float and favor_rare == 0:
            return None  # which is the usual case, and should not have to import anything
        from circlet.metrics.measures import log_weights

        check_share("favor_rare", favor_rare)
        if not favor_rare:
            return None
        # It is kept, because documents may come one by one, and it has an entry for each of all labels.
        known = self._gain
        if known is None or known[0] != favor_rare:
            weights = log_weights(self.label_counts, self.documents_seen, self.n_labels, favor_rare)
            known = self._gain = float(favor_rare), Gain(*self.calibration, weights)
        return known[1]

    def score_blocks(self, documents: Any) -> Iterator[npt.NDArray[np.float32]]:
        """Scores of all labels, `(some documents, n_labels)` at a time; there is at least one block."""
        documents = self.checked(documents)
        size = min(BATCH, max(1, MEMORY // (12 * self.n_labels)))
        for start, end in steps(count(documents), size) if count(documents) else [(0, 0)]:
            yield self.scorer.logits(self._output(self._rows(documents, start, end)))

    def best_of_rows(self, rows: Entries | Floats, k: int) -> npt.NDArray[np.int64]:
        """Ids of the k best labels of rows that are scaled already, `(n, min(k, n_labels))`, best first."""

        def part(start: int, end: int) -> Entries | Floats:
            return rows.part(start, end) if isinstance(rows, Entries) else rows[start:end]

        n = rows.n if isinstance(rows, Entries) else len(rows)
        return self._ranked(part, n, lambda output, budget: self.scorer.top_k(output, k, memory=budget))[0]

    def vectors(self, documents: Any) -> Iterator[Floats]:
        """What is predicted for documents, `(some documents, width)` at a time; each network's part has length 1.

        `circlet.storage.kept_rows` says what they are for.
        """
        documents = self.checked(documents)
        for start, end in steps(count(documents), BATCH):
            rows = self._rows(documents, start, end)
            parts = [unit(network.vectors(rows)) for network in self.networks]
            yield np.concatenate(parts, axis=1)

    def _ranked(
        self,
        rows: Callable[[int, int], Entries | Floats],
        n: int,
        rank: Callable[[list[Floats], int], Found],
        memory: int | None = None,
    ) -> Found:
        """The best labels of n documents, by functions from a range to their rows and from outputs to labels."""
        # Each thread takes some documents all the way: threads that compute a step together, or each a step of its
        # own, wait for each other at its end.
        threads = max(1, min(worker_count(), n // FEWEST))
        rounds, budget = -(-n // (BATCH * threads)), budget_of(memory) // threads
        if not n:
            return rank(self._output(rows(0, 0)), budget)
        size = -(-n // (rounds * threads))  # so that all threads have the same to do
        found: Found = together(
            in_parallel(lambda start, end: rank(self._output(rows(start, end)), budget), n, size)
        )
        return found

    def _output(self, rows: Entries | Floats) -> list[Floats]:
        return [network(rows) for network in self.networks]

    def _rows(self, documents: Any, start: int, end: int) -> Entries | Floats:
        """Scaled rows of some checked documents."""
        part = documents if end - start == count(documents) else documents[start:end]
        if isinstance(self.vectorizer, TextVectorizer):
            return self.scaling.scaled(self.vectorizer.entries(part))
        if not self.sparse:
            dense: Floats = self.scaling.transform(part)
            return dense
        if is_mapped(documents):
            rows = Entries.of(documents[start:end].copy())
            release(documents)
        else:
            rows = Entries.of(part)
        return self.scaling.scaled(rows)


def _scorer(member: Member, weights: dict[str, Stored], n_labels: int) -> Scorer:
    learned, scale, bias, codebook = member.settings.learned, 1.0, None, None
    if learned.scale:
        name = f"{member.prefix}{LOG_SCALE}"
        logarithm = float(weights[name].read())
        if not abs(logarithm) < math.log(LARGEST):
            raise DataError(f"found {logarithm} in {name}; wanted a scale between {1 / LARGEST:g} and {LARGEST:g}")
        scale = math.exp(logarithm)
    if learned.bias:
        bias = weights[f"{member.prefix}{BIAS}"].read()[:n_labels].copy()
        if not np.abs(bias).max(initial=0) < LARGEST:
            raise DataError(f"found a number in {member.prefix}{BIAS} that is not below {LARGEST:g}")
    if member.settings.codebook_name is not None:
        codebook = CODEBOOKS[member.settings.codebook_name](**member.codebook or {})
    return Scorer(codebook, n_labels, scale, bias, absolute=member.settings.absolute)


def _parameter_counts(members: list[Member], weights: dict[str, Stored]) -> dict[str, int]:
    counts = {"encoder": 0, "head": 0, "loss": 0}
    parts = {LOG_SCALE: "loss", BIAS: "loss", **dict.fromkeys(HEADS[members[0].settings.head].parts, "head")}
    for name, each in weights.items():
        _, _, own = name.removeprefix("members.").partition(".")
        counts[parts.get(own.partition(".")[0], "encoder")] += math.prod(each.shape)
    return {**counts, "total": sum(counts.values())}
