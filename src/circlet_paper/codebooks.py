"""Which codes should labels have? Spectral codes compared with the paper's independent angles, and few phases.

The paper draws every label's angles independently and uniformly. This library's default is spectral codes, whose
angles are 2π · slot · f_j / M with one frequency f_j per dimension and a permuted slot per label (M slots in all),
so that one FFT gives the scores of all labels. Four-phase and two-phase codes are independent, with angles drawn
from four or two values. Three things are measured: how well models with each codebook tag, how many labels one
vector holds, and what scoring costs in time and bytes.

What the paper leaves open, and what we chose (it says nothing about codebooks other than its own):

- Tagging: circlet's own recipe, with the same sizes for every codebook, on the paper's two smaller datasets.
  Spectral codes have their default M (a twentieth above the number of labels, at least 2 (d + 1)) and about 2, 4
  and 16 L. The seed also determines the codes.
- Capacity: the setting of the paper's section 3.2, N = 1,000 labels of which k are stored in one vector. Labels
  that occur together often have neighboring ids, so there are sets of consecutive ids and of every 7th id in
  addition to random ones. "Slots in order" are spectral codes whose slot is the id, to show what permuting slots
  is for. The result for one seed is the mean over 20 codebooks with 20 label sets each; all kinds of codebooks get
  the same sets.
- Scoring: d = 800, batches of 8 queries, always on the CPU; the codebooks take turns, and the median of all calls
  in at least 3 rounds counts. The scores of all labels are timed, without the search for the best k.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from circlet.algebra import circular
from circlet.codebooks import Codebook, IndependentCodebook, SpectralCodebook
from circlet.report import Cell as Entry
from circlet.report import Table
from circlet_paper import Claim, training_cells
from circlet_paper.cells import Cell, Result, Workplace
from circlet_paper.drawing import finished, panels
from circlet_paper.runs import Runs, shown, verdict
from circlet_paper.training_cells import FIXED, Recipe, title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from circlet.training import Reporter


TITLE = "Which codes labels should have"
METRICS = ("P@1", "P@3", "P@5", "PSP@5")
#: About 2, 4 and 16 times the number of labels, which is 983 and 3,993.
SLOTS = {"delicious": (2_000, 4_000, 16_000), "eurlex-4k": (8_000, 16_000, 64_000)}
SPECTRAL = "spectral, default M"
INDEPENDENT, FOUR, TWO = "independent, uniform angles", "independent, four phases", "independent, two phases"
#: Names of the codebooks whose capacity is measured.
HOLDING = {
    "independent": INDEPENDENT,
    "four-phase": FOUR,
    "two-phase": TWO,
    "spectral": "spectral, least M",
    "spectral-default": SPECTRAL,
    "spectral-4n": "spectral, M = 4 N",
    "spectral-16d": "spectral, M = 16 d",
    "in-order": "spectral, least M, slots in order",
}
#: Names of the ways to score that are timed.
SCORING = {
    "spectral": SPECTRAL,
    "spectral-4l": "spectral, M = 4 L",
    "table": "independent, from a table",
    "independent": INDEPENDENT,
    "four-phase": FOUR,
    "two-phase": TWO,
}
#: Number of labels of a codebook whose capacity is measured, as in the paper's retrieval experiment.
N_LABELS = 1000
STORED = (10, 25, 50)
#: Distance between neighboring ids in a label set; None for random sets.
SETS: dict[str, int | None] = {"random ids": None, "consecutive ids": 1, "every 7th id": 7}
#: Dimension, kind of label sets, k, percentage of one codebook, percentage of the other.
Comparison = tuple[int, str, int, float, float]
#: Size in bytes of the largest table of codes that scoring is measured with.
TABLE_BYTES = 10**9
#: Seconds to spend on one number of labels, once every codebook has had three rounds.
ENOUGH_SECONDS = 10.0
#: Seconds that a codebook gets in a round, for as many calls as fit.
TURN_SECONDS = 0.01


class InOrder(SpectralCodebook):
    """A spectral codebook whose slots are the ids themselves, to show what permuting the slots is for."""

    def slots(self, ids: Any) -> Any:
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
    scores: Tensor = book.scores(circular.pack(circular.unpack(sums)))
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
    """The numbers of stored capacity cells, as `CapacityCell` measures them."""

    def __init__(self, cells: Sequence[Result]) -> None:
        self.cells = cells
        self.dims: list[int] = sorted({cell["about"]["dim"] for cell in self.cells})

    def values(self, book: str, dim: int, kind: str, k: int) -> list[float]:
        """Percentages retrieved, one per seed."""
        these = [cell for cell in self.cells if cell["about"]["dim"] == dim]
        return [float(cell["retrieved"][book][kind][str(k)]) for cell in these]

    def moments(self, book: str, dim: int, kind: str, k: int) -> tuple[float, float | None]:
        """Their mean and standard deviation; None for that of a single seed."""
        values = self.values(book, dim, kind, k)
        return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None

    def length(self, book: str, dim: int) -> int | None:
        """M of a spectral codebook."""
        length: int | None = next(c for c in self.cells if c["about"]["dim"] == dim)["M"].get(book)
        return length

    def pairs(self, book: str, other: str, kinds: Sequence[str]) -> Iterator[Comparison]:
        """(dim, kind, k, mean of one, mean of the other) unless both retrieve everything."""
        for dim, kind, k in ((dim, kind, k) for dim in self.dims for kind in kinds for k in STORED):
            both = self.moments(book, dim, kind, k)[0], self.moments(other, dim, kind, k)[0]
            # From here on, everything counts as retrieved: two codebooks above it can't be told apart.
            if min(both) < 99.5:
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
        while rounds < 3 or (rounds < 25 and time.perf_counter() - started < ENOUGH_SECONDS):
            # In turns, so that other load on the machine slows all of them alike.
            for name, book in books.items():
                turn = time.perf_counter()
                # As many calls as fit. The first has cold caches; the median ignores it.
                while (before := time.perf_counter()) - turn < TURN_SECONDS:
                    book.scores(queries)
                    seconds[name].append(time.perf_counter() - before)
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


@dataclass(frozen=True)
class Settings(training_cells.Settings):
    """Size of the experiment; the defaults are the full size.

    Parameters
    ----------
    seeds, rows, epochs, shrink
        See `circlet_paper.training_cells.Settings`.
    dims : tuple of int
        Dimensions at which capacity is measured.
    books, trials : int
        Number of codebooks for each seed, and of label sets for each codebook.
    sizes : tuple of int
        Numbers of labels at which scoring is timed.
    """

    dims: tuple[int, ...] = (128, 256, 512)
    books: int = 20
    trials: int = 20
    sizes: tuple[int, ...] = (4_000, 16_000, 64_000, 256_000)

    @classmethod
    def quick(cls) -> Settings:
        """Few rows, label sets and labels."""
        small = vars(training_cells.Settings.quick())
        return cls(**small, dims=(128, 256), books=2, trials=10, sizes=(500, 2_000))


def recipes(dataset: str) -> list[Recipe]:
    """The models that are trained: circlet's own recipe with each codebook."""
    spectral = [
        Recipe(f"spectral, M ≈ {times} L", FIXED, {"slots": slots})
        for times, slots in zip((2, 4, 16), SLOTS[dataset], strict=True)
    ]
    others = {INDEPENDENT: "independent", FOUR: "four-phase", TWO: "two-phase"}
    independent = [Recipe(title, FIXED, {"codebook": name}) for title, name in others.items()]
    return [Recipe(SPECTRAL, FIXED), *spectral, *independent]


def cells(settings: Settings) -> list[Cell]:
    """Tagging for each dataset, model and seed, capacity for each dimension and seed, and one cell of scoring."""
    quick = settings.rows is not None
    planned: list[Cell] = []
    for dataset in SLOTS:
        for recipe in recipes(dataset):
            planned += recipe.cells(dataset, settings)
    for dim in settings.dims:
        planned += [
            CapacityCell(dim, seed, settings.books, settings.trials, quick) for seed in range(settings.seeds)
        ]
    return [*planned, ScoringCell(settings.sizes, quick=quick)]


def _measured(result: Result, dataset: str) -> dict[str, Runs]:
    """Runs of each model that has any, by title."""
    return {recipe.title: these for recipe in recipes(dataset) if (these := recipe.runs(result, dataset))}


def _of_kind(result: Result, kind: str) -> list[Result]:
    return [cell for cell in result["cells"] if cell["about"].get("measures") == kind]


def tables(result: Result) -> list[Table]:
    """Accuracy for each dataset, capacity for each kind of label sets, and time and bytes of scoring."""
    held = Capacity(_of_kind(result, "capacity"))
    made = [_accuracy(result, dataset) for dataset in SLOTS]
    made += [_capacity(result, held, kind) for kind in SETS if held.cells]
    for cell in _of_kind(result, "scoring"):
        made += [_times(cell), _bytes(cell)]
    return made


def _accuracy(result: Result, dataset: str) -> Table:
    measured, settings, rows = _measured(result, dataset), Settings.of(result), []
    for title, these in measured.items():
        rows.append((title, _slots(these.cells[0]), *(these.show(metric) for metric in METRICS)))
    seeds = f"mean ± standard deviation of {settings.seeds} seeds."
    note = f"circlet's own recipe, with the same sizes for every codebook; {seeds}"
    if few := [f"{t} {len(r.cells)}" for t, r in measured.items() if len(r.cells) < settings.seeds]:
        note += f" Fewer so far: {', '.join(few)}."
    if gone := [recipe.title for recipe in recipes(dataset) if recipe.title not in measured]:
        note += f" Not measured: {'; '.join(gone)}."
    if not measured:
        note = "Not measured: the dataset was not available."
    return Table(f"{title_of(dataset)}: precision, %", ("", "M", *METRICS), rows, note + settings.note)


def _slots(cell: Result) -> int | None:
    """M of a trained model's codes; None for codes that are not spectral."""
    used = cell["about"]["settings"]
    if used["codebook"] not in ("auto", "spectral"):
        return None
    return SpectralCodebook(cell["shapes"]["labels"], used["dim"], length=used.get("slots")).length


def _capacity(result: Result, held: Capacity, kind: str) -> Table:
    settings, rows = Settings.of(result), []
    for dim in held.dims:
        for book, title in HOLDING.items():
            found = [shown(*held.moments(book, dim, kind, k)) for k in STORED]
            rows.append((title, dim, held.length(book, dim), *found))
    return Table(
        f"Capacity, {kind}: percentage of k stored labels among the top k of {N_LABELS:,}",
        ("", "d", "M", *(f"k = {k}" for k in STORED)),
        rows,
        note=f"Mean ± standard deviation of {settings.seeds} seeds, each with {settings.books} codebooks and "
        f"{settings.trials} label sets for each. The least M is the larger of N and 2 (d + 1)."
        + ("" if settings.rows is None else " A quick run, of no value as a measurement."),
    )


def _times(cell: Result) -> Table:
    sizes, rows = cell["sizes"], []
    for way, title in SCORING.items():
        row: list[Entry] = [title]
        for measured in sizes.values():
            found, base = measured.get(way), measured["spectral"]["milliseconds"]
            ratio = "" if way == "spectral" or found is None else f" ({found['milliseconds'] / base:.3g} ×)"
            row.append(None if found is None else f"{found['milliseconds']:.3g}{ratio}")
        rows.append(row)
    about = cell["about"]
    return Table(
        f"Scores of all labels, d = {about['dim']}: milliseconds per query",
        ("", *(f"L = {int(n):,}" for n in sizes)),
        rows,
        note=f"Batches of {about['batch']} queries on a CPU; in parentheses, the ratio to the default. "
        "A table of codes is one matrix product, the same whatever its angles, and is left out above "
        f"{about['table_bytes'] / 1e9:.0f} GB; otherwise independent codes are generated from the seed, block by "
        "block, for every batch.",
    )


def _bytes(cell: Result) -> Table:
    sizes = cell["sizes"]
    rows: list[list[Entry]] = []
    for way in ("spectral", "table", "independent"):
        found = [measured.get(way) for measured in sizes.values()]
        definition = max((these["definition_bytes"] for these in found if these), default=None)
        if definition is not None:
            rows.append([SCORING[way], definition, *(these and _size(these["kept_bytes"]) for these in found)])
    return Table(
        f"Bytes of a codebook, d = {cell['about']['dim']}: stored with a model, and kept while scoring",
        ("", "Stored, bytes", *(f"Kept, L = {int(n):,}" for n in sizes)),
        rows,
        note="What is stored is the definition, from which every code follows. Spectral codes keep their "
        "frequencies, 8 bytes each, and the slot of each label, 4 bytes; a table has 2 d numbers of 4 bytes "
        "for each label. Codes of few phases need what independent ones need.",
    )


def _size(count: int) -> str:
    if count == 0:
        return "0"
    return f"{count / 1e6:.3g} MB" if count >= 1e6 else f"{count / 1e3:.3g} kB"


def claims(result: Result) -> list[Claim]:
    """Judge what this library claims about its codebooks; the paper says nothing about them."""
    held, measured = (
        Capacity(_of_kind(result, "capacity")),
        {dataset: _measured(result, dataset) for dataset in SLOTS},
    )
    made = []
    if held.cells:
        made += [_judge_spectral(held), _judge_order(held)]
    made += _judge_phases(held, measured)
    pairs = _gaps(measured, SPECTRAL, INDEPENDENT)
    if pairs:
        ahead = [gap >= 0 for _, gap in pairs]
        made.append(
            Claim(
                "Models with spectral codes tag at least as well as with independent ones",
                _judged(ahead),
                f"points ahead, at the default M: {_listed(pairs)}",
            )
        )
    made += [_judge_time(cell) for cell in _of_kind(result, "scoring")]
    return made


def _judge_spectral(held: Capacity) -> Claim:
    near = list(held.pairs("spectral", "independent", ["random ids"]))
    far = list(held.pairs("spectral-16d", "independent", ["random ids"]))
    each = (f"{ours:.1f} against {theirs:.1f} (d = {dim}, k = {k})" for dim, _, k, ours, theirs in near)
    return Claim(
        "Spectral codes hold more labels than independent ones when M is near N (random sets)",
        _judged([ours > theirs for *_, ours, theirs in near]),
        f"{', '.join(each)}; with M = 16 d the gap is {_mean_gap(far):+.1f} points on average instead of "
        f"{_mean_gap(near):+.1f}",
    )


def _judge_order(held: Capacity) -> Claim:
    pairs = list(held.pairs("in-order", "spectral", ["consecutive ids", "every 7th id"]))
    random = list(held.pairs("in-order", "spectral", ["random ids"]))
    gaps = [ours - theirs for *_, ours, theirs in pairs]
    return Claim(
        "Without permuted slots neighboring labels collapse",
        # Ten points; with random sets the difference is less than one.
        _judged([gap < -10 for gap in gaps]),
        f"slots in order against permuted ones, on consecutive ids and every 7th: {_mean_gap(pairs):+.1f} points "
        f"on average, {min(gaps):+.1f} to {max(gaps):+.1f}; on random sets {_mean_gap(random):+.1f} on average",
    )


def _judge_phases(held: Capacity, measured: dict[str, dict[str, Runs]]) -> list[Claim]:
    made = []
    for book, title, text, least, most in (
        ("four-phase", FOUR, "Four-phase codes are as good as uniform angles", -1.0, float("inf")),
        ("two-phase", TWO, "Two-phase codes are worse than uniform angles", float("-inf"), 0.0),
    ):
        pairs = list(held.pairs(book, "independent", list(SETS)))
        gaps = [ours - theirs for *_, ours, theirs in pairs]
        tagging = _gaps(measured, title, INDEPENDENT)
        evidence = []
        if gaps:
            evidence.append(
                f"capacity {statistics.fmean(gaps):+.1f} points on average, {min(gaps):+.1f} to {max(gaps):+.1f}"
            )
        if tagging:
            evidence.append(f"tagging, points: {_listed(tagging)}")
        every = [least <= gap < most for gap in [*gaps, *(gap for _, gap in tagging)]]
        if every:
            rule = "at most one point behind" if book == "four-phase" else "behind"
            evidence.insert(0, f"{rule} in {sum(every)} of {len(every)} comparisons")
            made.append(Claim(text, _judged(every), "; ".join(evidence)))
    return made


def _judge_time(cell: Result) -> Claim:
    both = {n: (m["spectral"], m["table"]) for n, m in cell["sizes"].items() if "table" in m}
    return Claim(
        "One FFT scores all labels faster than a table of codes, and keeps less",
        _judged([fft["milliseconds"] < table["milliseconds"] for fft, table in both.values()]),
        "; ".join(
            f"L = {int(n):,}: {table['milliseconds'] / fft['milliseconds']:.3g} times as fast with "
            f"1 / {table['kept_bytes'] / fft['kept_bytes']:,.0f} of the bytes"
            for n, (fft, table) in both.items()
        ),
    )


def _gaps(measured: dict[str, dict[str, Runs]], one: str, other: str) -> list[tuple[str, float]]:
    """By how many points one codebook is ahead of another, for each dataset and metric."""
    return [
        (f"{title_of(dataset)} {metric}", these[one].mean(metric) - these[other].mean(metric))
        for dataset, these in measured.items()
        if one in these and other in these
        for metric in METRICS
    ]


def _listed(gaps: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {gap:+.1f}" for name, gap in gaps)


def _mean_gap(pairs: Sequence[Comparison]) -> float:
    return statistics.fmean([ours - theirs for *_, ours, theirs in pairs]) if pairs else 0.0


def _judged(holding: Sequence[bool]) -> str:
    return verdict(sum(holding), len(holding))


#: Okabe and Ito's colors, which color-blind people can tell apart, each with a marker and a line style.
STYLES = {
    "independent": ("#000000", "s", "-"),
    "four-phase": ("#E69F00", "^", "--"),
    "two-phase": ("#D55E00", "v", "-"),
    "spectral": ("#0072B2", "o", "-"),
    "spectral-16d": ("#56B4E9", "D", "-"),
    "spectral-4l": ("#56B4E9", "D", "-"),
    "in-order": ("#CC79A7", "X", ":"),
    "table": ("#009E73", "P", "-"),
}
#: P@5 varies less from seed to seed than P@1 does.
TAGGING = "P@5"
DATASET_COLORS = ("#0072B2", "#E69F00")


def _draw_capacity(axis: Axes, held: Capacity, dim: int, kind: str) -> None:
    """Draw the percentages retrieved over k, for one dimension and one kind of label sets."""
    for book, (color, marker, line) in STYLES.items():
        if book not in HOLDING:
            continue
        means, bars = zip(*(held.moments(book, dim, kind, k) for k in STORED), strict=True)
        axis.errorbar(
            STORED, means, [bar or 0.0 for bar in bars], color=color, marker=marker, ls=line, ms=5.5, lw=1.6,
            capsize=2.5, label=HOLDING[book],
        )  # fmt: skip
    axis.set_title(f"Capacity, d = {dim}, {kind}")
    axis.set_xticks(STORED)
    axis.set_xlabel("stored labels k")
    axis.set_ylabel("% of the k in the top k")
    axis.set_ylim(0, 104)


def _draw_tagging(axis: Axes, measured: Mapping[str, Mapping[str, Runs]]) -> None:
    """Draw bars of P@5 for each dataset, in points ahead of the paper's codes."""
    base = INDEPENDENT
    titles = list(dict.fromkeys(title for these in measured.values() for title in these if title != base))
    height = 0.8 / len(measured)
    for place, (dataset, these) in enumerate(measured.items()):
        rows = [row for row, title in enumerate(titles) if title in these]
        level, found = these[base].mean(TAGGING), [these[titles[row]] for row in rows]
        axis.barh(
            [row + (place - (len(measured) - 1) / 2) * height for row in rows],
            [runs.mean(TAGGING) - level for runs in found],
            height=height,
            xerr=[runs.sd(TAGGING) or 0.0 for runs in found],
            error_kw={"elinewidth": 1, "capsize": 2},
            color=DATASET_COLORS[place % len(DATASET_COLORS)],
            label=f"{dataset} ({level:.1f})",
        )
    axis.set_yticks(range(len(titles)), titles)
    axis.invert_yaxis()
    axis.axvline(0, color="black", lw=0.8)
    axis.set_title(f"Tagging: {TAGGING}")
    axis.set_xlabel(f"points ahead of {base}")
    axis.legend(frameon=False, fontsize=8)


def _draw_times(axis: Axes, cell: Result) -> None:
    """Draw the milliseconds per query over the number of labels."""
    # Codes with few phases take as long as uniform angles: one line stands for all three.
    titles = {way: SCORING[way] for way in ("spectral", "spectral-4l", "table")}
    for way, title in {**titles, "independent": "independent, from the seed"}.items():
        points = [(int(n), found[way]["milliseconds"]) for n, found in cell["sizes"].items() if way in found]
        if not points:
            continue
        color, marker, line = STYLES[way]
        axis.loglog(*zip(*points, strict=True), color=color, marker=marker, ls=line, ms=6, lw=1.6, label=title)
    axis.set_xticks([int(n) for n in cell["sizes"]], [f"{int(n):,}" for n in cell["sizes"]])
    axis.minorticks_off()
    axis.set_title(f"Scoring all labels, d = {cell['about']['dim']}, CPU")
    axis.set_xlabel("labels L")
    axis.set_ylabel("milliseconds per query")
    axis.set_ylim(top=30 * axis.get_ylim()[1])  # room for the legend
    axis.legend(frameon=False, fontsize=8, loc="upper left")


def draw(result: Result) -> Figure:
    """Draw capacity over k, tagging compared with the paper's codes, and the time of scoring over L."""
    held = Capacity(_of_kind(result, "capacity"))
    figure, axes = panels(2, 3, (13.5, 8))
    for axis, dim in zip(axes[0], held.dims, strict=False):
        _draw_capacity(axis, held, dim, "random ids")
    if held.dims:
        # The middle dimension: there codebooks neither all fail nor all retrieve everything.
        _draw_capacity(axes[1, 0], held, held.dims[len(held.dims) // 2], "consecutive ids")
    tagging = {
        title_of(dataset): these for dataset in SLOTS if INDEPENDENT in (these := _measured(result, dataset))
    }
    if tagging:
        _draw_tagging(axes[1, 1], tagging)
    for cell in _of_kind(result, "scoring"):
        _draw_times(axes[1, 2], cell)
    for axis in axes.flat:
        axis.set_axisbelow(True)
        if not axis.has_data():
            axis.set_axis_off()
    return finished(figure, legend=3 if held.dims else 0)
