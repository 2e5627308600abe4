"""Paired comparisons of two models, document by document, instead of counts of metrics that go together.

A cell keeps which of the first 20 labels of each test document were right, one bit each. The difference of two
models in P@k is then a mean over documents, and a bootstrap over documents says how sure it is: documents are
drawn with replacement, and the difference is computed again. Both models see the same documents, so what makes a
document hard for both cancels.

Runs with several seeds are averaged document by document first. The interval covers the choice of test documents;
it does not cover seeds, whose deviation the tables show.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

__all__ = ["DEPTH", "Difference", "compare", "pack_hits", "right", "unpack_hits"]

#: The number of labels of each document whose outcome is kept.
DEPTH = 20
#: Samples of the bootstrap, and the share of them that an interval holds.
SAMPLES, LEVEL = 2000, 0.95
#: Samples are drawn for this many documents at a time, to bound memory.
_CHUNK = 4_000_000

Hits = npt.NDArray[np.bool_]


def right(truth: sp.csr_matrix, ranked: npt.NDArray[np.int64]) -> Hits:
    """Which of the first labels of each document are right, `(n, DEPTH)`; `ranked` may have −1 for no label."""
    top = ranked[:, :DEPTH]
    hits = np.zeros((len(ranked), DEPTH), dtype=np.bool_)
    rows = np.broadcast_to(np.arange(len(top))[:, None], top.shape)
    found = np.asarray(truth[rows.ravel(), np.maximum(top, 0).ravel()]).reshape(top.shape)
    hits[:, : top.shape[1]] = (found != 0) & (top >= 0)
    return hits


def pack_hits(hits: Hits) -> str:
    """Outcomes as text for JSON: bits, deflated, in base 64."""
    return base64.b64encode(zlib.compress(np.packbits(hits).tobytes(), 9)).decode("ascii")


def unpack_hits(packed: str) -> Hits:
    """What `pack_hits` packed."""
    bits = np.frombuffer(zlib.decompress(base64.b64decode(packed)), dtype=np.uint8)
    flat = np.unpackbits(bits)
    return flat[: len(flat) // DEPTH * DEPTH].reshape(-1, DEPTH).astype(np.bool_)


@dataclass(frozen=True)
class Difference:
    """By how many points of P@k one model is ahead of another, with an interval."""

    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Which one is ahead, if the interval says so."""
        return "ahead" if self.low > 0 else "behind" if self.high < 0 else "not told apart"

    def __str__(self) -> str:
        return f"{self.mean:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


def compare(
    ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]], depths: Sequence[int], seed: int = 0
) -> dict[int, Difference]:
    """By how much the runs of one model are ahead of those of another in P@k; empty without outcomes of both."""
    first, second = ([unpack_hits(cell["hits"]) for cell in cells if "hits" in cell] for cells in (ours, theirs))
    if not first or not second or len({len(hits) for hits in (*first, *second)}) != 1:
        return {}
    gains = np.stack([_precisions(first, k) - _precisions(second, k) for k in depths])
    sampled = _bootstrap(gains, seed)
    tail = 50 * (1 - LEVEL)
    low, high = np.percentile(sampled, [tail, 100 - tail], axis=1)
    means = gains.mean(axis=1)
    return {k: Difference(float(means[i]), float(low[i]), float(high[i])) for i, k in enumerate(depths)}


def _precisions(runs: Sequence[Hits], k: int) -> npt.NDArray[np.float64]:
    """P@k of each document in percent, mean of the runs."""
    totals: npt.NDArray[np.float64] = np.mean([hits[:, :k].sum(axis=1) for hits in runs], axis=0)
    return totals * (100 / k)


def _bootstrap(values: npt.NDArray[np.float64], seed: int) -> npt.NDArray[np.float64]:
    """Means of documents that were drawn with replacement, `(rows of values, SAMPLES)`."""
    random, n = np.random.default_rng(seed), values.shape[1]
    size, made = max(1, _CHUNK // n), []
    for start in range(0, SAMPLES, size):
        drawn = random.integers(0, n, size=(min(size, SAMPLES - start), n))
        made.append(np.stack([row[drawn].mean(axis=1) for row in values]))
    return np.concatenate(made, axis=1)
