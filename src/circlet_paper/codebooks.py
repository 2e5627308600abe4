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

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from circlet.codebooks import SpectralCodebook
from circlet.report import Cell as Entry
from circlet.report import Table
from circlet_paper import Claim, training_cells
from circlet_paper.cells import Cell, Result
from circlet_paper.codebook_cells import (
    N_LABELS,
    SETS,
    STORED,
    Capacity,
    CapacityCell,
    Comparison,
    ScoringCell,
)
from circlet_paper.runs import Runs, runs, shown, verdict
from circlet_paper.training_cells import FIXED, Recipe, title_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


def _settings(result: Result) -> Settings:
    return Settings(**result["settings"])


def _measured(result: Result, dataset: str) -> dict[str, Runs]:
    """Runs of each model that has any, by title."""
    found = {r.title: runs(result, r.cells(dataset, _settings(result))) for r in recipes(dataset)}
    return {title: these for title, these in found.items() if these is not None}


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
    measured, settings, rows = _measured(result, dataset), _settings(result), []
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
    settings, rows = _settings(result), []
    for dim in held.dims:
        for book, title in HOLDING.items():
            found = [shown(held.mean(book, dim, kind, k), held.sd(book, dim, kind, k)) for k in STORED]
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
    return Claim(
        "Spectral codes hold more labels than independent ones when M is near N (random sets)",
        _judged([ours > theirs for *_, ours, theirs in near]),
        f"{_between(near)}; with M = 16 d the gap is {_mean_gap(far):+.1f} points on average instead of "
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


def _between(pairs: Sequence[Comparison]) -> str:
    return ", ".join(f"{ours:.1f} against {theirs:.1f} (d = {dim}, k = {k})" for dim, _, k, ours, theirs in pairs)


def _mean_gap(pairs: Sequence[Comparison]) -> float:
    return statistics.fmean([ours - theirs for *_, ours, theirs in pairs]) if pairs else 0.0


def _judged(holding: Sequence[bool]) -> str:
    return verdict(sum(holding), len(holding))


def draw(result: Result) -> Figure:
    """Draw capacity over k, tagging compared with the paper's codes, and the time of scoring over L."""
    from matplotlib.figure import Figure  # an extra

    from circlet_paper.codebook_panels import capacity_panel, tagging_panel, time_panel

    held = Capacity(_of_kind(result, "capacity"))
    figure = Figure(figsize=(13.5, 8), layout="constrained")
    axes = figure.subplots(2, 3)
    for axis, dim in zip(axes[0], held.dims, strict=False):
        capacity_panel(axis, held, dim, "random ids", HOLDING)
    if held.dims:
        # The middle dimension: there codebooks neither all fail nor all retrieve everything.
        capacity_panel(axes[1, 0], held, held.dims[len(held.dims) // 2], "consecutive ids", HOLDING)
        handles, labels = axes[1, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    tagging = {
        title_of(dataset): these for dataset in SLOTS if INDEPENDENT in (these := _measured(result, dataset))
    }
    if tagging:
        tagging_panel(axes[1, 1], tagging, INDEPENDENT)
    for cell in _of_kind(result, "scoring"):
        # Codes with few phases take as long as uniform angles: one line stands for all three.
        ways = {way: SCORING[way] for way in ("spectral", "spectral-4l", "table")}
        time_panel(axes[1, 2], cell, {**ways, "independent": "independent, from the seed"})
    for axis in axes.flat:
        if not axis.has_data():
            axis.set_axis_off()
    return figure
