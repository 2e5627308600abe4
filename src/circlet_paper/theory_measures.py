"""What the experiment `theory` measures: similarities of codes, scores of stored sets, and sets with a pattern.

Every measure is taken for many codebooks with different seeds. Codebooks are independent of one another and
the sets of one codebook are not, so standard errors are those of the codebooks' means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from circlet.algebra import circular
from circlet.codebooks import Codebook, IndependentCodebook, SpectralCodebook
from circlet_paper.codebook_cells import InOrder
from circlet_paper.theory_formulas import Scores, angle_scores, sum_scores

Floats = npt.NDArray[np.float64]
#: Label sets stored with each codebook.
SETS = 20
#: Similarities are counted above these multiples of 1/√d; the bound there is e^{−x²}.
THRESHOLDS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
#: What is measured of the scores of a set: moments in the order of `Scores`, then what ranking by them gives.
MEASURED = (*Scores._fields[:4], "retrieved", "failed")
#: How the superposition is kept, and the scores that the formulas expect.
WAYS = {"angles": angle_scores, "sums": sum_scores}


def seed_of(*parts: int) -> int:
    """A seed for a codebook or a generator, from the numbers that name it."""
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


def make(n_labels: int, dim: int, seed: int, length: int | None) -> Codebook:
    """A spectral codebook of this length, or an independent one."""
    if length is None:
        return IndependentCodebook(n_labels, dim, seed, cache=True)
    return SpectralCodebook(n_labels, dim, seed, length=length, cache=True)


def similarities(n_labels: int, dim: int, seed: int, length: int | None) -> Tensor:
    """All similarities of two independent codes; for spectral codes those of the differences 1…M/2."""
    if length is not None:
        frequencies = SpectralCodebook(1, dim, seed, length=length).frequencies
        spectrum = torch.zeros(length // 2 + 1, dtype=torch.complex128)
        spectrum[frequencies] = 1 / (2 * dim)
        values: Tensor = torch.fft.irfft(spectrum, n=length, norm="forward")
        return values[1 : length // 2 + 1]
    codes = IndependentCodebook(n_labels, dim, seed).codes(torch.arange(n_labels))
    pairs = torch.triu_indices(n_labels, n_labels, offset=1)
    return (codes @ codes.mT / dim)[pairs[0], pairs[1]]


def measure_similarities(
    n_labels: int, dim: int, length: int | None, repetitions: int, seed: int
) -> dict[str, Any]:
    """Tails and the largest similarity, over codebooks."""
    above, largest, squares, half = np.zeros(len(THRESHOLDS)), [], [], []
    for number in range(repetitions):
        found = similarities(n_labels, dim, seed_of(seed, dim, length or 0, number), length)
        above += [float((found >= x / dim**0.5).double().mean()) for x in THRESHOLDS]
        largest.append(float(found.max()))
        squares.append(_mean_square(found, length))
        half.append(float(found[-1]) ** 2)
    return {
        "labels": n_labels,
        "dim": dim,
        "M": length,
        "codebooks": repetitions,
        "tails": _digits(above / repetitions),
        "largest": _digits(np.array(largest)),
        "mean_square": summary(np.array(squares)),
        # The difference M/2, whose angles are 0 and π, is twice as noisy; independent codes have no such pair.
        "half_square": None if length is None else summary(np.array(half)),
    }


def _mean_square(found: Tensor, length: int | None) -> float:
    if length is None:
        return float(found.double().square().mean())
    # Over 1…M − 1: all differences occur twice, except for M/2.
    return float((2 * found.square().sum() - found[-1] ** 2) / (length - 1))


def measure_sets(
    n_labels: int, dim: int, length: int | None, stored: Sequence[int], repetitions: int, seed: int
) -> dict[str, Any]:
    """Moments of the scores, and what is retrieved, for angles and for sums, by k."""
    found: dict[tuple[str, int], list[list[float]]] = {}
    for number in range(repetitions):
        own = seed_of(seed, dim, length or 0, number)
        book = make(n_labels, dim, own, length)
        generator = torch.Generator().manual_seed(own)
        order = torch.rand(SETS, n_labels, generator=generator).argsort(-1)
        for k in stored:
            sums = book.superpose(order[:, :k].flatten(), torch.arange(0, SETS * k, k))
            for way, memory in (("angles", circular.pack(circular.unpack(sums))), ("sums", sums)):
                expected = WAYS[way](k, dim, length)
                found.setdefault((way, k), []).append(_of_scores(book.scores(memory), order[:, :k], expected))
    ways: dict[str, Any] = {way: {} for way in WAYS}
    for (way, k), values in found.items():
        ways[way][str(k)] = dict(zip(MEASURED, map(summary, np.array(values).T), strict=True))
    return {"dim": dim, "M": length, "ways": ways}


def _of_scores(scores: Tensor, sets: Tensor, expected: Scores) -> list[float]:
    """The numbers named by `MEASURED`, for the sets of one codebook."""
    scores, k = scores.double(), sets.shape[1]
    is_stored = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, sets, True)
    moments = []
    for part, mean in ((scores[is_stored], expected.stored_mean), (scores[~is_stored], expected.absent_mean)):
        # Deviations from the expected mean: their square is unbiased, however few sets a codebook has.
        moments += [float(part.mean()), float((part - mean).square().mean())]
    hits = is_stored.gather(1, scores.topk(k).indices).sum(1)
    return [*moments, float(hits.sum()) / sets.numel(), float((hits < k).double().mean())]


def patterns(n_labels: int, k: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Sets of k labels, `(SETS, k)`: random ones, and ones whose ids have a pattern; k is a power of two."""

    def start(end: int) -> Tensor:
        return torch.randint(end, (SETS, 1), generator=generator)

    def steps(step: int) -> Tensor:
        return start(n_labels - step * (k - 1)) + step * torch.arange(k)

    bits = n_labels.bit_length() - 1
    free = bits - (k.bit_length() - 1)
    # Subcubes: some bits take all values and the others are fixed, which is what XOR and masks might preserve.
    cubes = []
    for _ in range(SETS):
        places = torch.randperm(bits, generator=generator)
        value = torch.arange(k)
        moving = torch.zeros_like(value)
        for i, place in enumerate(places[free:]):
            moving |= ((value >> i) & 1) << int(place)
        fixed = sum(int(torch.randint(2, (), generator=generator)) << int(place) for place in places[:free])
        cubes.append(moving + fixed)
    return {
        "random": torch.rand(SETS, n_labels, generator=generator).argsort(-1)[:, :k],
        "runs": steps(1),
        "every 2nd": steps(2),
        "every 7th": steps(7),
        "every 30th": steps(30),
        f"aligned blocks of {k}": k * start(n_labels // k) + torch.arange(k),
        "subcubes of the bits": torch.stack(cubes),
    }


def measure_patterns(n_labels: int, dim: int, k: int, repetitions: int, seed: int) -> dict[str, Any]:
    """Percentage retrieved for sets with a pattern, and its difference to random sets, over codebooks."""
    found: dict[str, list[float]] = {}
    for number in range(repetitions):
        own = seed_of(seed, n_labels, number)
        generator = torch.Generator().manual_seed(own)
        book, ordered = (
            kind(n_labels, dim, own, length=n_labels, cache=True) for kind in (SpectralCodebook, InOrder)
        )
        sets = patterns(n_labels, k, generator)
        for name, ids in sets.items():
            found.setdefault(name, []).append(_percent(book, ids))
        found.setdefault("runs, slots in order", []).append(_percent(ordered, sets["runs"]))
        # Someone who knows the seed picks the labels whose slots are a run.
        by_slot = book.slots(torch.arange(n_labels)).argsort()
        found.setdefault("runs of slots, chosen with the seed", []).append(_percent(book, by_slot[sets["runs"]]))
    random = np.array(found["random"])
    return {
        "labels": n_labels,
        "dim": dim,
        "k": k,
        "kinds": {
            name: {"percent": summary(np.array(values)), "ahead": summary(np.array(values) - random)}
            for name, values in found.items()
        },
    }


def _percent(book: Codebook, sets: Tensor) -> float:
    sums = book.superpose(sets.flatten(), torch.arange(0, sets.numel(), sets.shape[1]))
    top = book.scores(circular.pack(circular.unpack(sums))).topk(sets.shape[1]).indices
    return 100 * float((top[:, :, None] == sets[:, None, :]).any(-1).double().mean())


def summary(values: Floats) -> list[float]:
    """Mean and standard error of the codebooks' values."""
    return _digits(np.array([values.mean(), values.std(ddof=1) / len(values) ** 0.5]))


def _digits(values: Floats) -> list[float]:
    return [float(f"{value:.6g}") for value in values]
