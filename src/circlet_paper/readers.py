"""Turn texts into word numbers, with a saved vocabulary.

Words are defined, and texts normalize_text, as in `circlet.features.vectorizer`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from circlet.checks import is_integer
from circlet.errors import DataError, ParameterError
from circlet.features.rows import RESERVED, UNKNOWN, TokenRows
from circlet.features.vectorizer import (
    Vocabulary,
    Words,
    check_digest,
    check_terms,
    check_texts,
    from_parameters,
    normalize_text,
    read_state,
    write_state,
)
from circlet.settings.network import check_frequencies


class Tokenizer:
    """Turns texts into word numbers, in the order of the words.

    Parameters
    ----------
    min_df : int or float
        Leave out words that occur in fewer texts than this: a count, or a fraction below 1 of the texts.
    max_features : int or None
        Keep only this many words, the most frequent ones.
    max_words : int
        Keep only the first `max_words` words of a text.

    Examples
    --------
    >>> from circlet.features.tokenizer import Tokenizer
    >>> tokenizer = Tokenizer(max_words=3).fit(["a red fox", "the red car"])
    >>> tokenizer.feature_names()
    ['a', 'car', 'fox', 'red', 'the']
    >>> tokenizer.transform(["The blue fox ran", "red"]).padded().tolist()  # 1 is unknown, 0 is padding
    [[6, 1, 4], [5, 0, 0]]
    """

    def __init__(self, *, min_df: int | float = 1, max_features: int | None = None, max_words: int = 256) -> None:
        self.min_df, self.max_features = check_frequencies(min_df, max_features)
        if not is_integer(max_words, 1):
            raise ParameterError(f"`max_words` must be an integer >= 1, got {max_words!r}")
        self.max_words = int(max_words)
        self._words = Words(1, 1)
        self._vocabulary: Vocabulary | None = None

    def parameters(self) -> dict[str, Any]:
        """Return the arguments of an equal, unfitted tokenizer."""
        return {"min_df": self.min_df, "max_features": self.max_features, "max_words": self.max_words}

    def __repr__(self) -> str:
        return f"Tokenizer({', '.join(f'{name}={value!r}' for name, value in self.parameters().items())})"

    def fit(self, texts: Iterable[str]) -> Tokenizer:
        """Learn the words of `texts`."""
        self.fit_transform(texts)
        return self

    def fit_transform(self, texts: Iterable[str]) -> TokenRows:
        """Learn from `texts` and return their rows: `fit` and `transform` in one pass."""
        first_seen: dict[str, int] = {}
        found = [
            np.fromiter((first_seen.setdefault(word, len(first_seen)) for word in words), np.int64, len(words))
            for words in map(self._words, map(normalize_text, check_texts("fit", texts)))
        ]
        starts = _ends(found)
        ids = np.concatenate([*found, np.empty(0, dtype=np.int64)])
        # Sorted by code points, as in a vectorizer; of equally frequent words, the first ones in this order stay.
        words = np.array(list(first_seen), dtype=object)
        order = np.array(sorted(range(len(words)), key=words.__getitem__), dtype=np.int64)
        kept = order[self._frequent(ids, starts, len(words))[order]]
        if len(kept) and self.max_features is not None:
            times = np.bincount(ids, minlength=len(words))[kept]
            kept = kept[np.sort(np.argsort(-times, kind="stable")[: self.max_features])]
        if not len(kept):
            raise DataError(
                f"found no word in at least min_df={self.min_df} of the {len(found)} texts; "
                "wanted texts that have words"
            )
        self._vocabulary = Vocabulary(words[kept].tolist())
        numbers = np.full(len(words), UNKNOWN, dtype=np.int32)
        numbers[kept] = RESERVED + np.arange(len(kept), dtype=np.int32)
        return self._cut(numbers[ids], starts)

    def transform(self, texts: Iterable[str]) -> TokenRows:
        """Return the word numbers of each text; unknown words get the number `UNKNOWN`."""
        known = self._known()
        found = [
            known.lookup(self._words(text)[: self.max_words])
            for text in map(normalize_text, check_texts("transform", texts))
        ]
        columns = np.concatenate([*found, np.empty(0, dtype=np.intc)])
        ids = np.where(columns < 0, UNKNOWN, columns + RESERVED).astype(np.int32)
        return TokenRows(ids, _ends(found), self.n_features)

    @property
    def n_features(self) -> int:
        """Number of different word numbers, including the reserved ones."""
        return RESERVED + len(self._known())

    def feature_names(self) -> list[str]:
        """Return the known words, in order of code points."""
        return self._known().terms

    def write(self, state: Path) -> None:
        """Write the vocabulary as JSON."""
        write_state(state, "words", self.parameters(), {"words": self._known().terms})

    @classmethod
    def read(cls, path: Path) -> Tokenizer:
        """Read a file from `write`, gzipped or not; raise `DataError` if it is damaged or of another kind."""
        state = read_state(path, "words")
        tokenizer = from_parameters(path, cls, state["parameters"], cls().parameters())
        tokenizer._vocabulary = check_terms(path, state["terms"], ["words"])["words"]
        check_digest(path, state)
        return tokenizer

    def _frequent(
        self, ids: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], n_words: int
    ) -> npt.NDArray[np.bool_]:
        """Return a mask of the words that occur in enough texts, `(n_words,)`."""
        n = len(starts) - 1
        texts = np.repeat(np.arange(n), np.diff(starts))
        once = np.unique(texts * max(1, n_words) + ids)
        least = self.min_df if is_integer(self.min_df) else self.min_df * n
        enough: npt.NDArray[np.bool_] = np.bincount(once % max(1, n_words), minlength=n_words) >= least
        return enough

    def _cut(self, ids: npt.NDArray[np.int32], starts: npt.NDArray[np.int64]) -> TokenRows:
        """Return rows with at most `max_words` words of each text."""
        lengths = np.diff(starts)
        place = np.arange(len(ids)) - np.repeat(starts[:-1], lengths)
        shorter = np.minimum(lengths, self.max_words)
        return TokenRows(ids[place < self.max_words], np.append(0, np.cumsum(shorter)), self.n_features)

    def _known(self) -> Vocabulary:
        if self._vocabulary is None:
            raise ParameterError("this Tokenizer is not fitted: call `fit` first, or `read` one")
        return self._vocabulary


def _ends(found: list[Any]) -> npt.NDArray[np.int64]:
    return np.append(0, np.cumsum([len(each) for each in found], dtype=np.int64))
