"""Means of runs, outcomes that survive packing, and what a bootstrap over documents and seeds can say."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from circlet_paper.runs import (
    DEPTH,
    Difference,
    Runs,
    compare,
    millions,
    pack_hits,
    right,
    runs,
    shown,
    unpack_hits,
    verdict,
)
from circlet_paper.training_cells import Recipe, Settings


def test_mean_and_deviation_by_hand():
    cells = [
        {"cell": f"a-{i}", "metrics": {"P@1": v}, "parameters": {"total": 7}} for i, v in enumerate((1, 2, 6))
    ]
    these = Runs(cells)
    assert these.mean("P@1") == 3
    assert these.sd("P@1") == pytest.approx(7**0.5)  # (4 + 1 + 9) / 2
    assert these.show("P@1") == "3.0 ± 2.6"
    assert these.parameters == 7
    assert Runs(cells[:1]).show("P@1") == "1.0"
    assert shown(75.24, 0.31) == "75.2 ± 0.3"
    assert millions(5_123_456) == "5.1 M"
    assert millions(999) == "0.001 M"


def test_runs_are_found_by_their_cells():
    recipe = Recipe("CHRR", "paper")
    cells = recipe.cells("delicious", Settings())
    result = {"cells": [{"cell": cells[1].name}, {"cell": "another"}]}
    assert runs(result, cells).cells == [{"cell": cells[1].name}]
    assert runs(result, recipe.cells("eurlex-4k", Settings())) is None


def test_a_claim_without_a_comparison_is_not_judged():
    assert [verdict(0, 0), verdict(2, 2), verdict(1, 2), verdict(0, 2)] == ["not measured", "yes", "partly", "no"]


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


def with_hits(share: float, n: int = 1000) -> dict:
    hits = np.zeros((n, DEPTH), dtype=np.bool_)
    hits[: round(share * n), 0] = True
    return {"hits": pack_hits(hits)}


class TestCompare:
    def test_a_clear_lead(self):
        gap = compare([with_hits(0.6)], [with_hits(0.5)], (1, 5))[1]
        assert gap.mean == pytest.approx(10)
        # The documents differ in a tenth of the cases: √(0.1 · 0.9 / 1000) ≈ 0.95 points, times 1.96.
        assert gap.low == pytest.approx(10 - 1.86, abs=0.25)
        assert gap.high == pytest.approx(10 + 1.86, abs=0.25)
        assert gap.verdict == "ahead"
        assert compare([with_hits(0.5)], [with_hits(0.6)], (1,))[1].verdict == "behind"

    def test_precision_counts_all_ranks(self):
        assert compare([with_hits(0.6)], [with_hits(0.5)], (5,))[5].mean == pytest.approx(2)

    def test_equal_models_are_not_told_apart(self):
        gap = compare([with_hits(0.5)], [with_hits(0.5)], (1,))[1]
        assert (gap.mean, gap.verdict) == (0, "not told apart")

    def test_seeds_widen_the_interval(self):
        ours, theirs = [with_hits(share) for share in (0.56, 0.6, 0.64)], [with_hits(0.5)] * 3
        gap = compare(ours, theirs, (1,))[1]
        assert gap.mean == pytest.approx(10)
        # Documents add 0.95² to the variance, as above, and three seeds with a deviation of 4 points 4² / 3.
        assert gap.high - gap.low == pytest.approx(2 * 1.96 * (0.95**2 + 16 / 3) ** 0.5, rel=0.1)

    def test_seeds_are_averaged_by_document(self):
        assert compare([with_hits(0.6), with_hits(0.4)], [with_hits(0.5)], (1,))[1].mean == pytest.approx(0)

    def test_the_same_every_time(self):
        assert compare([with_hits(0.6)], [with_hits(0.5)], (1,)) == compare(
            [with_hits(0.6)], [with_hits(0.5)], (1,)
        )

    @pytest.mark.parametrize("ours", [[], [{"metrics": {}}], [with_hits(0.5, n=10)]])
    def test_nothing_without_outcomes_of_the_same_documents(self, ours):
        assert compare(ours, [with_hits(0.5)], (1,)) == {}


def test_printed():
    assert str(Difference(1.234, -0.5, 3)) == "+1.23 [-0.50, +3.00]"
