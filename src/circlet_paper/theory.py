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

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from circlet.report import Table
from circlet_paper import Claim, Result, Track, theory_claims, theory_formulas
from circlet_paper.theory_measures import (
    THRESHOLDS,
    WAYS,
    measure_patterns,
    measure_sets,
    measure_similarities,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Theory of the codes, checked by simulation"
TABLE_KS = (10, 25, 50)
#: Probability with which the bounds on the largest similarity may fail, and of a failure at capacity.
DELTA = theory_claims.DELTA


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
        (64, 1000),
        (256, 1000),
        (256, 4000),
        (800, 100_000),
        (800, 1_000_000),
    )
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
        bound, above = theory_claims.largest_bound(cell), theory_claims.share_above(cell)
        mean = sum(cell["largest"]) / len(cell["largest"])
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
            expected = 100 * theory_claims.expected_share(result, cell, way, k)
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


def claims(result: Result) -> list[Claim]:
    """Judge every formula."""
    return theory_claims.claims(result)


def draw(result: Result) -> Figure:
    """Draw the formulas as lines over what was measured."""
    from circlet_paper.theory_panels import draw

    return draw(result)
