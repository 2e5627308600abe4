"""Find the terms of a text, count the known ones, and locate them.

These are exactly the terms that scikit-learn's `TfidfVectorizer` finds when it learns the vocabulary. Importing
scikit-learn takes longer than tagging a text, and tagging needs nothing else from it.

Positions are character offsets before normalization and lowercasing. NFKC may turn a character into several (ﬁ)
or several into one (e and an accent), and lowercasing may turn one into two (İ). So the original is cut into
pieces that do not combine with each other, and each character of the prepared text is traced to its whole piece.
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

#: Start and end, in characters.
Span = tuple[int, int]

#: Characters that are words by themselves: Han (with its radicals, 々 and 〇) and Hiragana.
IDEOGRAPHS = "\u2e80-\u2fdf\u3005\u3007\u3040-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"


class Terms(ABC):
    """Finds the terms of a text: runs of words or of characters.

    Parameters
    ----------
    shortest, longest : int
        Smallest and largest length of a run.
    """

    def __init__(self, shortest: int, longest: int) -> None:
        self.shortest, self.longest = shortest, longest

    @abstractmethod
    def __call__(self, text: str) -> list[str]:
        """Return all terms of a text, including repeated ones."""

    @abstractmethod
    def columns(self, text: str, vocabulary: Vocabulary) -> npt.NDArray[np.intc]:
        """Return the columns of all terms of a text, in any order; −1 for unknown terms."""


class Words(Terms):
    """Runs of words, joined by spaces; see `word_pattern` for the definition of a word."""

    def __call__(self, text: str) -> list[str]:
        found: list[str] = _word(text.isascii()).findall(text)
        runs = found if self.shortest == 1 else []
        for size in range(max(self.shortest, 2), min(self.longest, len(found)) + 1):
            runs = runs + [" ".join(found[start : start + size]) for start in range(len(found) - size + 1)]
        return runs

    def columns(self, text: str, vocabulary: Vocabulary) -> npt.NDArray[np.intc]:
        return vocabulary.lookup(self(text))


def words_in(text: str) -> Iterator[re.Match[str]]:
    """Iterate over the matches of the words in a text."""
    return _word(text.isascii()).finditer(text)


class Characters(Terms):
    """Runs of characters within words; a space is added at both ends of a word."""

    def __call__(self, text: str) -> list[str]:
        return list(chain.from_iterable(map(self._within, text.split())))

    def columns(self, text: str, vocabulary: Vocabulary) -> npt.NDArray[np.intc]:
        # A word has a dozen runs, and texts share most words: caching the columns by word saves most of the time.
        known = vocabulary.remembered
        found = []
        for word in text.split():
            columns = known.get(word)
            if columns is None:
                if len(known) >= vocabulary.most_remembered:
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
        Terms in the order of their columns.
    most_remembered : int
        Size of the cache, in words; the default takes a few megabytes.
    """

    def __init__(self, terms: list[str], most_remembered: int = 1 << 14) -> None:
        self.terms, self.most_remembered = terms, most_remembered
        self._columns = {term: column for column, term in enumerate(terms)}
        #: The cache: columns of the character runs of recent words.
        self.remembered: dict[str, npt.NDArray[np.intc]] = {}

    def __len__(self) -> int:
        return len(self.terms)

    def __reduce__(self) -> tuple[Any, ...]:
        return Vocabulary, (self.terms,)  # the rest is computed from the terms

    @property
    def all_different(self) -> bool:
        """Whether no term has two columns."""
        return len(self._columns) == len(self.terms)

    def lookup(self, terms: list[str]) -> npt.NDArray[np.intc]:
        """Return the columns of terms; −1 for unknown terms."""
        return np.fromiter(map(self._columns.get, terms, repeat(-1)), dtype=np.intc, count=len(terms))

    def count(self, text: str, terms: Terms) -> tuple[npt.NDArray[np.intc], npt.NDArray[np.int64]]:
        """Return the sorted columns of a text's known terms, and how often each term occurs."""
        columns = terms.columns(text, self)
        columns.sort()
        # True where a column differs from the previous one; unknown terms come first.
        first = np.empty(len(columns), dtype=bool)
        first[:1] = True
        np.not_equal(columns[1:], columns[:-1], out=first[1:])
        starts = np.flatnonzero(first)
        found, times = columns[starts], np.diff(starts, append=len(columns))
        return (found[1:], times[1:]) if len(found) and found[0] < 0 else (found, times)


@cache
def word_pattern() -> str:
    """Return the regular expression of a word, with the combining marks of this Python's Unicode version."""
    codes = chain(range(0x300, 0x20000), range(0xE0100, 0xE01F0))  # no other range has combining marks
    marks = [char for char in map(chr, codes) if unicodedata.category(char).startswith("M")]
    marks += "\u200c\u200d"  # join or separate letters within words, in Persian and Indic scripts
    # `re` searches a set with characters beyond 16 bits range by range. With a single set for all marks, plain
    # text would take ten times as long.
    low = "(?=[\u0300-\uffff])[" + "".join(mark for mark in marks if mark <= "\uffff") + "]"
    high = "(?=[\U00010000-\U0010ffff])[" + "".join(mark for mark in marks if mark > "\uffff") + "]"
    letters = f"[^\\W{IDEOGRAPHS}]"
    return f"{letters}+(?:(?:{low}|{high})+{letters}*)*|[{IDEOGRAPHS}](?:{low}|{high})*"


@cache
def _word(is_ascii: bool) -> re.Pattern[str]:
    # ASCII has neither ideographs nor combining marks. The full pattern is compiled only for the first non-ASCII
    # text, since compiling it takes as long as tagging a hundred texts.
    return re.compile(r"\w+", re.ASCII) if is_ascii else re.compile(word_pattern())


def origins(original: str, normalized: str, *, lowercase: bool) -> npt.NDArray[np.int64]:
    """Map each character of a prepared text to its start and end in the original, `(2, length)`.

    Parameters
    ----------
    original : str
        Original text without lone surrogates.
    normalized : str
        The text in NFKC, before lowercasing.
    lowercase : bool
        Whether the prepared text is in lower case.
    """
    if original == normalized:
        ends = np.arange(1, len(original) + 1)
        lengths = np.ones(len(original), dtype=np.int64)
    else:
        ends = np.array([end for _, end in _pieces(original)], dtype=np.int64)
        lengths = np.array([len(unicodedata.normalize("NFKC", original[a:b])) for a, b in _pieces(original)])
    places = np.repeat(np.stack([np.concatenate([[0], ends[:-1]])[: len(ends)], ends]), lengths, axis=1)
    if lowercase and not normalized.isascii():
        places = np.repeat(places, [len(char.lower()) for char in normalized], axis=1)
    return places


def occurrences(prepared: str, terms: Terms) -> Iterator[tuple[str, int, int]]:
    """Yield all terms of a prepared text, in the order of `terms(prepared)`, with their start and end.

    The spaces that `Characters` adds to a word have no position; a run without other characters gets the position
    of the whole word.
    """
    if isinstance(terms, Words):
        found = [match.span() for match in words_in(prepared)]
        runs = [
            (found[first][0], found[first + size - 1][1])
            for size in range(terms.shortest, terms.longest + 1)
            for first in range(len(found) - size + 1)
        ]
    else:
        assert isinstance(terms, Characters)
        runs = [run for match in re.finditer(r"\S+", prepared) for run in _runs(match.span(), terms)]
    return ((term, *run) for term, run in zip(terms(prepared), runs, strict=True))


def _runs(word: Span, terms: Characters) -> Iterator[Span]:
    """Yield start and end of the character runs of a word, in the order of `Characters`."""
    start, end = word
    padded = end - start + 2
    for size in range(terms.shortest, terms.longest + 1):
        for first in range(start - 1, start - 1 + max(1, padded - size + 1)):
            run = max(first, start), min(first + size, end)
            yield run if run[0] < run[1] else word
        if size >= padded:
            break


def _pieces(text: str) -> Iterator[Span]:
    """Yield start and end of the parts of a text that can be normalized independently."""
    start = 0
    for place, char in enumerate(text):
        if place and not _combines(char):
            yield start, place
            start = place
    if text:
        yield start, len(text)


def _combines(char: str) -> bool:
    """Whether normalization may combine a character with the previous one, or reorder them."""
    if char < "\u0300":
        return False
    first = unicodedata.normalize("NFKD", char)[0]
    # Hangul vowels and final consonants combine with the previous character, although they are no marks.
    return (
        unicodedata.combining(first) > 0
        or unicodedata.category(first).startswith("M")
        or 0x1160 <= ord(first) < 0x1200
    )
