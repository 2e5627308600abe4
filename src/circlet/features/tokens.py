"""Texts as the numbers of their words, in the order of the words: what encoders that read texts take."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["PADDING", "RESERVED", "UNKNOWN", "TokenRows"]

#: The number that fills short texts up to the length of others, and the number of all words that are not known.
PADDING, UNKNOWN = 0, 1
#: Numbers that stand for no known word.
RESERVED = 2


class TokenRows:
    """The words of texts by number, one text after the other; rows are taken as from a CSR matrix.

    Parameters
    ----------
    ids : int32 ndarray
        The words of all texts; none is `PADDING`.
    starts : int64 ndarray of shape (n + 1,)
        The words of text i are from ``starts[i]`` to ``starts[i + 1]``.
    n_words : int
        How many different numbers there are, the reserved ones included.
    """

    ndim = 2

    def __init__(self, ids: npt.NDArray[np.int32], starts: npt.NDArray[np.int64], n_words: int) -> None:
        self.ids, self.starts = ids, starts
        self.shape: tuple[int, int] = (len(starts) - 1, n_words)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> TokenRows:
        """Some of the texts, given by a slice or an array of their places, counted from 0."""
        chosen = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else np.asarray(rows)
        lengths = self.starts[chosen + 1] - self.starts[chosen]
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        places = np.arange(starts[-1]) + np.repeat(self.starts[chosen] - starts[:-1], lengths)
        return TokenRows(self.ids[places], starts, self.shape[1])

    @property
    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """The arrays that it consists of."""
        return self.ids, self.starts

    def padded(self) -> npt.NDArray[np.int64]:
        """The words as a grid `(n, longest)`, at least one wide; short texts end with `PADDING`."""
        lengths = np.diff(self.starts)
        present = np.arange(max(1, int(lengths.max(initial=0)))) < lengths[:, None]
        grid = np.full(present.shape, PADDING, dtype=np.int64)
        grid[present] = self.ids
        return grid

    def counts(self) -> npt.NDArray[np.int64]:
        """How often each number occurs, `(n_words,)`."""
        return np.bincount(self.ids, minlength=self.shape[1])

    def forgetting(self, forgotten: npt.NDArray[np.bool_]) -> TokenRows:
        """The same texts with `UNKNOWN` in some places, given by a mask over `ids`."""
        return TokenRows(np.where(forgotten, np.int32(UNKNOWN), self.ids), self.starts, self.shape[1])
