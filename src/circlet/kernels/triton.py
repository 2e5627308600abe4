"""Triton kernels; imported only if there is a GPU."""

# No `from __future__ import annotations` here, because Triton reads the annotations of kernels.
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit
def _adadelta(weights, gradients, squares, deltas, rate, n, rho, eps, decay, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < n
    weight = tl.load(weights + place, mask=inside)
    gradient = tl.load(gradients + place, mask=inside) + decay * weight
    square = rho * tl.load(squares + place, mask=inside) + (1 - rho) * gradient * gradient
    before = tl.load(deltas + place, mask=inside)
    delta = tl.sqrt(before + eps) / tl.sqrt(square + eps) * gradient
    tl.store(squares + place, square, mask=inside)
    tl.store(deltas + place, rho * before + (1 - rho) * delta * delta, mask=inside)
    tl.store(weights + place, weight - tl.load(rate) * delta, mask=inside)


def adadelta(weight: Tensor, gradient: Tensor, squares: Tensor, deltas: Tensor, group: dict[str, Any]) -> None:
    """One step of Adadelta in place: torch's arithmetic in one pass, with the rate read from the device."""
    n = weight.numel()
    with torch.cuda.device_of(weight):
        _adadelta[(triton.cdiv(n, BLOCK),)](
            weight, gradient.contiguous(), squares, deltas, group["lr"], n, group["rho"], group["eps"],
            group["weight_decay"], BLOCK=BLOCK,
        )  # fmt: skip


@triton.jit
def _complex(pointers, mask):
    # Real and imaginary part in one load of eight bytes.
    both = tl.load(pointers, mask=mask, other=0)
    return both.to(tl.int32).to(tl.float32, bitcast=True), (both >> 32).to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def _spectrum(
    coefficients, entries, turns, spectrum, rows, n, pairs, part, ROWS: tl.constexpr, PLACES: tl.constexpr
):
    place = tl.program_id(0) * PLACES + tl.arange(0, PLACES)
    pair = tl.program_id(1)
    row = (tl.program_id(2) * ROWS + tl.arange(0, ROWS))[:, None].to(tl.int64)
    coefficients += tl.minimum(row, rows - 1) * n
    real = tl.zeros((ROWS, PLACES), tl.float32)
    imaginary = tl.zeros((ROWS, PLACES), tl.float32)
    entry = tl.load(entries + place, mask=place < part, other=-1)
    while tl.max(entry, axis=0) >= 0:
        a, b = _complex(turns + pair * n + entry, entry >= 0)
        c, d = _complex(coefficients + entry, entry >= 0)
        # Separate statements, so that a multiplication and an addition become one instruction.
        real += a * c
        real -= b * d
        imaginary += a * d
        imaginary += b * c
        entries += part
        entry = tl.load(entries + place, mask=place < part, other=-1)
    number = tl.program_id(0) * 2 * PLACES + tl.arange(0, 2 * PLACES)
    target = spectrum + (row * pairs + pair) * 2 * part + number
    tl.store(target, tl.interleave(real, imaginary), mask=(row < rows) & (number < 2 * part))


def write_spectrum(coefficients: Tensor, entries: Tensor, turns: Tensor, spectrum: Tensor) -> Tensor:
    """Add up the rotated coefficients at each place.

    Parameters
    ----------
    coefficients : Tensor of shape (rows, n), complex64
    entries : Tensor of shape (layers + 1, part), int32
        Which coefficient each layer adds at each place; −1 means no more. The last layer is all −1.
    turns : Tensor of shape (pairs, n), complex64
        Factors that rotate the coefficients.
    spectrum : Tensor of shape (rows, pairs, part), complex64
        Overwritten and returned.
    """
    rows, pairs, part = spectrum.shape
    # The rows of a program share its loads of turns, and its few places have few layers.
    row_block, places = 8, 32
    with torch.cuda.device_of(spectrum):
        _spectrum[(triton.cdiv(part, places), pairs, triton.cdiv(rows, row_block))](
            coefficients.view(torch.int64), entries, turns.view(torch.int64), torch.view_as_real(spectrum), rows,
            turns.shape[1], pairs, part, ROWS=row_block, PLACES=places, num_warps=1,
        )  # fmt: skip
    return spectrum


@triton.jit
def _key(score, label):
    # The upper bits are the score as an integer in the same order, the lower bits order ids descending: a larger
    # key is a better label.
    bits = tl.where(score == 0, 0.0, score).to(tl.int32, bitcast=True)  # −0 is 0
    return (tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int64) << 32) - label


@triton.jit
def _group_keys(scores, offsets, labels, keys, rows, length, groups, ROWS: tl.constexpr, GROUP: tl.constexpr):
    place = tl.program_id(0) * GROUP + tl.arange(0, GROUP)
    inside = place < length
    # Rows share these loads.
    offset = tl.load(offsets + place, mask=inside, other=-float("inf"))
    label = tl.load(labels + place, mask=inside, other=0x7FFFFFFF)
    first = tl.program_id(1).to(tl.int64) * ROWS
    for row in range(first, tl.minimum(first + ROWS, rows)):
        score = tl.load(scores + row * length + place, mask=inside, other=0.0) + offset
        largest = tl.max(score, axis=0)
        lowest = tl.min(tl.where(score < largest, 0x7FFFFFFF, label), axis=0)
        tl.store(keys + row * groups + tl.program_id(0), _key(largest, lowest))


@triton.jit
def _tournament(
    scores, offsets, labels, keys, ids, values, length, groups, k, GROUPS: tl.constexpr, GROUP: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    none: tl.constexpr = -(1 << 63)
    group = tl.arange(0, GROUPS)
    leaders = tl.load(keys + row * groups + group, mask=group < groups, other=none)
    for place in range(k):
        first = tl.max(leaders, axis=0)
        label = -first & 0xFFFFFFFF
        bits = ((first + label) >> 32).to(tl.int32)
        tl.store(ids + row * k + place, label)
        bits = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
        tl.store(values + row * k + place, bits.to(tl.float32, bitcast=True))
        # The next best of the winner's group takes its place.
        winner = tl.min(tl.where(leaders == first, group, GROUPS), axis=0)
        column = winner * GROUP + tl.arange(0, GROUP)
        inside = column < length
        others = tl.load(scores + row * length + column, mask=inside, other=0.0)
        others += tl.load(offsets + column, mask=inside, other=-float("inf"))
        key = _key(others, tl.load(labels + column, mask=inside, other=0x7FFFFFFF))
        leaders = tl.where(group == winner, tl.max(tl.where(key < first, key, none), axis=0), leaders)


def best(scores: Tensor, offsets: Tensor, labels: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best labels of each row and their scores; among equal scores the lower id comes first.

    One pass over the scores finds the best of each group. A tournament among the groups finds the k best.

    Parameters
    ----------
    scores : Tensor of shape (rows, length)
    offsets : Tensor of shape (length,)
        Added to the scores of each column.
    labels : Tensor of shape (length,), int32
        The label of each column. At least k columns have distinct labels and are better than the others.
    """
    rows, length = scores.shape
    # Few enough groups that the leaders of all fit into one program's registers.
    group = max(512, triton.next_power_of_2(triton.cdiv(length, 8192)))
    groups, row_block = triton.cdiv(length, group), 32
    keys = torch.empty(rows, groups, dtype=torch.int64, device=scores.device)
    ids = torch.empty(rows, k, dtype=torch.int64, device=scores.device)
    values = torch.empty(rows, k, device=scores.device)
    with torch.cuda.device_of(scores):
        # A single warp finds the best of its group without waiting for others.
        _group_keys[(groups, triton.cdiv(rows, row_block))](
            scores, offsets, labels, keys, rows, length, groups, ROWS=row_block, GROUP=group,
            num_warps=min(group // 512, 16),
        )  # fmt: skip
        _tournament[(rows,)](
            scores, offsets, labels, keys, ids, values, length, groups, k, GROUPS=triton.next_power_of_2(groups),
            GROUP=group, num_warps=8,
        )  # fmt: skip
    return ids, values
