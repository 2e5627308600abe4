from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from circlet.errors import DataError
from circlet.files import write_tensors
from circlet.storage.kept_rows import Index, read_index, vector_width, write_index
from circlet.storage.layout import INDEX, described
from circlet.storage.network_spec import members_of
from circlet.storage.tensors import map_tensors

VECTORS = np.array([[3, 4, 0, 0], [-1, 0, 1, 2], [0, 0, 0, 0]], dtype=np.float32)
CONFIG: dict[str, Any] = {
    "network": {"head": "chrr", "dim": 2, "hidden": [8], "seed": 0},
    "members": [{"seed": 0, "codebook": {"n_labels": 5, "dim": 2, "seed": 0, "length": 6}, "calibration": [1, 0]}],
    "n_labels": 5,
    "files": {INDEX: {"file": INDEX}},
}


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)


def test_vectors_are_rounded_and_have_length_one():
    index = Index.of(VECTORS)
    assert index.numbers.dtype == np.int8
    assert len(index) == 3
    found = index.numbers * index.scales[:, None]
    np.testing.assert_allclose(found, unit(VECTORS), atol=0.005)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), [1, 1, 0], atol=1e-6)


@pytest.mark.parametrize("ids", [None, ["a", 7, "ü\n"]])
def test_written_and_read_again(ids, tmp_path):
    assert read_index(tmp_path, {**CONFIG, "files": {}}) is None
    index = Index.of(VECTORS, ids)
    write_index(tmp_path / INDEX, index)
    found = read_index(tmp_path, CONFIG)
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
    (member,) = CONFIG["members"]
    codebook = None if head == "fc" else member["codebook"]
    members = [{**member, "codebook": codebook}]
    config = {**CONFIG, "network": {**CONFIG["network"], "head": head}, "members": members}
    assert vector_width(members_of(config)) == width


DAMAGES: dict[str, tuple[Any, str]] = {
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


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage(damage, tmp_path):
    write_index(tmp_path / INDEX, Index.of(VECTORS, ["a", "b", "c"]))
    tensors = {name: array.copy() for name, array in map_tensors(tmp_path / INDEX).items()}
    inflict, words = DAMAGES[damage]
    inflict(tensors)
    write_tensors(tmp_path / INDEX, tensors)
    with pytest.raises(DataError, match=rf"index\.safetensors: .*{words}"):
        read_index(tmp_path, CONFIG)


def test_a_changed_byte_and_a_missing_file(tmp_path):
    path = tmp_path / INDEX
    write_index(path, Index.of(VECTORS))
    config = {**CONFIG, "files": {INDEX: described(path)}}
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"index\.safetensors: found other content than config\.json describes"):
        read_index(tmp_path, config)
    path.unlink()
    with pytest.raises(DataError, match=r"index\.safetensors: found no readable index"):
        read_index(tmp_path, config)
