"""How the experiment `theory` judges each formula, and by which test."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from circlet_paper import Claim, Result
from circlet_paper.theory_formulas import (
    efficiency,
    failure,
    largest_independent,
    largest_spectral,
    retrieved,
)
from circlet_paper.theory_measures import THRESHOLDS, WAYS

Cell = dict[str, Any]
#: Probability with which the bounds on the largest similarity may fail, and of a failure at capacity.
DELTA = 0.05
#: Probability that a claim is rejected although its formula is exact.
LEVEL = 0.01
#: How far an approximation may be off, in points of what is retrieved.
POINTS = 2.0


def largest_bound(cell: Cell) -> float:
    """The bound on the largest similarity of a codebook."""
    bound = largest_independent if cell["M"] is None else largest_spectral
    return bound(cell["labels"], cell["dim"], DELTA)


def share_above(cell: Cell) -> float:
    """The share of the codebooks whose largest similarity is above the bound."""
    bound, largest = largest_bound(cell), cell["largest"]
    return float(sum(value > bound for value in largest) / len(largest))


@cache
def _retrieved(way: str, k: int, dim: int, length: int | None, n_labels: int) -> float:
    return retrieved(WAYS[way](k, dim, length), k, n_labels)


def expected_share(result: Result, cell: Cell, way: str, k: int) -> float:
    """The predicted share of the stored labels among the k best."""
    return _retrieved(way, k, cell["dim"], cell["M"], result["settings"]["n_labels"])


def claims(result: Result) -> list[Claim]:
    """Judge every formula."""
    return [
        *(_tail(result, spectral) for spectral in (False, True)),
        _largest(result),
        _mean_square(result),
        _half(result),
        _exact(result, "The mean score of a stored label is as derived, for angles and sums", "stored_mean"),
        _exact(
            result,
            "Scores of absent labels have the derived variance, for independent codes",
            "absent_variance",
            0,
        ),
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
        _exact(
            result,
            "Scores of stored labels have the derived variance, for independent codes",
            "stored_variance",
            0,
        ),
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
