from __future__ import annotations

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from circlet.runtime import load
from circlet.serve.served import LabelSearch, Options, Served, Snapshot


def test_load(folder):
    made = Served.load(folder, "name")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert made.current.version == config["sha256"][:12]
    assert made.summary()["id"] == "name"
    assert made.card()["can_learn"] is False
    json.dumps(made.card(), allow_nan=False)
    # Equal options of one version are computed together.
    now, other = made.current, Served.load(folder, "name").current
    assert now.suggesting(Options(2))[0] == now.suggesting(Options(2))[0]
    assert now.suggesting(Options(2))[0] not in (now.suggesting(Options(3))[0], other.suggesting(Options(2))[0])


def test_labels_without_names(shared, tmp_path):
    shared("sparse", names=False).save(tmp_path / "rows")
    now = Snapshot(load(tmp_path / "rows"), "v")
    assert now.names == ["0", "1", "2", "3", "4", "5"]
    assert now.labels["3"] == 3
    assert now.takes == "rows"
    (best, _) = now.suggest(Options(2), [{0: 2.0}])[0]
    assert isinstance(best.label, int)
    assert 0 < best.score < 1


NAMES = st.lists(st.text("aAbBß ", min_size=1, max_size=5), min_size=1, max_size=20, unique=True)


def by_hand(names, counts, query):
    query = query.casefold().strip()
    order = sorted(range(len(names)), key=lambda i: -counts[i])
    first = [i for i in order if names[i].casefold().startswith(query)]
    return [names[i] for i in [*first, *(i for i in order if query in names[i].casefold() and i not in first)]]


@given(NAMES, st.text("aAbßS", max_size=3), st.randoms(use_true_random=False))
def test_against_a_plain_search(names, query, random):
    counts = [random.randint(1, 4) for _ in names]
    found, total = LabelSearch(names, np.array(counts)).find(query, 3)
    wanted = by_hand(names, counts, query)
    assert [each["label"] for each in found] == wanted[:3]
    assert total == len(wanted)


def test_without_counts_and_at_most_none():
    search = LabelSearch(["b", "a"], None)
    assert search.find("", 5) == ([{"label": "b", "documents": None}, {"label": "a", "documents": None}], 2)
    assert search.find("", 0) == ([], 2)
