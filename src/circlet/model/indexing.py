"""The index of the documents that a model has learned from, by which those like another are found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from circlet.folder.index import Identifier, Index
from circlet.model.model import Model
from circlet.runtime.documents import count

__all__ = ["add_to_index"]

#: Documents at a time.
BATCH = 4096
#: Wraps the starts of batches, as `rich.progress.track` does, to show the progress.
Track = Callable[[Sequence[int]], Iterable[int]]


def add_to_index(
    model: Model, documents: Any, ids: Sequence[Identifier] | None = None, *, track: Track | None = None
) -> None:
    """Add what a model now predicts for documents to its index, or begin one.

    What an earlier state of the model predicted for other documents stays as it is: codes do not change, and
    training further changes predictions little.

    Parameters
    ----------
    model : Model
    documents : list of str, or rows
    ids : sequence of str or int, optional
        What they are called; by default they are numbered, after those that are in the index.
    track : callable, optional
        Given the steps, iterates over them and shows the progress.
    """
    view, steps = model.as_runtime(), range(0, count(documents), BATCH)
    parts = [
        Index.of(vectors)
        for start in (steps if track is None else track(steps))
        for vectors in view.vectors(documents[start : start + BATCH])
    ]
    if parts:
        numbers, scales = (
            np.concatenate(each) for each in zip(*((p.numbers, p.scales) for p in parts), strict=True)
        )
        new = Index(numbers, scales, None if ids is None else list(ids))
        model.index = new if model.index is None else model.index.extended(new)
