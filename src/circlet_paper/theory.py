"""Do the formulas of docs/theory.md hold? Similarities of codes, scores of stored sets, retrieval and capacity.

The page derives a theory for independent angles, the paper's codes, and for spectral codes, circlet's own. This
experiment checks every constant of it by simulation, with circlet's codebooks.

What the paper leaves open, and what we chose: the paper has no such theory. The setting is that of its retrieval
experiment, N = 1,000 vectors of which k are stored. Every measure is repeated with 100 codebooks of different
seeds and 20 sets for each. Standard errors are those of the codebooks' means. A formula that is exact is judged by
the largest absolute z-score of all comparisons; the limit is the one that the largest of as many numbers of
Student's t exceeds with a probability of at most 1 %. A formula that is an approximation is judged by its
largest error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from circlet.report import Table
from circlet_paper import Claim, Result, Track, theory_formulas
from circlet_paper.drawing import finished, panels
from circlet_paper.theory_formulas import (
    THRESHOLDS,
    WAYS,
    angle_scores,
    efficiency,
    failure,
    largest_independent,
    largest_spectral,
    measure_patterns,
    measure_sets,
    measure_similarities,
    retrieved,
    sum_scores,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TITLE = "Theory of the codes, checked by simulation"
TABLE_KS = (10, 25, 50)
#: Probability with which the bounds on the largest similarity may fail, and of a failure at capacity.
DELTA = 0.05


@dataclass(frozen=True)
class Settings:
    """Size of the experiment."""

    n_labels: int = 1000
    dims: tuple[int, ...] = (64, 128, 256, 512)
    #: π/4 of 256 and of 512: for sums, to be compared with angles of those dimensions.
    shorter_dims: tuple[int, ...] = (201, 402)
    stored: tuple[int, ...] = (2, 3, 5, 10, 15, 20, 25, 30, 40, 50)
    #: Dimension and M of the spectral codes whose similarities are measured.
    spectral: tuple[tuple[int, int], ...] = (
        (64, 1000), (256, 1000), (256, 4000), (800, 100_000), (800, 1_000_000),
    )  # fmt: skip
    #: Numbers of labels for sets with a pattern: the second is a power of four, which Feistel's network permutes
    #: without leaving any out.
    pattern_labels: tuple[int, ...] = (1000, 4096)
    pattern_stored: int = 32
    repetitions: int = 100
    seed: int = 0

    @classmethod
    def quick(cls, seed: int = 0) -> Settings:
        """Fewer codebooks, dimensions and k, and no large M."""
        return cls(
            dims=(128, 256),
            shorter_dims=(201,),
            stored=(2, 5, 10, 25, 50),
            spectral=((64, 1000), (256, 4000)),
            repetitions=20,
            seed=seed,
        )


def run(settings: Settings, track: Track = iter) -> Result:
    """Measure similarities, scores of stored sets, and sets with a pattern."""
    n, seed, repetitions = settings.n_labels, settings.seed, settings.repetitions
    pairs = [(dim, None) for dim in settings.dims] + list(settings.spectral)
    sets = [(dim, length) for dim in settings.dims for length in (None, max(n, 2 * (dim + 1)), 4 * n)]
    sets += [(dim, None) for dim in settings.shorter_dims]
    result: Result = {
        "settings": asdict(settings),
        "unit": "pairs are a mean over codebooks and its standard error",
        "thresholds": list(THRESHOLDS),
        "similarities": [],
        "sets": [],
        "patterns": [],
    }
    for step in track(range(len(pairs) + len(sets) + len(settings.pattern_labels))):
        if step < len(pairs):
            dim, length = pairs[step]
            found = measure_similarities(length or n, dim, length, repetitions, seed)
            result["similarities"].append(found)
        elif step < len(pairs) + len(sets):
            dim, length = sets[step - len(pairs)]
            result["sets"].append(measure_sets(n, dim, length, settings.stored, repetitions, seed))
        else:
            labels = settings.pattern_labels[step - len(pairs) - len(sets)]
            found = measure_patterns(labels, 128, settings.pattern_stored, repetitions, seed)
            result["patterns"].append(found)
    return result


def tables(result: Result) -> list[Table]:
    """Tabulate the measured numbers beside the formulas."""
    return [
        _similarity_table(result),
        _noise_table(result),
        *(_retrieval_table(result, way) for way in WAYS),
        _capacity_table(result),
        _pattern_table(result),
    ]


def _similarity_table(result: Result) -> Table:
    rows = []
    for cell in result["similarities"]:
        bound, largest = largest_bound(cell), cell["largest"]
        mean, above = sum(largest) / len(largest), sum(value > bound for value in largest) / len(largest)
        tails = [f"{cell['tails'][THRESHOLDS.index(x)]:.3g}" for x in (1.0, 2.0)]
        name = "independent" if cell["M"] is None else "spectral"
        rows.append(
            (name, f"{cell['labels']:,}", cell["dim"], *tails, f"{mean:.3f}", f"{bound:.3f}", f"{above:.0%}")
        )
    return Table(
        "Similarities of two codes",
        ("", "L or M", "d", "≥ 1/√d", "≥ 2/√d", "largest", f"bound at {DELTA:.0%}", "codebooks above it"),
        rows,
        note="Share of the pairs with at least this similarity; the bounds e⁻¹ and e⁻⁴ are 0.368 and 0.0183. "
        f"The largest of a codebook, as the mean of {result['settings']['repetitions']} codebooks.",
    )


def _noise_table(result: Result) -> Table:
    ks = [k for k in TABLE_KS if k in result["settings"]["stored"]]
    rows = []
    for cell, k in ((cell, k) for cell in result["sets"] for k in ks):
        row: list[str | int | None] = [cell["dim"], cell["M"], k]
        for way in WAYS:
            expected = WAYS[way](k, cell["dim"], cell["M"])
            found = cell["ways"][way][str(k)]
            scale = 2 * cell["dim"] / (1 if way == "angles" else k)
            row.append(f"{found['stored_mean'][0]:.4f} ({expected.stored_mean:.4f})")
            for name in ("stored_variance", "absent_variance"):
                row.append(f"{scale * found[name][0]:.3f} ({scale * getattr(expected, name):.3f})")
        rows.append(tuple(row))
    names = ("mean of stored", "variance of stored", "variance of absent")
    return Table(
        "Scores of stored and absent labels: measured (formula)",
        ("d", "M", "k", *(f"{way}: {name}" for way in WAYS for name in names)),
        rows,
        note="Variances are multiplied by 2d for angles and by 2d/k for sums, so that the variance of absent "
        "labels is 1 for independent codes. No M: independent codes.",
    )


def _retrieval_table(result: Result, way: str) -> Table:
    ks = [k for k in (5, *TABLE_KS) if k in result["settings"]["stored"]]
    rows = []
    for cell in result["sets"]:
        row: list[str | int | None] = [cell["dim"], cell["M"]]
        for k in ks:
            mean, error = cell["ways"][way][str(k)]["retrieved"]
            expected = 100 * expected_share(result, cell, way, k)
            row.append(f"{100 * mean:.1f} ± {100 * error:.1f} ({expected:.1f})")
        rows.append(tuple(row))
    return Table(
        f"Percentage of k stored labels among the k best of {result['settings']['n_labels']:,}, {way}: "
        "measured (predicted)",
        ("d", "M", *(f"k = {k}" for k in ks)),
        rows,
        note="Measured: mean and standard error of the codebooks. No M: independent codes.",
    )


def _capacity_table(result: Result) -> Table:
    rows = []
    for n in (result["settings"]["n_labels"], 1_000_000):
        for dim in (128, 256, 512, 1024):
            length = max(n, 2 * (dim + 1))
            rows.append(
                (
                    f"{n:,}",
                    dim,
                    theory_formulas.guaranteed(dim, n, DELTA),
                    theory_formulas.capacity(dim, n, DELTA),
                    theory_formulas.capacity(dim, n, DELTA, angles=False),
                    theory_formulas.capacity(dim, n, DELTA, length),
                    theory_formulas.capacity(dim, n, DELTA, length, angles=False),
                )
            )
    kinds = [f"{codes}, {way}" for codes in ("independent", "spectral") for way in WAYS]
    return Table(
        f"Capacity: the largest k for which a stored label is missed with a probability of at most {DELTA:.0%}",
        ("L", "d", "independent, angles: guaranteed", *kinds),
        rows,
        note="By the formulas; spectral codes with the least M. The guarantee is proved, the others are the "
        "normal approximation, which the claims below test.",
    )


def _pattern_table(result: Result) -> Table:
    cells = result["patterns"]
    rows = []
    for name in cells[0]["kinds"]:
        row = [name]
        for cell in cells:
            percent, ahead = cell["kinds"][name]["percent"], cell["kinds"][name]["ahead"]
            row.append(f"{percent[0]:.1f} ± {percent[1]:.1f}")
            row.append("–" if name == "random" else f"{ahead[0] / ahead[1]:+.1f}")
        rows.append(tuple(row))
    columns = [c for cell in cells for c in (f"{cell['labels']:,} labels", "z against random")]
    return Table(
        f"Sets with a pattern: percentage of k = {cells[0]['k']} retrieved, d = {cells[0]['dim']}, spectral codes",
        ("ids", *(f"{c} ({i // 2 + 1})" if columns.count(c) > 1 else c for i, c in enumerate(columns))),
        rows,
        note="M is the number of labels. The last two rows are controls, which should collapse.",
    )


Cell = dict[str, Any]
#: Probability that a claim is rejected although its formula is exact.
LEVEL = 0.01
#: How far an approximation may be off, in points of what is retrieved.
POINTS = 2.0


def largest_bound(cell: Cell) -> float:
    """The bound on the largest similarity of a codebook."""
    bound = largest_independent if cell["M"] is None else largest_spectral
    return bound(cell["labels"], cell["dim"], DELTA)


@cache
def _retrieved(way: str, k: int, dim: int, length: int | None, n_labels: int) -> float:
    return retrieved(WAYS[way](k, dim, length), k, n_labels)


def expected_share(result: Result, cell: Cell, way: str, k: int) -> float:
    """The predicted share of the stored labels among the k best."""
    return _retrieved(way, k, cell["dim"], cell["M"], result["settings"]["n_labels"])


def claims(result: Result) -> list[Claim]:
    """Judge every formula."""
    independent = "for independent codes"
    return [
        *(_tail(result, spectral) for spectral in (False, True)),
        _largest(result),
        _mean_square(result),
        _half(result),
        _exact(result, "The mean score of a stored label is as derived, for angles and sums", "stored_mean"),
        _exact(result, f"Scores of absent labels have the derived variance, {independent}", "absent_variance", 0),
        _exact(
            result,
            "For sums of spectral codes crosstalk is that of independent codes × (M − 2d)/(M − 1)",
            "absent_variance",
            1,
            ("sums",),
        ),
        _exact(
            result,
            "For angles of spectral codes the factor is about 1 − 2dκ/M with κ = k a²",
            "absent_variance",
            1,
            ("angles",),
        ),
        _exact(result, f"Scores of stored labels have the derived variance, {independent}", "stored_variance", 0),
        _stored_spectral(result),
        *(_retrieval(result, way) for way in WAYS),
        *(_failures(result, way) for way in WAYS),
        _cost(result),
        *_patterns(result),
    ]


def _limit(count: int, codebooks: int) -> float:
    """The absolute value that the largest of so many numbers of Student's t exceeds with probability ≤ `LEVEL`."""
    from scipy.special import stdtrit

    return float(stdtrit(codebooks - 1, 1 - LEVEL / (2 * count)))


def _judged(result: Result, text: str, scores: Sequence[float]) -> Claim:
    """A claim that holds if no z-score is beyond what chance explains."""
    largest, limit = max(map(abs, scores)), _limit(len(scores), result["settings"]["repetitions"])
    return Claim(
        text,
        "yes" if largest <= limit else "no",
        f"largest absolute z-score {largest:.2f} over {len(scores)} comparisons (limit {limit:.2f})",
    )


def _z(measured: Sequence[float], expected: float) -> float:
    # Where a formula is an identity, what remains is rounding to six digits; it must not count as a deviation.
    mean, error = measured
    return (mean - expected) / max(error, 1e-5 * abs(expected), 1e-12)


def _tail(result: Result, spectral: bool) -> Claim:
    ratios = [
        share / math.exp(-(x**2))
        for cell in result["similarities"]
        if (cell["M"] is not None) == spectral
        for x, share in zip(THRESHOLDS, cell["tails"], strict=True)
    ]
    codes = "spectral codes with random frequencies" if spectral else "independent codes"
    return Claim(
        f"P(similarity ≥ ε) ≤ exp(−dε²), for {codes}",
        "yes" if max(ratios) <= 1 else "no",
        f"largest ratio of the measured share to the bound {max(ratios):.2f} over {len(ratios)} comparisons",
    )


def _largest(result: Result) -> Claim:
    cells = result["similarities"]
    above = sum(value > largest_bound(cell) for cell in cells for value in cell["largest"])
    total = sum(len(cell["largest"]) for cell in cells)
    ratios = [sum(cell["largest"]) / len(cell["largest"]) / largest_bound(cell) for cell in cells]
    return Claim(
        f"The largest similarity of a codebook is below its bound with a probability of {1 - DELTA:.0%}",
        "yes" if above <= DELTA * total else "no",
        f"above it in {above} of {total} codebooks; on average it is {min(ratios):.2f} to {max(ratios):.2f} of "
        "the bound",
    )


def _mean_square(result: Result) -> Claim:
    errors = [
        abs(cell["mean_square"][0] * 2 * cell["dim"] * (cell["M"] - 1) / (cell["M"] - 2 * cell["dim"]) - 1)
        for cell in result["similarities"]
        if cell["M"] is not None
    ]
    return Claim(
        "The mean square of K over all differences is (M − 2d)/(M − 1)/2d, for every choice of frequencies",
        "yes" if max(errors) < 1e-4 else "no",
        f"largest relative error {max(errors):.1g} over {len(errors)} kinds of codebooks",
    )


def _half(result: Result) -> Claim:
    scores = []
    for cell in (cell for cell in result["similarities"] if cell["M"] is not None):
        n, dim = cell["M"] // 2 - 1, cell["dim"]
        mean = -1 / n if n % 2 else 0.0
        square = (1 - mean**2) / dim * (n - dim) / (n - 1) + mean**2
        scores.append(_z(cell["half_square"], square))
    text = "Slots that are M/2 apart have the mean square (1 − (d − 1)/(N − 1))/d, about twice the usual one"
    return _judged(result, text, scores)


def _comparisons(result: Result, kinds: Iterable[bool], ways: Sequence[str]) -> Iterator[tuple[Cell, str, int]]:
    wanted = set(kinds)
    for cell in result["sets"]:
        if (cell["M"] is not None) in wanted:
            yield from ((cell, way, k) for way in ways for k in result["settings"]["stored"])


def _exact(result: Result, text: str, field: str, spectral: int | None = None, ways: Sequence[str] = ()) -> Claim:
    """Compare a moment of the scores with its formula."""
    scores = []
    kinds = (False, True) if spectral is None else (bool(spectral),)
    for cell, way, k in _comparisons(result, kinds, ways or tuple(WAYS)):
        expected = getattr(WAYS[way](k, cell["dim"], cell["M"]), field)
        scores.append(_z(cell["ways"][way][str(k)][field], expected))
    return _judged(result, text, scores)


def _stored_spectral(result: Result) -> Claim:
    errors = {}
    for cell, way, k in _comparisons(result, (True,), ("angles",)):
        expected = WAYS[way](k, cell["dim"], cell["M"]).stored_variance
        error = math.sqrt(expected / cell["ways"][way][str(k)]["stored_variance"][0]) - 1
        errors[cell["dim"], cell["M"], k] = error
    many = [abs(error) for (*_, k), error in errors.items() if k >= 10]
    worst = max(errors, key=lambda key: abs(errors[key]))
    return Claim(
        "Scores of stored labels have about the derived standard deviation, for angles of spectral codes",
        "yes" if max(many) < 0.1 else "partly",
        f"an approximation: off by at most {max(many):.1%} over {len(many)} comparisons with k ≥ 10; worst of all "
        f"{errors[worst]:+.0%}, at d = {worst[0]}, M = {worst[1]:,}, k = {worst[2]}",
    )


def _retrieval(result: Result, way: str) -> Claim:
    found = []
    for cell, _, k in _comparisons(result, (False, True), (way,)):
        measured = cell["ways"][way][str(k)]["retrieved"][0]
        found.append((100 * (expected_share(result, cell, way, k) - measured), cell, k))
    return _approximation(f"The share of stored labels among the k best is as predicted, for {way}", found)


def _failures(result: Result, way: str) -> Claim:
    found = []
    for cell, _, k in _comparisons(result, (False, True), (way,)):
        expected = failure(WAYS[way](k, cell["dim"], cell["M"]), k, result["settings"]["n_labels"])
        found.append((100 * (expected - cell["ways"][way][str(k)]["failed"][0]), cell, k))
    return _approximation(f"The probability that a label is missed is as predicted, for {way}", found)


def _approximation(text: str, found: Sequence[tuple[float, Cell, int]]) -> Claim:
    """A claim that holds if no prediction is off by more than `POINTS`, and partly if few are."""
    errors = [error for error, *_ in found]
    square = math.sqrt(sum(error**2 for error in errors) / len(errors))
    worst, cell, k = max(found, key=lambda each: abs(each[0]))
    codes = "independent" if cell["M"] is None else f"M = {cell['M']:,}"
    where = f"d = {cell['dim']}, {codes}, k = {k}"
    return Claim(
        text,
        "yes" if abs(worst) < POINTS else "partly" if square < POINTS else "no",
        f"an approximation: off by {square:.2f} points (root mean square) over {len(errors)} comparisons, at "
        f"most by {worst:+.2f} ({where})",
    )


def _cost(result: Result) -> Claim:
    """Compare angles of d dimensions with sums of κ d, for independent codes."""
    cells = {cell["dim"]: cell for cell in result["sets"] if cell["M"] is None}
    gaps = []
    for dim, shorter in ((d, round(math.pi / 4 * d)) for d in cells):
        if shorter in cells:
            for k in (k for k in result["settings"]["stored"] if k >= 10):
                both = [
                    cells[d]["ways"][way][str(k)]["retrieved"] for d, way in ((dim, "angles"), (shorter, "sums"))
                ]
                gaps.append(100 * (both[0][0] - both[1][0]))
    ends = ", ".join(f"κ = {efficiency(k):.3f} at k = {k}" for k in (2, 10, 50))
    return Claim(
        "Angles of d dimensions hold as much as sums of πd/4: lost amplitudes cost 21 % of the dimensions",
        "yes" if max(map(abs, gaps)) < POINTS else "partly",
        f"{ends}; what is retrieved differs by at most {max(gaps, key=abs):+.2f} points over {len(gaps)} "
        "comparisons",
    )


def _patterns(result: Result) -> list[Claim]:
    kinds = [(name, kind) for cell in result["patterns"] for name, kind in cell["kinds"].items()]
    controls = [kind["ahead"][0] for name, kind in kinds if "slots" in name]
    scores = [_z(kind["ahead"], 0.0) for name, kind in kinds if name != "random" and "slots" not in name]
    return [
        _judged(
            result, "With permuted slots, sets with a pattern in their ids are retrieved like random ones", scores
        ),
        Claim(
            "Sets that are runs of slots collapse: without a permutation, or chosen by someone who knows the seed",
            "yes" if max(controls) < -10 else "no",
            f"{min(controls):.1f} to {max(controls):.1f} points against random sets",
        ),
    ]


BLUE, LIGHT, GRAY, ORANGE = "#1f5fbf", "#7fb0ea", "#777777", "#d1701f"


def draw(result: Result) -> Figure:
    """Draw tails, noise, retrieval at three dimensions, and sets with a pattern."""
    figure, axes = panels(2, 3, (14, 8))
    _draw_tails(axes[0, 0], result)
    _draw_noise(axes[0, 1], result)
    dims = [dim for dim in (128, 256, 512) if dim in result["settings"]["dims"]]
    for axis, dim in zip((axes[0, 2], axes[1, 0], axes[1, 1]), dims, strict=False):
        _draw_retrieval(axis, result, dim)
    for axis in (axes[0, 2], axes[1, 0], axes[1, 1])[len(dims) :]:
        axis.set_axis_off()
    _draw_patterns(axes[1, 2], result)
    return finished(figure, legend=4)


def _draw_tails(axis: Any, result: Result) -> None:
    x = np.linspace(0, 3.1, 200)
    axis.plot(x, np.exp(-(x**2)), color="black", ls=":", label="bound, exp(−dε²)")
    for cell in result["similarities"]:
        spectral = cell["M"] is not None
        shown = [(t, share) for t, share in zip(THRESHOLDS, cell["tails"], strict=True) if share > 0]
        name = "spectral" if spectral else "independent"
        axis.plot(
            *zip(*shown, strict=True),
            "x" if spectral else "o",
            color=BLUE if spectral else GRAY,
            mfc="none",
            label=None if name in axis.get_legend_handles_labels()[1] else name,
        )
    axis.set(yscale="log", xlabel="ε √d", ylabel="share of pairs", title="Pairs with a similarity of at least ε")
    axis.legend(frameon=False)


def _draw_noise(axis: Any, result: Result) -> None:
    """The variance of absent scores over 2d/M, relative to independent codes: two laws."""
    ratio = np.linspace(0, 1, 50)
    k = 10
    ways = {"angles": (angle_scores, BLUE, "o"), "sums": (sum_scores, ORANGE, "s")}
    for way, (scores, color, marker) in ways.items():
        unit = 1 if way == "angles" else k
        # Lines for a large M, so that they depend on 2d/M alone.
        length = 100_000
        dims = [max(1, int(share * (length // 2 - 1))) for share in ratio]
        axis.plot(ratio, [2 * d / unit * scores(k, d, length).absent_variance for d in dims], color=color)
        points = []
        for cell in result["sets"]:
            variance = cell["ways"][way][str(k)]["absent_variance"][0]
            place = 0 if cell["M"] is None else 2 * cell["dim"] / cell["M"]
            points.append((place, 2 * cell["dim"] * variance / unit))
        law = "only angles, 1 − κ·2d/M" if way == "angles" else "sums, 1 − 2d/M"
        axis.plot(*zip(*points, strict=True), marker, color=color, mfc="none", label=law)
    axis.set(
        xlabel="2d / M (independent codes at 0)",
        ylabel="variance × 2d (sums: × 2d/k)",
        title=f"Noise in the scores of absent labels, k = {k}",
        ylim=(-0.03, 1.08),
    )
    axis.legend(frameon=False)


def _draw_retrieval(axis: Any, result: Result, dim: int) -> None:
    ks = result["settings"]["stored"]
    n = result["settings"]["n_labels"]
    for cell in (cell for cell in result["sets"] if cell["dim"] == dim):
        independent = cell["M"] is None
        shown = [("angles", "-", "o")] + ([("sums", "--", "s")] if independent else [])
        color = GRAY if independent else LIGHT if cell["M"] == 4 * n else BLUE
        name = "independent" if independent else "spectral, M = 4 L" if cell["M"] == 4 * n else "spectral, least M"
        for way, line, marker in shown:
            measured = [100 * cell["ways"][way][str(k)]["retrieved"][0] for k in ks]
            expected = [100 * expected_share(result, cell, way, k) for k in ks]
            axis.plot(ks, expected, line, color=color)
            label = f"{name}, {'only angles' if way == 'angles' else 'sums with amplitudes'}"
            axis.plot(ks, measured, marker, color=color, mfc="none", ls="none", label=label)
    axis.set(
        xlabel="stored labels k",
        ylabel=f"among the k best of {n:,}, %",
        title=f"Retrieved, d = {dim} (lines: theory)",
    )
    axis.set_ylim(None, 101.5)


def _draw_patterns(axis: Any, result: Result) -> None:
    cell = result["patterns"][0]
    names = list(cell["kinds"])[::-1]
    for place, name in enumerate(names):
        mean, error = cell["kinds"][name]["percent"]
        axis.errorbar(mean, place, xerr=2 * error, fmt="o", color=GRAY if "slots" in name else BLUE, capsize=3)
    axis.axvline(cell["kinds"]["random"]["percent"][0], color=BLUE, lw=1, ls=":")
    axis.set_yticks(range(len(names)), [name.replace(", ", ",\n") for name in names])
    axis.set(
        xlabel="retrieved, %", xlim=(0, 100), title=f"Sets with a pattern, k = {cell['k']}, d = {cell['dim']}"
    )
