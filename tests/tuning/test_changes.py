"""What a search may change, by hand."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from circlet.settings import DEFAULTS
from circlet.tuning.changes import SETTINGS, alternatives, as_options, described, proposals, work

Race = tuple[dict[str, Any], dict[str, Any], float]
ROWS = {
    "epochs": 7, "dropout": 0.3, "first_layer": "sgd", "scaling": "sqrt", "char_ngrams": None, "hidden": (2048,),
    "dim": 800, "batch_size": 128, "lr": 1e-3, "members": 1, "texts": False, "sparse": True, "even": False,
}  # fmt: skip


def test_rows():
    assert set(SETTINGS) <= set(DEFAULTS)
    found = alternatives(ROWS)
    assert found[:3] == [{"epochs": 14, "dropout": 0.5}, {"epochs": 14}, {"dropout": 0.5}]
    assert found[3:5] == [{"first_layer": "same"}, {"scaling": "l2"}]
    assert {"char_ngrams": (3, 5)} not in found  # not texts
    assert {"hidden": (4096,)} in found
    assert found.index({"epochs": 14}) < found.index({"epochs": 4})
    # Strong dropout is not made stronger with longer training.
    assert alternatives({**ROWS, "dropout": 0.8})[0] == {"epochs": 14}


def test_texts_and_dense_rows():
    assert not any("scaling" in change for change in alternatives({**ROWS, "even": True}))
    texts = alternatives({**ROWS, "texts": True})
    assert {"char_ngrams": (3, 5)} in texts
    assert not any("scaling" in change for change in texts)
    dense = alternatives({**ROWS, "sparse": False, "scaling": "standard"})
    assert {"scaling": "l2"} in dense
    assert not any("first_layer" in change for change in dense)


@given(st.integers(1, 100), st.sampled_from([0.0, 0.1, 0.5, 0.9]), st.integers(8, 512))
def test_alternatives_differ_and_are_valid(epochs, dropout, batch_size):
    now = {**ROWS, "epochs": epochs, "dropout": dropout, "batch_size": batch_size}
    for change in alternatives(now):
        for name, value in change.items():
            assert value != now[name]
            if name == "dropout":
                assert 0 <= value < 1
            if name in ("epochs", "batch_size"):
                assert value >= 1


def test_networks_are_averaged_up_to_four():
    assert {"members": 2} in alternatives(ROWS)
    assert {"members": 3} in alternatives({**ROWS, "members": 2})
    assert not any("members" in change for change in alternatives({**ROWS, "members": 4}))


class TestProposals:
    def test_single_changes_come_before_pairs(self):
        leap = {"epochs": 40, "dropout": 0.8}
        found = proposals({}, ROWS, [leap], [])
        assert found[0] == leap
        singles = alternatives(ROWS)
        assert found[1 : len(singles) + 1] == singles
        assert {"scaling": "l2", "members": 2} in found
        assert {"epochs": 14, "dropout": 0.5, "scaling": "l2"} in found  # of a change of two settings, and another

    def test_what_lost_by_more_comes_later(self):
        """Also after other settings have become the best, of which new changes are tried first."""
        best = {"hidden": (4096,)}
        races: list[Race] = [
            ({"dropout": 0.5}, {}, -8.0),
            ({"scaling": "l2"}, {}, -0.1),
            ({"lr": 2e-3}, {}, -0.3),
            ({"epochs": 4}, {}, -math.inf),
            (best, {}, 0.5),
        ]
        found = proposals(best, ROWS, [], races)
        places = [
            found.index({**change, **best})
            for change in (
                {"members": 2}, {"scaling": "l2"}, {"lr": 2e-3}, {"scaling": "l2", "lr": 2e-3}, {"dropout": 0.5},
            )
        ]  # fmt: skip
        assert places == sorted(places)
        assert found[-1]["epochs"] == 4  # which failed
        assert best not in found

    def test_a_pair_that_was_tried_counts_for_itself(self):
        """However bad each of its changes is alone."""
        both = {"dropout": 0.5, "lr": 2e-3}
        alone: list[Race] = [({"dropout": 0.5}, {}, -2.0), ({"lr": 2e-3}, {}, -2.0)]
        late = proposals({}, ROWS, [], alone).index(both)
        early = proposals({}, ROWS, [], [*alone, (both, {}, -0.1)]).index(both)
        assert early < late

    def test_what_is_usual_again_is_not_named(self):
        best = {"epochs": 14, "scaling": "l2"}
        found = proposals(best, ROWS, [], [])
        assert {"scaling": "l2"} in found  # half of the 14 epochs
        assert not any(given.get("epochs") == 7 for given in found)


def test_work():
    assert work({**ROWS, "epochs": 14}) == 2 * work(ROWS)
    assert work({**ROWS, "members": 3}) == 3 * work(ROWS)
    assert work({**ROWS, "batch_size": 32}) == 2 * work(ROWS)
    assert work({**ROWS, "char_ngrams": (3, 5)}) > work(ROWS)
    assert work({**ROWS, "scaling": "l2"}) == work(ROWS)


def test_options():
    given = {"epochs": 14, "hidden": (64, 32), "char_ngrams": None, "first_layer": "same"}
    assert as_options(given) == [
        "--epochs", "14", "--hidden", "64,32", "--char-ngrams", "none", "--first-layer", "same"
    ]  # fmt: skip
    assert described(given) == "epochs 14, hidden 64,32, char_ngrams none, first_layer same"
    assert described({}) == "defaults"
