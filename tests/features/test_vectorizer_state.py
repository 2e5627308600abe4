"""The state of a vectorizer on the disk: complete, exact, and refused if anything is wrong with it."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from scipy.sparse import csr_matrix

from circlet.errors import DataError
from circlet.features.vectorizer import TextVectorizer, load_vectorizer

ENGLISH = ["the red fox", "The red, red car!", "a blue car on the road", "fox"]


def same(a: csr_matrix, b: csr_matrix) -> bool:
    return (
        a.shape == b.shape
        and np.array_equal(a.indptr, b.indptr)
        and np.array_equal(a.indices, b.indices)
        and a.data.tobytes() == b.data.tobytes()
    )


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    TextVectorizer(char_ngrams=(2, 3), min_df=2, max_features=50).fit([*ENGLISH, *ENGLISH]).save(tmp_path)
    return tmp_path


def edit(folder: Path, **changes) -> None:
    path = folder / "vectorizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_saved_files(saved):
    assert sorted(path.name for path in saved.iterdir()) == ["vectorizer.json", "vectorizer.safetensors"]
    assert (saved / "vectorizer.json").read_bytes().isascii()
    loaded = TextVectorizer.load(str(saved))
    assert repr(loaded) == (
        "TextVectorizer(word_ngrams=(1, 1), char_ngrams=(2, 3), sublinear_tf=True, lowercase=True, "
        "min_df=2, max_features=50)"
    )
    before = loaded.feature_names()
    assert loaded.fit(["new words"] * 2).feature_names() != before  # a loaded one may learn anew


def test_whoever_may_read_one_file_may_read_the_other(tmp_path):
    before = os.umask(0o027)
    try:
        TextVectorizer().fit(ENGLISH).save(tmp_path)
    finally:
        os.umask(before)
    modes = {path.suffix: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys((".json", ".safetensors"), modes[".json"])
    if os.name == "posix":
        assert modes[".json"] == 0o640


def test_sizes_may_be_numpy_integers(tmp_path):
    TextVectorizer(min_df=np.int64(1), max_features=np.int32(9)).fit(ENGLISH).save(tmp_path)
    assert load_vectorizer(tmp_path).parameters()["max_features"] == 9


def test_kind_without_terms_is_saved(tmp_path):
    vectorizer = TextVectorizer(char_ngrams=(1, 1)).fit(["👍🎉", "🎉"])
    vectorizer.save(tmp_path)
    assert same(load_vectorizer(tmp_path).transform(["🎉 word"]), vectorizer.transform(["🎉 word"]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "hashing"}, "`kind` must be 'tfidf', found 'hashing'"),
        ({"kind": ["tfidf"]}, "`kind` must be"),
        ({"format": 2}, r"saved by a newer circlet \(format 2\); this one reads up to 1"),
        ({"format": True}, "`format` must be 1, found True"),
        ({"format": 0}, "`format` must be 1, found 0"),
        ({"format": None}, "`format` must be 1, found None"),
        ({"more": 1}, "the keys must be .*found .*'more'"),
        ({"parameters": []}, r"`parameters` must have .*found \[\]"),
        ({"parameters": {"min_df": 1}}, "`parameters` must have .*found"),
        ({"terms": []}, r"`terms` must have a list for each of \['word', 'char'\], found list"),
        ({"terms": {"word": ["a"]}}, "`terms` must have a list for each"),
        ({"terms": {"word": ["a"], "char": "b"}}, "the terms of 'char' must be a list of strings"),
        ({"terms": {"word": ["a", 1], "char": []}}, "the terms of 'word' must be a list of strings"),
        ({"terms": {"word": ["a", "a"], "char": []}}, "the terms of 'word' are not all different"),
        ({"terms": {"word": [], "char": []}}, "there are no terms"),
        (
            {"terms": {"word": ["a"], "char": ["b"]}},
            r"'idf' must be float64 of shape \(2,\), one per term, found float64",
        ),
        ({"sha256": "0"}, "the sha256 differs"),
    ],
)
def test_edited_state(saved, changes, message):
    edit(saved, **changes)
    with pytest.raises(DataError, match=message) as caught:
        load_vectorizer(saved)
    assert "vectorizer." in str(caught.value)


def test_edited_parameters(saved):
    state = json.loads((saved / "vectorizer.json").read_text())
    edit(saved, parameters={**state["parameters"], "min_df": 0})
    with pytest.raises(DataError, match=r"vectorizer.json: `min_df` must be"):
        TextVectorizer.load(saved)
    edit(saved, parameters={**state["parameters"], "lowercase": False})
    with pytest.raises(DataError, match="the sha256 differs"):
        TextVectorizer.load(saved)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "found no readable JSON"),
        (b"\xff\xfe\x00", "found no readable JSON"),
        (b"[" * 100_000, "found no readable JSON"),
        (b"[1]", "a JSON object, found list"),
        (b"{}", "`kind` must be"),
        (b'{"kind": ' + b"9" * 5000 + b"}", "vectorizer.json"),
    ],
)
def test_foreign_state(saved, content, message):
    (saved / "vectorizer.json").write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_vectorizer(saved)


def test_missing_files(saved, tmp_path):
    with pytest.raises(DataError, match=r"vectorizer.json: found no readable JSON \(No such file"):
        load_vectorizer(tmp_path / "nowhere")
    (saved / "vectorizer.safetensors").unlink()
    with pytest.raises(DataError, match=r"vectorizer.safetensors: found no readable tensors"):
        load_vectorizer(saved)


def test_other_numbers(saved):
    path = saved / "vectorizer.safetensors"
    size = TextVectorizer.load(saved).n_features
    for tensors, message in [
        ({"idf": np.ones(size, np.float32)}, r"must be float64 of shape .*found float32"),
        ({"idf": np.ones((size, 1))}, "must be float64 of shape"),
        ({"other": np.ones(size)}, r"must hold one tensor, 'idf', found \['other'\]"),
        ({"idf": np.full(size, np.nan)}, "non-finite numbers"),
        ({"idf": np.ones(size)}, "the sha256 differs"),
    ]:
        save_file(tensors, path)
        with pytest.raises(DataError, match=message):
            load_vectorizer(saved)


@settings(
    max_examples=80,
    suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_damage_is_noticed(saved, data):
    names = ["vectorizer.json", "vectorizer.safetensors"]
    originals = {name: (saved / name).read_bytes() for name in names}
    wanted = TextVectorizer.load(saved).transform(ENGLISH)
    name = data.draw(st.sampled_from(names))
    content = bytearray(originals[name])
    at = data.draw(st.integers(0, len(content) - 1))
    how = data.draw(st.sampled_from(["flip", "cut", "insert"]))
    if how == "flip":
        content[at] ^= data.draw(st.integers(1, 255))
    elif how == "cut":
        del content[at:]
    else:
        content[at:at] = data.draw(st.binary(min_size=1, max_size=9))
    (saved / name).write_bytes(content)
    try:
        rows = load_vectorizer(saved).transform(ENGLISH)
    except DataError:
        pass
    else:  # white space in the JSON, for instance
        assert same(rows, wanted)
    finally:
        for name, original in originals.items():
            (saved / name).write_bytes(original)


def test_state_survives_any_term(tmp_path):
    # Line separators and lone surrogates would not survive text mode or UTF-8; they can be in a term only as
    # characters, and a surrogate is replaced before.
    texts = ["a\u2028b\x85c\x00d", "\ud800x\udfff", "\ufeff\u00a0"]
    vectorizer = TextVectorizer(word_ngrams=None, char_ngrams=(1, 3)).fit(texts)
    vectorizer.save(tmp_path)
    loaded = load_vectorizer(tmp_path)
    assert loaded.feature_names() == vectorizer.feature_names()
    assert "\ufffdx\ufffd" in loaded.feature_names()
    assert same(loaded.transform(texts), vectorizer.transform(texts))
