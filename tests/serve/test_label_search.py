from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from circlet.serve.served import LabelSearch

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


def test_without_counts():
    found = LabelSearch(["b", "a"], None).find("", 5)
    assert found == ([{"label": "b", "documents": None}, {"label": "a", "documents": None}], 2)


def test_limit():
    assert LabelSearch(["b", "a"], None).find("", 0) == ([], 2)
