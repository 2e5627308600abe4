"""Numbering the labels of text records: names to columns, records to splits."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from circlet.data.dataset import Split
from circlet.data.records import Record

__all__ = ["read_splits"]


def read_splits(
    train: Iterable[Record], test: Iterable[Record] | None = None
) -> tuple[Split, Split | None, list[str]]:
    """Number the labels and build the splits.

    Labels are numbered in the sorted order of their names in `train`; those only in `test` follow, sorted.
    """
    vocabulary: dict[str, int] = {}
    first = _Labeled.gather(train, vocabulary)
    known = len(vocabulary)
    second = None if test is None else _Labeled.gather(test, vocabulary)
    names = list(vocabulary)
    names = sorted(names[:known]) + sorted(names[known:])
    position = np.empty(len(names), np.int32)
    position[[vocabulary[name] for name in names]] = np.arange(len(names))
    return first.split(position), None if second is None else second.split(position), names


@dataclass
class _Labeled:
    """The texts of one file, what they are called, and their labels as numbers in a shared vocabulary."""

    texts: list[str]
    names: list[str | int]
    named: bool
    ids: array[int]
    counts: array[int]

    @classmethod
    def gather(cls, records: Iterable[Record], vocabulary: dict[str, int]) -> _Labeled:
        """Read all `records`; new labels are added to `vocabulary`."""
        out = cls([], [], False, array("q"), array("q"))
        for row, record in enumerate(records):
            out.texts.append(record.text)
            out.names.append(row if record.id is None else record.id)
            out.named |= record.id is not None
            out.ids.extend([vocabulary.setdefault(label, len(vocabulary)) for label in record.labels])
            out.counts.append(len(record.labels))
        return out

    def split(self, position: Any) -> Split:
        """A `Split` with label `id` in column `position[id]`."""
        indices = position[np.asarray(self.ids, dtype=np.int64)]
        indptr = np.concatenate([[0], np.cumsum(np.asarray(self.counts, dtype=np.int64))])
        ones = np.ones(len(indices), np.float32)
        Y = sp.csr_matrix((ones, indices, indptr), shape=(len(self.texts), len(position)))
        Y.sort_indices()
        return Split(None, Y, self.texts, self.names if self.named else None)
