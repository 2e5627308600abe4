from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from circlet.errors import DataError
from circlet.files import write_tensors
from circlet.storage.kept_rows import NUMBERS, ROWS, Sample, read_sample, sample_of, write_sample
from circlet.storage.layout import SAMPLE
from circlet.storage.tensors import map_tensors

ROW = sp.csr_matrix(np.array([[0, 0.5, 0], [1, 0, 2], [0, 0, 0]], dtype=np.float32))
LABELS = sp.csr_matrix(np.array([[1, 0], [0, 1], [0, 0]], dtype=np.float32))
CONFIG: dict[str, Any] = {"n_features": 3, "n_labels": 2, "sparse": True, "files": {SAMPLE: {"file": SAMPLE}}}


def test_written_and_read_again(tmp_path):
    assert read_sample(tmp_path, {**CONFIG, "files": {}}) is None
    for rows, config in ((ROW, CONFIG), (ROW.toarray(), {**CONFIG, "sparse": False})):
        write_sample(tmp_path / SAMPLE, Sample(rows, LABELS))
        found = read_sample(tmp_path, config)
        assert found is not None
        assert sp.issparse(found.rows) == sp.issparse(rows)
        np.testing.assert_array_equal(sp.csr_matrix(found.rows).toarray(), ROW.toarray())
        np.testing.assert_array_equal(found.labels.toarray(), LABELS.toarray())


def test_only_some_rows_are_kept():
    labels = sp.csr_matrix((3 * ROWS, 2), dtype=np.float32)
    few = sample_of(sp.csr_matrix((3 * ROWS, 5), dtype=np.float32), labels)
    assert few is not None
    assert few.rows.shape == (ROWS, 5)
    wide = sample_of(np.ones((100, NUMBERS // 10), dtype=np.float32), labels[:100])
    assert wide is not None
    assert (wide.rows.shape[0], wide.labels.shape[0]) == (10, 10)
    assert sample_of(ROW[:0], LABELS[:0]) is None


DAMAGES: dict[str, tuple[Any, str]] = {
    "no labels": (lambda t: t.pop("labels.starts"), "found the tensors"),
    "a column too many": (lambda t: t["rows.columns"].__setitem__(0, 3), r"damaged rows\.columns"),
    "a label below zero": (lambda t: t["labels.columns"].__setitem__(0, -1), r"damaged labels\.columns"),
    "starts that fall": (lambda t: t["rows.starts"].__setitem__(1, 9), r"damaged rows\.starts"),
    "too few values": (lambda t: t.update({"rows.values": t["rows.values"][1:]}), r"damaged rows\.starts"),
    "a value that is not finite": (lambda t: t["rows.values"].__setitem__(0, np.nan), r"damaged rows\.values"),
    "other types": (lambda t: t.update({"rows.columns": t["rows.columns"] * 1.0}), "damaged rows"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage(damage, tmp_path):
    write_sample(tmp_path / SAMPLE, Sample(ROW, LABELS))
    tensors = {name: array.copy() for name, array in map_tensors(tmp_path / SAMPLE).items()}
    inflict, words = DAMAGES[damage]
    inflict(tensors)
    write_tensors(tmp_path / SAMPLE, tensors)
    with pytest.raises(DataError, match=rf"sample\.safetensors: found {'' if 'found' in words else '.*'}"):
        read_sample(tmp_path, CONFIG)
    with pytest.raises(DataError, match=words):
        read_sample(tmp_path, CONFIG)
