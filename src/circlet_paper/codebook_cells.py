"""Cells that measure codebooks alone: how many labels their codes hold, and what scoring with them costs."""

from __future__ import annotations

import json
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from circlet.algebra import circular
from circlet.codebooks import Codebook, IndependentCodebook, SpectralCodebook
from circlet_paper.cells import Result, Workplace

if TYPE_CHECKING:
    from circlet.training import Reporter

#: Number of labels of a codebook whose capacity is measured, as in the paper's retrieval experiment.
N_LABELS = 1000
STORED = (10, 25, 50)
#: Distance between neighboring ids in a label set; None for random sets.
SETS: dict[str, int | None] = {"random ids": None, "consecutive ids": 1, "every 7th id": 7}
#: From this percentage on, everything counts as retrieved: two codebooks above it can't be told apart.
FULL = 99.5
#: Dimension, kind of label sets, k, percentage of one codebook, percentage of the other.
Comparison = tuple[int, str, int, float, float]
#: Size in bytes of the largest table of codes that scoring is measured with.
TABLE_BYTES = 10**9
#: Seconds to spend on one number of labels, once every codebook has had the least number of rounds.
ENOUGH_SECONDS, LEAST_ROUNDS, MOST_ROUNDS = 10.0, 3, 25
#: Seconds that a codebook gets in a round, for as many calls as fit.
TURN_SECONDS = 0.01


class InOrder(SpectralCodebook):
    """A spectral codebook whose slots are the ids themselves, to show what permuting the slots is for."""

    def slots(self, ids: Tensor) -> Tensor:
        return self._checked(ids)


def capacity_books(dim: int, seed: int) -> dict[str, Codebook]:
    """The codebooks whose capacity is compared, all with the same dimension and seed."""
    independent = partial(IndependentCodebook, N_LABELS, dim, seed, cache=True)
    spectral = partial(SpectralCodebook, N_LABELS, dim, seed, cache=True)
    least = max(N_LABELS, 2 * (dim + 1))
    return {
        "independent": independent(),
        "four-phase": independent(phases=4),
        "two-phase": independent(phases=2),
        "spectral": spectral(length=least),
        "spectral-default": spectral(),
        "spectral-4n": spectral(length=max(4 * N_LABELS, least)),
        "spectral-16d": spectral(length=max(16 * dim, least)),
        "in-order": InOrder(N_LABELS, dim, seed, length=least, cache=True),
    }


def label_sets(kind: str, trials: int, k: int, generator: torch.Generator) -> Tensor:
    """Sets of k different labels, `(trials, k)`."""
    step = SETS[kind]
    if step is None:
        return torch.rand(trials, N_LABELS, generator=generator).argsort(-1)[:, :k]
    first = torch.randint(N_LABELS - step * (k - 1), (trials, 1), generator=generator)
    return first + step * torch.arange(k)


def retrieved(book: Codebook, sets: Tensor, generator: torch.Generator) -> float:
    """Percentage of the stored labels among the top k; each row of `sets`, `(trials, k)`, is superposed."""
    trials, k = sets.shape
    sums = book.superpose(sets.flatten(), torch.arange(0, trials * k, k))
    # The paper's superposition keeps only the angles of the sum.
    scores = book.scores(circular.pack(circular.unpack(sums)))
    # The scores of two-phase codes are multiples of 1 / d and often equal: break ties at random.
    scores = scores + 1e-6 * torch.rand(scores.shape, generator=generator)
    top = scores.topk(k).indices
    return 100 * (top[:, :, None] == sets[:, None, :]).any(-1).double().mean().item()


@dataclass(frozen=True)
class CapacityCell:
    """Store label sets with every codebook of one dimension and read them back.

    Parameters
    ----------
    dim, seed : int
    books : int
        Number of codebooks of each kind, with different seeds. More than one, because all label sets with the same
        step look alike to a codebook whose slots are in order.
    trials : int
        Number of label sets of each kind and size for each codebook.
    quick : bool
        Whether it belongs to a quick run.
    """

    dim: int
    seed: int
    books: int
    trials: int
    quick: bool = False

    @property
    def name(self) -> str:
        return f"{'quick-' if self.quick else ''}codebooks/capacity-d{self.dim}-seed{self.seed}"

    def about(self) -> Result:
        return {
            "measures": "capacity",
            "labels": N_LABELS,
            "dim": self.dim,
            "sets": list(SETS),
            "stored": list(STORED),
            "books": self.books,
            "trials": self.trials,
            "seed": self.seed,
        }

    def missing(self, workplace: Workplace) -> str | None:
        return None

    def measure(self, workplace: Workplace, reporter: Reporter | None) -> Result:
        found: dict[tuple[str, str, int], list[float]] = defaultdict(list)
        lengths: dict[str, int] = {}
        for number in range(self.books):
            seed = int(np.random.SeedSequence([self.seed, self.dim, number]).generate_state(1)[0])
            generator = torch.Generator().manual_seed(seed)
            # The same sets for every codebook, so that only the codes differ.
            sets = {(kind, k): label_sets(kind, self.trials, k, generator) for kind in SETS for k in STORED}
            for name, book in capacity_books(self.dim, seed).items():
                if isinstance(book, SpectralCodebook):
                    lengths[name] = book.length
                for (kind, k), ids in sets.items():
                    found[name, kind, k].append(retrieved(book, ids, generator))
        percent: Result = {}
        for (name, kind, k), values in found.items():
            percent.setdefault(name, {}).setdefault(kind, {})[str(k)] = round(statistics.fmean(values), 3)
        return {"unit": "percentage of the k stored labels among the top k", "retrieved": percent, "M": lengths}


class Capacity:
    """The numbers of stored capacity cells.

    Parameters
    ----------
    cells : sequence of dict
        As `CapacityCell` measures them.
    """

    def __init__(self, cells: Sequence[Result]) -> None:
        self.cells = cells
        self.dims: list[int] = sorted({cell["about"]["dim"] for cell in self.cells})

    def values(self, book: str, dim: int, kind: str, k: int) -> list[float]:
        """Percentages retrieved, one per seed."""
        these = [cell for cell in self.cells if cell["about"]["dim"] == dim]
        return [float(cell["retrieved"][book][kind][str(k)]) for cell in these]

    def mean(self, book: str, dim: int, kind: str, k: int) -> float:
        """Their mean."""
        return statistics.fmean(self.values(book, dim, kind, k))

    def sd(self, book: str, dim: int, kind: str, k: int) -> float | None:
        """Their standard deviation; None for a single seed."""
        values = self.values(book, dim, kind, k)
        return statistics.stdev(values) if len(values) > 1 else None

    def length(self, book: str, dim: int) -> int | None:
        """M of a spectral codebook."""
        length: int | None = next(c for c in self.cells if c["about"]["dim"] == dim)["M"].get(book)
        return length

    def pairs(self, book: str, other: str, kinds: Sequence[str]) -> Iterator[Comparison]:
        """(dim, kind, k, mean of one, mean of the other) unless both retrieve everything."""
        for dim, kind, k in ((dim, kind, k) for dim in self.dims for kind in kinds for k in STORED):
            both = self.mean(book, dim, kind, k), self.mean(other, dim, kind, k)
            if min(both) < FULL:
                yield dim, kind, k, *both


def scoring_books(n_labels: int, dim: int, seed: int) -> dict[str, Codebook]:
    """The codebooks whose scoring is timed; the table of codes is left out where it is too large."""
    independent = partial(IndependentCodebook, n_labels, dim, seed)
    books: dict[str, Codebook] = {
        "spectral": SpectralCodebook(n_labels, dim, seed),
        "spectral-4l": SpectralCodebook(n_labels, dim, seed, length=max(4 * n_labels, 2 * (dim + 1))),
        "table": independent(cache=True),
        "independent": independent(),
        "four-phase": independent(phases=4),
        "two-phase": independent(phases=2),
    }
    if _table_bytes(books["table"]) > TABLE_BYTES:
        del books["table"]
    return books


def kept_bytes(book: Codebook) -> int:
    """Bytes that a codebook keeps between two batches, in addition to its definition."""
    if isinstance(book, SpectralCodebook):
        slots = book.slots_on(torch.device("cpu"))
        return slots.frequencies.nbytes + slots.of_labels.nbytes
    return _table_bytes(book) if book.cache else 0


def _table_bytes(book: Codebook) -> int:
    return book.n_labels * book.width * torch.float32.itemsize


def _turn(book: Codebook, queries: Tensor) -> list[float]:
    """Seconds of each call for a short while. The first call has cold caches; the median ignores it."""
    found: list[float] = []
    while sum(found) < TURN_SECONDS:
        before = time.perf_counter()
        book.scores(queries)
        found.append(time.perf_counter() - before)
    return found


@dataclass(frozen=True)
class ScoringCell:
    """Time the scores of all labels on a CPU; the codebooks take turns.

    Parameters
    ----------
    sizes : tuple of int
        Numbers of labels.
    dim : int
    batch : int
        Number of queries scored at once.
    quick : bool
        Whether it belongs to a quick run.
    """

    sizes: tuple[int, ...]
    dim: int = 800
    batch: int = 8
    quick: bool = False

    @property
    def name(self) -> str:
        return f"{'quick-' if self.quick else ''}codebooks/scoring"

    def about(self) -> Result:
        return {
            "measures": "scoring",
            "sizes": list(self.sizes),
            "dim": self.dim,
            "batch": self.batch,
            "table_bytes": TABLE_BYTES,
            "seed": 0,
        }

    def missing(self, workplace: Workplace) -> str | None:
        return None

    def measure(self, workplace: Workplace, reporter: Reporter | None) -> Result:
        generator = torch.Generator().manual_seed(0)
        queries = circular.pack(circular.random((self.batch,), self.dim, generator=generator))
        return {"device": "cpu", "sizes": {str(n): self._measure_size(n, queries) for n in self.sizes}}

    def _measure_size(self, n_labels: int, queries: Tensor) -> Result:
        books = scoring_books(n_labels, self.dim, seed=0)
        for book in books.values():  # the first call makes tables, slots and the FFT's plan
            book.scores(queries)
        seconds: dict[str, list[float]] = {name: [] for name in books}
        started, rounds = time.perf_counter(), 0
        while rounds < LEAST_ROUNDS or (rounds < MOST_ROUNDS and time.perf_counter() - started < ENOUGH_SECONDS):
            # In turns, so that other load on the machine slows all of them alike.
            for name, book in books.items():
                seconds[name] += _turn(book, queries)
            rounds += 1
        return {
            name: {
                "milliseconds": float(f"{1000 * statistics.median(seconds[name]) / self.batch:.4g}"),
                "rounds": rounds,
                "definition_bytes": len(json.dumps(book.state())),
                "kept_bytes": kept_bytes(book),
            }
            for name, book in books.items()
        }
