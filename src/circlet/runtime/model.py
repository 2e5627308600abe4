"""A saved model at work without torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from circlet.data.dataset import is_mapped, release
from circlet.encoders import TextInput
from circlet.errors import DataError
from circlet.features.rows import Entries
from circlet.features.vectorizer import TextVectorizer
from circlet.runtime.documents import count
from circlet.runtime.network import Floats, Network, Rows
from circlet.scoring import arrays
from circlet.scoring.arrays import LARGEST, MEMORY, Found, unit
from circlet.scoring.heads import HEADS
from circlet.scoring.ranking import join
from circlet.scoring.scorers import Ensemble, Scorer
from circlet.storage.contents import Contents, read
from circlet.storage.kept_rows import Index
from circlet.storage.model import BaseModel, explained
from circlet.storage.network_spec import BIAS, LOG_SCALE, Member
from circlet.storage.tensors import Stored
from circlet.threads import in_parallel, steps, worker_count

__all__ = ["RuntimeModel"]

#: Tables of codes of up to this many numbers, 256 MB, are kept: making codes takes much longer than comparing with
#: them.
TABLE_LIMIT = 1 << 26
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
    **others
        See `circlet.storage.model.BaseModel`.

    Attributes
    ----------
    parameter_counts : dict
        Numbers of parameters: of the encoders, the heads, the losses (scales and biases), and in all.
    """

    n_labels = 0

    def __init__(
        self,
        members: list[Member],
        networks: list[Network],
        scorer: Ensemble,
        *,
        parameter_counts: dict[str, int],
        index: Index | None = None,
        **others: Any,
    ) -> None:
        super().__init__(**others)
        self.members, self.networks, self.scorer = members, networks, scorer
        self.n_labels, self.parameter_counts, self.index = scorer.n_labels, parameter_counts, index

    @classmethod
    def load(cls, folder: Path | str) -> RuntimeModel:
        """Read a model from a folder; raise `DataError` if the folder is damaged."""
        folder = Path(folder)
        with explained(folder):
            return cls.restore(folder, read(folder))

    @classmethod
    def _of(  # type: ignore[override] # each kind of model has its own options
        cls,
        path: Path,
        saved: Contents[Stored],
        members: list[Member],
        weights: dict[str, Stored],
        about: dict[str, Any],
        *,
        used: bool = True,
    ) -> RuntimeModel:
        # If not `used`, the model may have encoders that only torch can run; it then has no networks.
        only_torch = saved.encoder is not None and saved.encoder.learns
        if only_torch and used:
            raise DataError(
                f"{path.parent}: found a model with encoder {members[0].settings.encoder}, which only torch can "
                "run: pip install 'circlet[train]', then circlet predict, circlet evaluate, "
                "CircletClassifier.load or circlet.model.Model.load use it"
            )
        sparse = saved.config["sparse"]
        networks = [] if only_torch else [Network(each, weights, sparse=sparse) for each in members]
        scorers = [_scorer(member, weights, saved.config["n_labels"]) for member in members]
        scorer = Ensemble(scorers, [member.calibration for member in members])
        counts = _parameter_counts(members, weights)
        return cls(members, networks, scorer, parameter_counts=counts, index=saved.index, **about)

    def as_runtime(self) -> RuntimeModel:
        return self

    @property
    def codebook(self) -> Any:
        """Codebook of the first network; None for `fc`."""
        return self.scorers[0].codebook

    @property
    def scorers(self) -> list[Scorer]:
        """The scorer of each network."""
        return self.scorer.scorers

    def _best(self, documents: Any, k: int, *, memory: int | None, **options: Any) -> Found:
        find = partial(self.scorer.top_k, k=k, **options)
        return self._ranked(partial(self._rows, documents), count(documents), find, memory)

    def score_blocks(self, documents: Any) -> Iterator[npt.NDArray[np.float32]]:
        documents = self.checked(documents)
        size = min(BATCH, max(1, MEMORY // (12 * self.n_labels)))
        for start, end in steps(count(documents), size) if count(documents) else [(0, 0)]:
            yield self.scorer.logits(self._output(self._rows(documents, start, end)))

    def best_of_rows(self, rows: Entries | Floats, k: int) -> npt.NDArray[np.int64]:
        """Ids of the k best labels of rows that are scaled already, `(n, min(k, n_labels))`, best first."""

        def part(start: int, end: int) -> Entries | Floats:
            return rows.part(start, end) if isinstance(rows, Entries) else rows[start:end]

        n = rows.n if isinstance(rows, Entries) else len(rows)
        return self._ranked(part, n, partial(self.scorer.top_k, k=k))[0]

    def vectors(self, documents: Any) -> Iterator[Floats]:
        """What is predicted for documents, `(some documents, width)` at a time; each network's part has length 1.

        `circlet.storage.kept_rows` says what they are for.
        """
        documents = self.checked(documents)
        for start, end in steps(count(documents), BATCH):
            rows = self._rows(documents, start, end)
            parts = [unit(network.vectors(rows)) for network in self.networks]
            yield np.concatenate(parts, axis=1)

    def _ranked(self, rows: Callable[[int, int], Rows], n: int, find: Any, memory: int | None = None) -> Found:
        """The best labels of n documents: `rows` gives the rows of a range, and `find` ranks for outputs."""
        # Each thread takes some documents all the way: threads that compute a step together, or each a step of its
        # own, wait for each other at its end.
        threads = max(1, min(worker_count(), n // FEWEST))
        rounds, budget = -(-n // (BATCH * threads)), arrays.budget(memory) // threads

        def rank(start: int, end: int) -> Found:
            found: Found = find(self._output(rows(start, end)), memory=budget)
            return found

        size = -(-n // (rounds * threads)) if n else 1  # so that all threads have the same to do
        best: Found = join(in_parallel(rank, n, size)) if n else rank(0, 0)
        return best

    def _output(self, rows: Rows) -> list[Floats]:
        return [network(rows) for network in self.networks]

    def _rows(self, documents: Any, start: int, end: int) -> Rows:
        """Scaled rows of some checked documents."""
        part = documents if end - start == count(documents) else documents[start:end]
        if isinstance(self.vectorizer, TextInput):
            own: Rows = self.vectorizer.entries(part)
            return own
        if isinstance(self.vectorizer, TextVectorizer):
            return self.scaling.scale_entries(self.vectorizer.entries(part))
        if not self.sparse:
            dense: Floats = self.scaling.transform(part)
            return dense
        if is_mapped(documents):
            rows = Entries.of(documents[start:end].copy())
            release(documents)
        else:
            rows = Entries.of(part)
        return self.scaling.scale_entries(rows)


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
        bias.setflags(write=False)  # so that a codebook need not look whether they have changed
    if member.settings.codebook_name is not None:
        from circlet.codebooks import CODEBOOKS  # which not every model needs

        codebook = CODEBOOKS[member.settings.codebook_name](**member.codebook or {})
        codebook.cache = codebook.needs_table and codebook.n_labels * codebook.width <= TABLE_LIMIT
    return Scorer(codebook, n_labels, scale, bias, absolute=member.settings.absolute)


def _parameter_counts(members: list[Member], weights: dict[str, Stored]) -> dict[str, int]:
    counts = {"encoder": 0, "head": 0, "loss": 0}
    parts = {LOG_SCALE: "loss", BIAS: "loss", **dict.fromkeys(HEADS[members[0].settings.head].parts, "head")}
    for name, each in weights.items():
        _, _, own = name.removeprefix("members.").partition(".")
        counts[parts.get(own.partition(".")[0], "encoder")] += math.prod(each.shape)
    return {**counts, "total": sum(counts.values())}
