"""Outcomes survive packing, and intervals say what a bootstrap over documents can say."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from circlet_paper.paired import DEPTH, Difference, compare, pack_hits, right, unpack_hits


@given(arrays.arrays(np.bool_, st.tuples(st.integers(0, 9), st.just(DEPTH))))
def test_outcomes_survive_packing(hits):
    unpacked = unpack_hits(pack_hits(hits))
    # Padding to whole bytes never adds a document: 8 bits are fewer than a row.
    assert unpacked.shape == hits.shape
    assert (unpacked == hits).all()


def test_right_labels_by_hand():
    truth = sp.csr_matrix(np.array([[1, 0, 1], [0, 0, 0]]))
    hits = right(truth, np.array([[2, 1, 0], [0, -1, -1]]))
    assert hits.shape == (2, DEPTH)
    assert hits[:, :3].tolist() == [[True, False, True], [False, False, False]]
    assert not hits[:, 3:].any()


def cell(share: float, n: int = 1000) -> dict:
    hits = np.zeros((n, DEPTH), dtype=np.bool_)
    hits[: round(share * n), 0] = True
    return {"hits": pack_hits(hits)}


class TestCompare:
    def test_a_clear_lead(self):
        gap = compare([cell(0.6)], [cell(0.5)], (1, 5))[1]
        assert gap.mean == pytest.approx(10)
        # The documents differ in a tenth of the cases: √(0.1 · 0.9 / 1000) ≈ 0.95 points, times 1.96.
        assert gap.low == pytest.approx(10 - 1.86, abs=0.25)
        assert gap.high == pytest.approx(10 + 1.86, abs=0.25)
        assert gap.verdict == "ahead"
        assert compare([cell(0.5)], [cell(0.6)], (1,))[1].verdict == "behind"

    def test_precision_counts_all_ranks(self):
        assert compare([cell(0.6)], [cell(0.5)], (5,))[5].mean == pytest.approx(2)

    def test_equal_models_are_not_told_apart(self):
        gap = compare([cell(0.5)], [cell(0.5)], (1,))[1]
        assert (gap.mean, gap.verdict) == (0, "not told apart")

    def test_seeds_are_averaged_by_document(self):
        assert compare([cell(0.6), cell(0.4)], [cell(0.5)], (1,))[1].mean == pytest.approx(0)

    def test_the_same_every_time(self):
        assert compare([cell(0.6)], [cell(0.5)], (1,)) == compare([cell(0.6)], [cell(0.5)], (1,))

    @pytest.mark.parametrize("ours", [[], [{"metrics": {}}], [cell(0.5, n=10)]])
    def test_nothing_without_outcomes_of_the_same_documents(self, ours):
        assert compare(ours, [cell(0.5)], (1,)) == {}


def test_printed():
    assert str(Difference(1.234, -0.5, 3)) == "+1.23 [-0.50, +3.00]"
