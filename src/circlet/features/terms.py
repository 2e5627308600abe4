"""The terms of a text, and how often known ones occur.

Exactly the terms that scikit-learn's `TfidfVectorizer` finds when it learns the vocabulary. But importing it takes
longer than tagging a text, and tagging needs nothing else from it.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable

import numpy as np
from scipy.sparse import csr_matrix

__all__ = ["characters", "count", "words"]

_SPACES = re.compile(r"\s\s+")
Terms = Callable[[str], list[str]]


def words(pattern: str, shortest: int, longest: int) -> Terms:
    """A function from a text to its runs of words, joined by spaces."""
    find = re.compile(pattern).findall

    def terms(text: str) -> list[str]:
        found: list[str] = find(text)
        runs = found if shortest == 1 else []
        for size in range(max(shortest, 2), min(longest, len(found)) + 1):
            runs = runs + [" ".join(found[start : start + size]) for start in range(len(found) - size + 1)]
        return runs

    return terms


def characters(shortest: int, longest: int) -> Terms:
    """A function from a text to its runs of characters within words, which get a space at both ends."""

    def terms(text: str) -> list[str]:
        runs: list[str] = []
        for word in _SPACES.sub(" ", text).split():
            padded = f" {word} "
            for size in range(shortest, longest + 1):
                runs += [padded[start : start + size] for start in range(max(1, len(padded) - size + 1))]
                if size >= len(padded):  # a short word counts once
                    break
        return runs

    return terms


def count(texts: Iterable[str], terms: Terms, vocabulary: dict[str, int]) -> csr_matrix:
    """How often each term of a vocabulary occurs in each text, `(n_texts, len(vocabulary))`."""
    columns, counts, ends = array("i"), array("d"), array("q", [0])
    for text in texts:
        seen: dict[int, int] = {}
        for term in terms(text):
            column = vocabulary.get(term)
            if column is not None:
                seen[column] = seen.get(column, 0) + 1
        columns.extend(seen.keys())
        counts.extend(seen.values())
        ends.append(len(columns))
    arrays = (
        np.frombuffer(counts, dtype=np.float64),
        np.frombuffer(columns, dtype=np.intc),
        np.frombuffer(ends, dtype=np.int64),
    )
    rows = csr_matrix(arrays, shape=(len(ends) - 1, len(vocabulary)), copy=True)
    rows.sort_indices()
    return rows
