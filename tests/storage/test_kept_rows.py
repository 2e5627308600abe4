from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from circlet.errors import DataError
from circlet.storage.kept_rows import (
    NUMBERS,
    ROWS,
    Index,
    Sample,
    read_index,
    read_sample,
    sample_of,
    vector_width,
    write_index,
    write_sample,
)
from circlet.storage.layout import INDEX, SAMPLE, described
from circlet.storage.network_spec import members_of

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
    "no labels": (lambda t: t.pop("labels.starts"), "the tensors"),
    "a column too many": (lambda t: t["rows.columns"].__setitem__(0, 3), r"damaged rows\.columns"),
    "a label below zero": (lambda t: t["labels.columns"].__setitem__(0, -1), r"damaged labels\.columns"),
    "starts that fall": (lambda t: t["rows.starts"].__setitem__(1, 9), r"damaged rows\.starts"),
    "too few values": (lambda t: t.update({"rows.values": t["rows.values"][1:]}), r"damaged rows\.starts"),
    "a value that is not finite": (lambda t: t["rows.values"].__setitem__(0, np.nan), r"damaged rows\.values"),
    "other types": (lambda t: t.update({"rows.columns": t["rows.columns"] * 1.0}), "damaged rows"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage(damage, tmp_path, change_tensors):
    write_sample(tmp_path / SAMPLE, Sample(ROW, LABELS))
    inflict, words = DAMAGES[damage]
    change_tensors(tmp_path / SAMPLE, inflict)
    with pytest.raises(DataError, match=rf"sample\.safetensors: found {words}"):
        read_sample(tmp_path, CONFIG)


VECTORS = np.array([[3, 4, 0, 0], [-1, 0, 1, 2], [0, 0, 0, 0]], dtype=np.float32)
WITH_INDEX: dict[str, Any] = {
    "network": {"head": "chrr", "dim": 2, "hidden": [8], "seed": 0},
    "members": [{"seed": 0, "codebook": {"n_labels": 5, "dim": 2, "seed": 0, "length": 6}, "calibration": [1, 0]}],
    "n_labels": 5,
    "files": {INDEX: {"file": INDEX}},
}


@pytest.mark.parametrize("ids", [None, ["a", 7, "ü\n"]])
def test_an_index_is_rounded_written_and_read_again(ids, tmp_path):
    assert read_index(tmp_path, {**WITH_INDEX, "files": {}}) is None
    index = Index.of(VECTORS, ids)
    assert index.numbers.dtype == np.int8
    vectors = index.numbers * index.scales[:, None]
    np.testing.assert_allclose(vectors, VECTORS / np.array([[5], [6**0.5], [1]]), atol=0.005)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 1, 0], atol=1e-6)
    write_index(tmp_path / INDEX, index)
    found = read_index(tmp_path, WITH_INDEX)
    assert found is not None
    np.testing.assert_array_equal(found.numbers, index.numbers)
    np.testing.assert_array_equal(found.scales, index.scales)
    assert found.ids == ids
    assert not found.numbers.flags.owndata  # it stays in the file


def test_more_documents():
    plain, named = Index.of(VECTORS), Index.of(VECTORS, ["a", "b", "c"])
    assert plain.extended(plain).ids is None
    assert len(plain.extended(plain)) == 6
    assert plain.extended(named).ids == [0, 1, 2, "a", "b", "c"]
    assert named.extended(plain).ids == ["a", "b", "c", 3, 4, 5]


@pytest.mark.parametrize(
    ("head", "width"), [("chrr", 4), ("chrr-half", 4), ("chrr-sin", 4), ("hrr", 2), ("fc", 8)]
)
def test_how_wide_a_vector_is(head, width):
    (member,) = WITH_INDEX["members"]
    codebook = None if head == "fc" else member["codebook"]
    members = [{**member, "codebook": codebook}]
    config = {**WITH_INDEX, "network": {**WITH_INDEX["network"], "head": head}, "members": members}
    assert vector_width(members_of(config)) == width


INDEX_DAMAGES: dict[str, tuple[Any, str]] = {
    "no scales": (lambda t: t.pop("scales"), "found the tensors"),
    "something more": (lambda t: t.update(more=t["scales"]), "found the tensors"),
    "other types": (lambda t: t.update(vectors=t["vectors"] * 1.0), "found vectors of type float64"),
    "a column too few": (lambda t: t.update(vectors=t["vectors"][:, 1:].copy()), "wanted int8 and 4 columns"),
    "no documents": (lambda t: t.update(vectors=t["vectors"][:0]), "found vectors of type int8"),
    "a scale too few": (lambda t: t.update(scales=t["scales"][1:]), "found damaged scales"),
    "a scale that is not finite": (lambda t: t["scales"].__setitem__(0, np.nan), "found damaged scales"),
    "a scale that is too large": (lambda t: t["scales"].__setitem__(0, 2), "found damaged scales"),
    "an id too few": (lambda t: t.update(ids=np.frombuffer(b'["a","b"]', np.uint8)), "found damaged ids"),
    "ids that are no JSON": (lambda t: t.update(ids=np.frombuffer(b"[[[", np.uint8)), "found damaged ids"),
    "ids of other types": (lambda t: t.update(ids=np.frombuffer(b"[true,1,2]", np.uint8)), "found damaged ids"),
}


@pytest.mark.parametrize("damage", INDEX_DAMAGES)
def test_a_damaged_index(damage, tmp_path, change_tensors):
    write_index(tmp_path / INDEX, Index.of(VECTORS, ["a", "b", "c"]))
    inflict, words = INDEX_DAMAGES[damage]
    change_tensors(tmp_path / INDEX, inflict)
    with pytest.raises(DataError, match=rf"index\.safetensors: .*{words}"):
        read_index(tmp_path, WITH_INDEX)


def test_a_changed_byte_and_a_missing_file(tmp_path):
    path = tmp_path / INDEX
    write_index(path, Index.of(VECTORS))
    config = {**WITH_INDEX, "files": {INDEX: described(path)}}
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"index\.safetensors: found other content than config\.json describes"):
        read_index(tmp_path, config)
    path.unlink()
    with pytest.raises(DataError, match=r"index\.safetensors: found no readable index"):
        read_index(tmp_path, config)
