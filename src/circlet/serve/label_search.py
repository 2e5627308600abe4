"""Find labels by a part of their names, however many there are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["LabelSearch"]


class LabelSearch:
    """The names of labels, the most frequent first, as one text that is searched at the speed of C.

    Parameters
    ----------
    names : list of str
    counts : int ndarray of shape (n_labels,) or None
        How many documents have each label.

    >>> search = LabelSearch(["cats", "Cat", "wildcat", "dog"], np.array([1, 5, 9, 2]))
    >>> search.find("cat", 2)
    ([{'label': 'Cat', 'documents': 5}, {'label': 'cats', 'documents': 1}], 3)
    """

    def __init__(self, names: list[str], counts: npt.NDArray[np.int64] | None) -> None:
        order = range(len(names)) if counts is None else np.argsort(-counts, kind="stable").tolist()
        self._names = [names[i] for i in order]
        self._counts = [None] * len(names) if counts is None else [int(counts[i]) for i in order]
        folded = [name.casefold().replace("\n", " ") for name in self._names]
        self._text = "\n" + "\n".join(folded) + "\n"
        #: Where each name starts.
        self._starts = list(accumulate((len(name) + 1 for name in folded[:-1]), initial=1))
        self._ranked = lru_cache(maxsize=64)(self._rank)

    def find(self, query: str, limit: int) -> tuple[list[dict[str, Any]], int]:
        """Labels whose names start with the query, then those that contain it, and how many they are in all."""
        found = self._ranked(query.casefold().strip().replace("\n", " "))
        return [{"label": self._names[i], "documents": self._counts[i]} for i in found[:limit]], len(found)

    def _rank(self, query: str) -> range | list[int]:
        if not query:
            return range(len(self._names))
        first = list(self._lines_with("\n" + query, 1))
        known = set(first)
        return first + [line for line in self._lines_with(query, 0) if line not in known]

    def _lines_with(self, part: str, offset: int) -> Iterator[int]:
        """The names that have a part; their first letter is `offset` characters behind where it is found."""
        at = self._text.find(part)
        while at >= 0:
            line = bisect_right(self._starts, at + offset) - 1
            yield line
            end = self._starts[line + 1] - 1 if line + 1 < len(self._starts) else len(self._text)
            at = self._text.find(part, end)
