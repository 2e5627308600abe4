"""The terms of a text, and how often known ones occur.

Exactly the terms that scikit-learn's `TfidfVectorizer` finds when it learns the vocabulary. But importing it takes
longer than tagging a text, and tagging needs nothing else from it.
"""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cache
from itertools import chain, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Characters", "Terms", "Vocabulary", "Words", "word_pattern", "words_in"]

#: Letters that are words: Han (with its radicals, 々 and 〇) and Hiragana.
IDEOGRAPHS = "\u2e80-\u2fdf\u3005\u3007\u3040-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
#: What `word_pattern` comes down to where there are neither ideographs nor combining marks.
_ASCII_WORD = re.compile(r"\w+", re.ASCII)
#: Words whose runs of characters are remembered at a time, some megabytes of them.
_REMEMBERED = 1 << 14


class Terms(ABC):
    """Finds the terms of a text: its pieces, and the terms of each piece or of several in a row.

    Parameters
    ----------
    shortest, longest : int
        Sizes of the runs that are terms.
    """

    def __init__(self, shortest: int, longest: int) -> None:
        self.shortest, self.longest = shortest, longest

    @abstractmethod
    def __call__(self, text: str) -> list[str]:
        """All terms of a text, repeated ones included."""

    @abstractmethod
    def columns(self, text: str, vocabulary: Vocabulary) -> npt.NDArray[np.intc]:
        """The columns of all terms of a text, in any order; −1 for those that are not in the vocabulary."""


class Words(Terms):
    """Runs of words, joined by spaces; `word_pattern` says what a word is."""

    def __call__(self, text: str) -> list[str]:
        found: list[str] = _pattern_for(text).findall(text)
        runs = found if self.shortest == 1 else []
        for size in range(max(self.shortest, 2), min(self.longest, len(found)) + 1):
            runs = runs + [" ".join(found[start : start + size]) for start in range(len(found) - size + 1)]
        return runs

    def columns(self, text: str, vocabulary: Vocabulary) -> npt.NDArray[np.intc]:
        return vocabulary.lookup(self(text))


def words_in(text: str) -> Iterator[re.Match[str]]:
    """The words of a text, and where they are."""
    return _pattern_for(text).finditer(text)


def _pattern_for(text: str) -> re.Pattern[str]:
    return _ASCII_WORD if text.isascii() else _any_word()


class Characters(Terms):
    """Runs of characters within words, which get a space at both ends."""

    def __call__(self, text: str) -> list[str]:
        return list(chain.from_iterable(map(self._within, text.split())))

    def columns(self, text: str, vocabulary: Vocabulary) -> npt.NDArray[np.intc]:
        # Texts share most of their words, and a word has a dozen runs: remembering them saves most of the time.
        known = vocabulary.remembered
        found = []
        for word in text.split():
            columns = known.get(word)
            if columns is None:
                if len(known) >= _REMEMBERED:
                    known.clear()
                columns = known[word] = vocabulary.lookup(self._within(word))
            found.append(columns)
        return np.concatenate(found) if found else np.empty(0, dtype=np.intc)

    def _within(self, word: str) -> list[str]:
        padded, runs = f" {word} ", []
        for size in range(self.shortest, self.longest + 1):
            runs += [padded[start : start + size] for start in range(max(1, len(padded) - size + 1))]
            if size >= len(padded):  # a short word counts once
                break
        return runs


class Vocabulary:
    """The columns of known terms.

    Parameters
    ----------
    terms : list of str
        In the order of their columns.
    """

    def __init__(self, terms: list[str]) -> None:
        self.terms = terms
        self._columns = {term: column for column, term in enumerate(terms)}
        #: The columns of the terms within each of the last words.
        self.remembered: dict[str, npt.NDArray[np.intc]] = {}

    def __len__(self) -> int:
        return len(self.terms)

    def __reduce__(self) -> tuple[Any, ...]:
        return Vocabulary, (self.terms,)  # the rest follows

    @property
    def all_different(self) -> bool:
        """Whether no term has two columns."""
        return len(self._columns) == len(self.terms)

    def lookup(self, terms: list[str]) -> npt.NDArray[np.intc]:
        """The columns of terms; −1 for unknown ones."""
        return np.fromiter(map(self._columns.get, terms, repeat(-1)), dtype=np.intc, count=len(terms))

    def count(self, text: str, terms: Terms) -> tuple[npt.NDArray[np.intc], npt.NDArray[np.int64]]:
        """The columns of a text's known terms, ascending, and how often each occurs."""
        columns = terms.columns(text, self)
        columns.sort()
        # Where a column differs from the one before; unknown terms come first.
        first = np.empty(len(columns), dtype=bool)
        first[:1] = True
        np.not_equal(columns[1:], columns[:-1], out=first[1:])
        starts = np.flatnonzero(first)
        found, times = columns[starts], np.diff(starts, append=len(columns))
        return (found[1:], times[1:]) if len(found) and found[0] < 0 else (found, times)


@cache
def word_pattern() -> str:
    """The regular expression of a word, with the combining marks that this Python's Unicode has."""
    codes = chain(range(0x300, 0x20000), range(0xE0100, 0xE01F0))  # there are none elsewhere
    marks = [char for char in map(chr, codes) if unicodedata.category(char).startswith("M")]
    marks += "\u200c\u200d"  # they join or separate letters within words of Persian and of Indic scripts
    # `re` searches a set with characters beyond 16 bits one range after the other: with one set for all marks,
    # plain text would take ten times as long.
    low = "(?=[\u0300-\uffff])[" + "".join(mark for mark in marks if mark <= "\uffff") + "]"
    high = "(?=[\U00010000-\U0010ffff])[" + "".join(mark for mark in marks if mark > "\uffff") + "]"
    letters = f"[^\\W{IDEOGRAPHS}]"
    return f"{letters}+(?:(?:{low}|{high})+{letters}*)*|[{IDEOGRAPHS}](?:{low}|{high})*"


@cache
def _any_word() -> re.Pattern[str]:
    # Compiled only for the first text that is not ASCII: it takes as long as tagging a hundred texts.
    return re.compile(word_pattern())
