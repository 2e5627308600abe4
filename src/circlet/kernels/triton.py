"""Triton kernels; imported only if there is a GPU."""

# No `from __future__ import annotations` here, because Triton reads the annotations of kernels.
from typing import Any, NamedTuple

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
    """Add up the rotated coefficients, `(rows, n)`, at each place of the spectrum, `(rows, pairs, part)`.

    `entries`, int32 `(layers + 1, part)`, say which coefficient each layer adds at each place; −1 means no more,
    and the last layer is all −1. `turns`, `(pairs, n)`, rotate the coefficients. The others are complex64; the
    spectrum is overwritten and returned.
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

    One pass over the scores, `(rows, length)`, finds the best of each group. A tournament among the groups finds
    the k best. `offsets`, `(length,)`, are added to the scores. `labels`, int32 `(length,)`, are those of the
    columns; at least k columns have distinct labels and are better than the others.
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


@triton.jit
def _product_and_loss(
    outputs, codes, factor, bias, gradients, losses, by_scale, by_label, rows, labels, columns, width,
    ROWS: tl.constexpr, LABELS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    # Programs of one column of tiles run one after the other, so that they find its codes in the cache.
    tile, part = tl.program_id(0), tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    row = tile * ROWS + tl.arange(0, ROWS)
    label = tl.program_id(1) * LABELS + tl.arange(0, LABELS)
    own_rows, own_labels = (row % rows)[:, None].to(tl.int64), (label % columns)[None, :].to(tl.int64)
    scores = tl.zeros((ROWS, LABELS), tl.float32)
    for start in range(0, width, DEPTH):
        depth = start + tl.arange(0, DEPTH)
        inside = depth < width
        output = tl.load(outputs + own_rows * width + depth[None, :], mask=inside[None, :], other=0.0)
        code = tl.load(codes + own_labels * width + depth[:, None], mask=inside[:, None], other=0.0)
        scores = tl.dot(output, code, scores)
    scores *= tl.load(factor)
    logits = scores + tl.load(bias + label, mask=label < labels, other=0.0)[None, :]
    real = (row < rows)[:, None] & (label < labels)[None, :]
    # log(1 + eˣ), and its derivative σ(x).
    small = tl.exp(-tl.abs(logits))
    loss = tl.where(real, tl.maximum(logits, 0.0) + tl.log(1.0 + small), 0.0)
    chance = tl.where(real, tl.where(logits < 0, small, 1.0) / (1.0 + small), 0.0)
    target = gradients + row[:, None].to(tl.int64) * columns + label[None, :]
    tl.store(
        target, chance.to(gradients.dtype.element_ty), mask=(row < rows)[:, None] & (label < columns)[None, :]
    )
    tl.store(by_label + tile * labels + label, tl.sum(chance, axis=0), mask=label < labels)
    tl.store(losses + part, tl.sum(tl.sum(loss, axis=1), axis=0))
    tl.store(by_scale + part, tl.sum(tl.sum(chance * scores, axis=1), axis=0))


@triton.jit
def _true_labels(
    outputs, codes, factor, bias, ids, documents, weights, gradients, losses, by_scale, columns, width,
    DEPTH: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0)
    weight = tl.load(weights + place)
    score, offset = 0.0, 0.0
    if weight != 0:  # labels that only fill a set up may be repetitions, and must not write
        document, label = tl.load(documents + place), tl.load(ids + place)
        for start in range(0, width, DEPTH):
            depth = start + tl.arange(0, DEPTH)
            output = tl.load(outputs + document * width + depth, mask=depth < width, other=0.0).to(tl.float32)
            code = tl.load(codes + label * width + depth, mask=depth < width, other=0.0).to(tl.float32)
            score += tl.sum(output * code, axis=0)
        score *= tl.load(factor)
        offset = tl.load(bias + label)
        # Not the chance that was written: it is rounded, and may be nearly 1.
        gradient = 1.0 / (1.0 + tl.exp(-(score + offset))) - weight
        tl.store(gradients + document * columns + label, gradient.to(gradients.dtype.element_ty))
    tl.store(losses + place, -weight * (score + offset))
    tl.store(by_scale + place, -weight * score)


class BinaryLoss(NamedTuple):
    """The sum of the binary cross-entropies of a batch, and its derivatives."""

    value: Tensor
    #: With respect to each logit, `(batch, len(codes))`, in the type of the outputs; 0 where there is no label.
    by_logit: Tensor
    #: With respect to the bias of each label, `(n_labels,)`.
    by_label: Tensor
    #: With respect to the logarithm of the factor, `()`.
    by_log_factor: Tensor


def binary_loss(
    outputs: Tensor, codes: Tensor, factor: Tensor, bias: Tensor, ids: Tensor, documents: Tensor, weights: Tensor
) -> BinaryLoss:
    """Binary cross-entropy of all labels of a batch, whose logits are `factor · outputs @ codes.T + bias`.

    Logits are summed in float32 and never written: each tile of the product goes through the loss at once.

    `outputs`, `(batch, width)`, and `codes`, `(at least n_labels, width)`, are of one type, usually bfloat16; rows
    after the labels' only make products faster. `factor`, `()`, and `bias`, `(n_labels,)`, are float32. `ids` and
    `documents`, int64 `(total,)`, are the labels of all documents, and the document of each. `weights`, float32
    `(total,)`, are 0 for labels that only fill sets up, 1 for all others, which a document has once each.
    """
    (rows, width), labels, columns = outputs.shape, len(bias), len(codes)
    # A kernel steps through memory; those of a single document, for one, may be one number expanded.
    outputs, ids, documents, weights = (each.contiguous() for each in (outputs, ids, documents, weights))
    row_block, label_block = min(128, max(16, triton.next_power_of_2(rows))), 128
    tiles = triton.cdiv(rows, row_block), triton.cdiv(columns, label_block)
    place = {"device": outputs.device, "dtype": torch.float32}
    by_logit = torch.empty(rows, columns, device=outputs.device, dtype=outputs.dtype)
    # Sums of all tiles, then of all true labels: added up in one order, they are always the same.
    sums, n = torch.empty(2, tiles[0] * tiles[1] + len(ids), **place), tiles[0] * tiles[1]
    by_tile = torch.empty(tiles[0], labels, **place)
    with torch.cuda.device_of(outputs):
        _product_and_loss[tiles](
            outputs, codes, factor, bias, by_logit, sums[0], sums[1], by_tile, rows, labels, columns, width,
            ROWS=row_block, LABELS=label_block, DEPTH=64, num_warps=8, num_stages=4,
        )  # fmt: skip
        by_label = by_tile.sum(dim=0)
        if len(ids):
            _true_labels[(len(ids),)](
                outputs, codes, factor, bias, ids, documents, weights, by_logit, sums[0, n:], sums[1, n:], columns,
                width, DEPTH=1024, num_warps=4,
            )  # fmt: skip
            by_label.index_add_(0, ids, weights, alpha=-1)
    loss, by_log_factor = sums.sum(dim=1).unbind()
    return BinaryLoss(loss, by_logit, by_label, by_log_factor)


@triton.jit
def _dense_rows(rows, starts, counts, columns, values, dense, n_features, ENTRIES: tl.constexpr):
    row = tl.load(rows + tl.program_id(0))
    place = tl.program_id(1) * ENTRIES + tl.arange(0, ENTRIES)
    inside = place < tl.load(counts + row)
    place += tl.load(starts + row)
    column = tl.load(columns + place, mask=inside, other=0)
    value = tl.load(values + place, mask=inside, other=0.0)
    target = dense + tl.program_id(0).to(tl.int64) * n_features + column
    tl.store(target, value.to(dense.dtype.element_ty), mask=inside)


def write_rows(
    rows: Tensor, starts: Tensor, counts: Tensor, columns: Tensor, values: Tensor, longest: int, dense: Tensor
) -> Tensor:
    """Write the entries of some rows of a sparse matrix into zeros, `(len(rows), n_features)`, which are returned.

    `starts` and `counts` say where the entries of each of the matrix's rows are in `columns` and `values`; no row
    has more than `longest`.
    """
    entries = 256
    with torch.cuda.device_of(dense):
        _dense_rows[(len(rows), triton.cdiv(longest, entries))](
            rows, starts, counts, columns, values, dense, dense.shape[1], ENTRIES=entries, num_warps=2
        )
    return dense
