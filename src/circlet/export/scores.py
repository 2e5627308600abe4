"""From heads' outputs to the scores of all labels, as nodes of a graph.

**A spectral codebook without a table or a transform.** The code of slot s has the angles 2π · s · f / M. Write s
as a + A · b, with a below A ≈ √M. Then its code is that of slot a bound with that of slot A · b. So its similarity
to a prediction is the similarity of the prediction, unbound from the code of a, to the code of A · b. The graph
unbinds a prediction from the codes of the slots 0…A−1, and one matrix product compares the results with the codes
of the slots 0, A, 2A, …: this gives the scores of all M slots from a table of about 2√M codes.

ONNX has an operator for the Fourier transform that circlet itself uses, but it is of no use here: codebooks rarely
have a power of two as their length, and for other lengths onnxruntime's transform in float32 loses most digits.
"""

from __future__ import annotations

import math

import numpy as np

from circlet.export.graph import Graph
from circlet.export.saved import Floats, Member, Series, Table

__all__ = ["mean_log_odds", "scores"]


def scores(graph: Graph, output: str, member: Member) -> str:
    """The scores that one network gives all labels, `(batch, n_labels)`, from its head's output."""
    if member.codes is None:
        return output
    found = _with_sign(graph, output, member, member.codes)
    return graph.add("Abs", found) if member.settings.absolute else found


def _with_sign(graph: Graph, output: str, member: Member, codes: Series | Table) -> str:
    if isinstance(codes, Table):
        bias = () if member.bias is None else (member.bias,)
        factor = codes.scale * member.scale
        return graph.add("Gemm", output, codes.codes, *bias, transB=1, alpha=factor)
    similarities = _of_series(graph, output, codes, member.scale)
    return similarities if member.bias is None else graph.add("Add", similarities, member.bias)


def _of_series(graph: Graph, phasors: str, codes: Series, scale: float) -> str:
    """Similarities of packed predictions to all labels, times `scale`."""
    steps = math.isqrt(codes.length)
    strides = -(-codes.length // steps)
    # For cos(θ − α): e^{i(θ − α)} is (cos θ cos α + sin θ sin α) + i (sin θ cos α − cos θ sin α).
    cos, sin = _angles(codes, np.arange(steps))
    swapped = graph.add("Concat", *reversed(graph.halves(phasors)), axis=1)
    middle = np.array([1])
    unbound = graph.add(
        "Add",
        graph.add("Mul", graph.add("Unsqueeze", phasors, middle), np.hstack([cos, cos])),
        graph.add("Mul", graph.add("Unsqueeze", swapped, middle), np.hstack([sin, -sin])),
    )
    cos, sin = _angles(codes, steps * np.arange(strides))
    factor = np.float32(scale / len(codes.frequencies))
    by_slot = graph.add("MatMul", unbound, factor * np.hstack([cos, sin]).T)
    flat = graph.add("Reshape", by_slot, np.array([-1, steps * strides]))
    places = codes.slots % steps * strides + codes.slots // steps
    return graph.add("Gather", flat, places.astype(np.int32), axis=1)


def _angles(codes: Series, slots: np.ndarray) -> tuple[Floats, Floats]:
    """Cosines and sines of the codes of slots, `(slots, dim)` each."""
    # Full turns are removed while numbers are integers, so that large angles lose no digits.
    turns = slots[:, None] % codes.length * codes.frequencies % codes.length
    theta = turns * (2 * math.pi / codes.length)
    return np.cos(theta).astype(np.float32), np.sin(theta).astype(np.float32)


def mean_log_odds(graph: Graph, parts: list[str], members: list[Member]) -> str:
    """Log-odds of the mean of the probabilities that several networks give all labels, from their scores.

    As in `circlet.network.ensemble`, with sums of logarithms.
    """
    true = false = ""
    for part, member in zip(parts, members, strict=True):
        slope, intercept = (np.float32(number) for number in member.calibration)
        logit = graph.add("Add", graph.add("Mul", part, slope), intercept)
        # log σ(x) = min(x, 0) − log(1 + e^{−|x|})
        log_true = graph.add("Sub", graph.add("Min", logit, np.float32(0)), _log_1p_exp_minus_abs(graph, logit))
        log_false = graph.add("Sub", log_true, logit)
        true = _log_sum(graph, true, log_true) if true else log_true
        false = _log_sum(graph, false, log_false) if false else log_false
    return graph.add("Sub", true, false)


def _log_sum(graph: Graph, a: str, b: str) -> str:
    difference = graph.add("Sub", a, b)
    return graph.add("Add", graph.add("Max", a, b), _log_1p_exp_minus_abs(graph, difference))


def _log_1p_exp_minus_abs(graph: Graph, x: str) -> str:
    power = graph.add("Exp", graph.add("Neg", graph.add("Abs", x)))
    return graph.add("Log", graph.add("Add", power, np.float32(1)))
