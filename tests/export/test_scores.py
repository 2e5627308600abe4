from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import expit, logit

from circlet.codebooks import SpectralCodebook
from circlet.export.graph import Graph, mean_log_odds, scores
from circlet.export.saved import Member, Series
from circlet.settings import NetworkSettings

pytestmark = pytest.mark.usefixtures("one_thread")
PLAIN = Member(NetworkSettings(), [], [], None, 1.0, None, (1.0, 0.0))


def run(graph: Graph, output: str, **feeds: np.ndarray) -> np.ndarray:
    graph.add("Identity", output, name="y")
    graph.output("y", np.float32, ["batch", "n"], "")
    return onnxruntime.InferenceSession(graph.model({}).SerializeToString()).run(None, feeds)[0]


def series(book: SpectralCodebook) -> Series:
    slots = book.slots(torch.arange(book.n_labels))
    return Series(book.frequencies.numpy(), slots.numpy(), book.length)


class TestSpectral:
    @given(
        n_labels=st.integers(1, 300),
        dim=st.integers(1, 40),
        more=st.integers(0, 200),
        seed=st.integers(0, 1000),
    )
    def test_are_the_codebooks(self, n_labels, dim, more, seed):
        """For lengths with and without divisors: the graph does not need any."""
        length = max(n_labels, 2 * (dim + 1)) + more
        book = SpectralCodebook(n_labels, dim, seed, length=length + length % 2)
        phasors = torch.randn(3, 2 * dim, generator=torch.Generator().manual_seed(seed))
        graph = Graph()
        output = graph.input("x", np.float32, ["batch", 2 * dim], "")
        found = scores(graph, output, replace(PLAIN, codes=series(book)))
        wanted = book.scores(phasors).numpy()
        np.testing.assert_allclose(run(graph, found, x=phasors.numpy()), wanted, atol=2e-6 * np.abs(wanted).max())

    def test_digits_of_large_angles(self):
        book = SpectralCodebook(200_000, 64, 0, length=299_998)  # twice a prime
        best = torch.tensor([0, 77_777, 199_999])
        graph = Graph()
        output = graph.input("x", np.float32, ["batch", 128], "")
        codes = book.codes(best)
        found = run(graph, scores(graph, output, replace(PLAIN, codes=series(book))), x=codes.numpy())
        np.testing.assert_allclose(found, book.scores(codes).numpy(), atol=2e-6)
        assert found.argmax(axis=1).tolist() == best.tolist()

    def test_constants_do_not_grow_with_labels_times_dim(self):
        book = SpectralCodebook(100_000, 200, 0)
        graph = Graph()
        output = graph.input("x", np.float32, ["batch", 400], "")
        scores(graph, output, replace(PLAIN, codes=series(book)))
        size = sum(len(each.raw_data) for each in graph._constants)
        assert size < 4 * book.length + 5 * 400 * 4 * book.length**0.5
        assert size < 100_000 * 400 * 4 / 50

    def test_scale_and_bias(self):
        book = SpectralCodebook(7, 3, 0)
        bias = np.arange(7, dtype=np.float32)
        member = replace(PLAIN, codes=series(book), scale=2.5, bias=bias)
        phasors = book.codes(torch.tensor([2]))
        graph = Graph()
        found = run(
            graph, scores(graph, graph.input("x", np.float32, ["batch", 6], ""), member), x=phasors.numpy()
        )
        np.testing.assert_allclose(found, 2.5 * book.scores(phasors).numpy() + bias, rtol=1e-5, atol=1e-5)


class TestMeanLogOdds:
    def of(self, columns: np.ndarray, curves: list[tuple[float, float]]) -> np.ndarray:
        """From the scores of several networks, `(members, n)`."""
        graph = Graph()
        parts = [graph.input(f"x{i}", np.float32, ["batch", "n"], "") for i in range(len(columns))]
        members = [replace(PLAIN, calibration=curve) for curve in curves]
        feeds = {f"x{i}": np.float32(column)[None] for i, column in enumerate(columns)}
        return run(graph, mean_log_odds(graph, parts, members), **feeds)[0]

    def test_solved_by_hand(self):
        logits = np.array([[log(0.2 / 0.8), 0.0], [log(0.6 / 0.4), log(3)]])
        expected = [log(0.4 / 0.6), log(0.625 / 0.375)]
        np.testing.assert_allclose(self.of(logits, [(1, 0), (1, 0)]), expected, rtol=1e-5)
        curves = [(2.0, 1.0), (0.5, -3.0)]
        scores = [(row - intercept) / slope for row, (slope, intercept) in zip(logits, curves, strict=True)]
        np.testing.assert_allclose(self.of(np.array(scores), curves), expected, rtol=1e-5)

    @pytest.mark.parametrize(
        ("logits", "expected"),
        [
            ([1000.0, 1000.0], 1000.0),
            ([-1000.0, -1000.0], -1000.0),
            ([500.0, -500.0], 0.0),
            ([1e30, 1e30], 1e30),
            ([-200.0, -1e30], -200 - log(2)),  # half of e⁻²⁰⁰
            ([100.0, 90.0, 90.0], 90 + log(3 / 2)),
        ],
    )
    def test_next_to_0_and_1_nothing_is_rounded(self, logits, expected):
        found = self.of(np.array(logits)[:, None], [(1.0, 0.0)] * len(logits))
        assert found[0] == pytest.approx(expected, rel=1e-6)

    @given(st.lists(st.lists(st.floats(-15, 15, width=32), min_size=5, max_size=5), min_size=2, max_size=3))
    def test_is_the_mean_of_probabilities(self, logits):
        mean = expit(np.array(logits)).mean(axis=0)
        assume(((mean > 1e-6) & (mean < 1 - 1e-6)).all())
        found = self.of(np.array(logits), [(1.0, 0.0)] * len(logits))
        np.testing.assert_allclose(found, logit(mean), rtol=1e-4, atol=1e-5)
