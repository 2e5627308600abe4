"""Where the terms of a text are in it: offsets of characters, before normalization and lower case.

NFKC may make several characters of one (ﬁ) or one of several (e and an accent), and lower case may make two of one
(İ). So the original is cut where what follows can't combine with what comes before, and each character of the
prepared text belongs to a whole such piece.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from circlet.features.terms import Characters, Terms, Words, words_in

__all__ = ["Span", "occurrences", "origins"]

#: Start and end, in characters.
Span = tuple[int, int]

_NOT_SPACE = re.compile(r"\S+")
#: Vowels and final consonants of Hangul, which combine with what comes before though they are no marks.
_JAMO = range(0x1160, 0x1200)


def origins(original: str, normalized: str, *, lowercase: bool) -> npt.NDArray[np.int64]:
    """Where each character of a prepared text comes from: starts and ends in the original, `(2, length)`.

    Parameters
    ----------
    original : str
        Without lone surrogates.
    normalized : str
        The same in NFKC, before it is in lower case.
    lowercase : bool
        Whether it is in lower case then.
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
    """All terms of a prepared text, in the order of `terms(prepared)`, with start and end in it.

    The spaces at both ends of a word, which runs of characters include, are not there; a run of nothing else gets
    the whole word.
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
        runs = [run for match in _NOT_SPACE.finditer(prepared) for run in _runs(match.span(), terms)]
    return ((term, *run) for term, run in zip(terms(prepared), runs, strict=True))


def _runs(word: Span, terms: Characters) -> Iterator[Span]:
    """Where the runs of characters within a word are, as `Characters` finds them."""
    start, end = word
    padded = end - start + 2
    for size in range(terms.shortest, terms.longest + 1):
        for first in range(start - 1, start - 1 + max(1, padded - size + 1)):
            run = max(first, start), min(first + size, end)
            yield run if run[0] < run[1] else word
        if size >= padded:
            break


def _pieces(text: str) -> Iterator[Span]:
    """Parts of a text that are normalized independently of each other."""
    start = 0
    for place, char in enumerate(text):
        if place and not _combines(char):
            yield start, place
            start = place
    if text:
        yield start, len(text)


def _combines(char: str) -> bool:
    """Whether normalization may join a character to the one before, or change their order."""
    if char < "\u0300":
        return False
    first = unicodedata.normalize("NFKD", char)[0]
    return unicodedata.combining(first) > 0 or unicodedata.category(first).startswith("M") or ord(first) in _JAMO
