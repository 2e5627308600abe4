"""Rows of words are taken as rows of a matrix are."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from circlet.features.rows import UNKNOWN, TokenRows

TEXTS = st.lists(st.lists(st.integers(1, 9), max_size=6), max_size=7)


def rows_of(texts: list[list[int]]) -> TokenRows:
    starts = np.append(0, np.cumsum([len(text) for text in texts], dtype=np.int64))
    return TokenRows(np.array([word for text in texts for word in text], dtype=np.int32), starts, 10)


def texts_of(rows: TokenRows) -> list[list[int]]:
    return [rows.ids[start:end].tolist() for start, end in zip(rows.starts[:-1], rows.starts[1:], strict=True)]


def test_padding_ends_short_texts():
    rows = rows_of([[4, 2], [], [3, 3, 9]])
    assert rows.shape == (3, 10)
    assert rows.padded().tolist() == [[4, 2, 0], [0, 0, 0], [3, 3, 9]]
    assert rows_of([[], []]).padded().tolist() == [[0], [0]]  # never without columns
    assert rows_of([]).padded().shape == (0, 1)


def test_counts_and_forgotten_words():
    rows = rows_of([[4, 2], [4]])
    assert rows.counts().tolist() == [0, 0, 1, 0, 2, 0, 0, 0, 0, 0]
    assert texts_of(rows.forgetting(rows.ids == 4)) == [[UNKNOWN, 2], [UNKNOWN]]
    assert texts_of(rows) == [[4, 2], [4]]


@given(texts=TEXTS, data=st.data())
def test_rows_are_taken_as_from_a_matrix(texts, data):
    rows = rows_of(texts)
    matrix = sp.csr_matrix((np.ones(len(rows.ids)), rows.ids, rows.starts), shape=rows.shape)
    places = data.draw(st.lists(st.integers(0, len(texts) - 1)) if texts else st.just([]))
    chosen = np.array(places, dtype=np.int64)
    assert texts_of(rows[chosen]) == [texts[place] for place in places]
    assert np.array_equal(rows[chosen].starts, matrix[chosen].indptr)
    part = slice(data.draw(st.integers(0, 8)), data.draw(st.integers(0, 8)))
    assert texts_of(rows[part]) == texts[part]
    assert rows[part].shape == matrix[part].shape
