"""Embedding texts, mostly with a model that is not one: sentence-transformers is an optional extra."""

from __future__ import annotations

import json
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from circlet.data import Dataset, Split, matrices
from circlet.errors import DataError, MissingExtraError, ParameterError
from circlet.features.embed import RECORD, embed, embed_dataset, encode, load_model, with_features

TRANSFORMER = "sentence_transformers.models.Transformer"


class Letters:
    """Counts a, b and everything, so that rows are known and none is of norm 1."""

    max_seq_length = 256

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def encode(self, texts, *, batch_size, show_progress_bar, convert_to_numpy):
        assert batch_size == len(texts)
        assert convert_to_numpy
        assert not show_progress_bar
        self.batches.append(texts)
        return np.array([[text.count("a"), text.count("b"), len(text)] for text in texts], dtype=np.float64)


def expected(texts):
    rows = Letters().encode(texts, batch_size=len(texts), show_progress_bar=False, convert_to_numpy=True)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def model_folder(folder: Path, kind: str = TRANSFORMER, weights: str = "model.safetensors") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "modules.json").write_text(json.dumps([{"idx": 0, "type": kind}]), encoding="utf-8")
    (folder / weights).write_bytes(b"weights")
    return folder


def dataset(train, test=None) -> Dataset:
    """Of texts, or of rows of numbers, which get texts of their own."""

    def split(part):
        rows = None if isinstance(part[0], str) else sp.csr_matrix(np.array(part, dtype=np.float32))
        texts = list(part) if rows is None else [f"text {row}" for row in range(len(part))]
        return Split(rows, sp.csr_matrix(np.ones((len(part), 1), dtype=np.float32)), texts)

    return Dataset("tiny", split(train), None if test is None else split(test))


@pytest.fixture
def library(monkeypatch):
    """A sentence_transformers and a huggingface_hub of our own, and what was asked of the first."""
    asked: list[dict] = []
    constants = ModuleType("huggingface_hub.constants")
    constants.HF_HUB_OFFLINE = False
    made = ModuleType("sentence_transformers")

    def build(path, **options):
        asked.append({"path": path, "offline": constants.HF_HUB_OFFLINE, **options})
        return Letters()

    made.SentenceTransformer = build
    monkeypatch.setitem(sys.modules, "sentence_transformers", made)
    monkeypatch.setitem(sys.modules, "huggingface_hub", ModuleType("huggingface_hub"))
    monkeypatch.setitem(sys.modules, "huggingface_hub.constants", constants)
    return SimpleNamespace(asked=asked, module=made, constants=constants)


def test_rows_have_norm_one_and_keep_the_order_of_the_texts():
    model = Letters()
    texts = ["aab", "", "bbbbbb", "ab", "b"]
    rows = encode(model, texts, batch_size=2)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, expected(texts), atol=1e-6)
    assert model.batches == [["bbbbbb", "aab"], ["ab", "b"], [""]]  # the longest first


@settings(max_examples=40)
@given(texts=st.lists(st.text("abc ", max_size=8), max_size=9), batch_size=st.integers(1, 10))
def test_batches_do_not_change_rows(texts, batch_size):
    rows = encode(Letters(), texts, batch_size=batch_size)
    assert rows.shape == (len(texts), 3)
    if texts:
        np.testing.assert_allclose(rows, expected(texts), atol=1e-6)


def test_progress_sees_every_step():
    seen: list[int] = []

    def progress(steps):
        assert len(steps) == 3
        for step in steps:
            seen.append(step)
            yield step

    encode(Letters(), ["a"] * 5, batch_size=2, progress=progress)
    assert seen == [0, 2, 4]


def test_arguments_that_cannot_be_encoded():
    for size in (0, -1, 2.0, True):
        with pytest.raises(ParameterError, match=r"`batch_size`: found .*; wanted an integer >= 1"):
            encode(Letters(), ["a"], batch_size=size)
    with pytest.raises(DataError, match="found one text; wanted a list"):
        encode(Letters(), "abc")
    with pytest.raises(DataError, match="text 2: found NoneType; wanted a text"):
        encode(Letters(), ["a", None])


def test_a_model_that_gives_something_else():
    for rows, message in (
        (np.zeros(3), r"found embeddings of shape \(3,\); wanted one row for each of 2 texts"),
        (np.zeros((1, 3)), r"found embeddings of shape \(1, 3\)"),
        (np.array([[1.0], [np.nan]]), "non-finite embedding of 'b'; wanted finite"),
    ):
        with pytest.raises(DataError, match=message):
            encode(SimpleNamespace(encode=lambda texts, rows=rows, **_: rows), ["aa", "b"])


def test_embed_loads_from_the_folder_with_the_hub_switched_off(library, tmp_path):
    folder = model_folder(tmp_path / "model")
    np.testing.assert_allclose(embed(["ab"], folder, device="cpu"), expected(["ab"]), atol=1e-6)
    load_model(str(folder))
    common = {"path": str(folder), "offline": True, "local_files_only": True}
    assert library.asked == [{**common, "device": "cpu"}, {**common, "device": None}]
    assert library.constants.HF_HUB_OFFLINE is False  # as it was


def test_paths_that_are_no_model(library, tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    for path, message in (
        ("sentence-transformers/all-MiniLM-L6-v2", "no such folder; wanted the folder .*nothing is downloaded"),
        (tmp_path / "file", "file: found a file; wanted the folder"),
        (tmp_path / "empty", r"empty: found no modules\.json; wanted a folder as"),
        (model_folder(tmp_path / "pickled", weights="pytorch_model.bin"), r"found no \.safetensors file; wanted"),
        (model_folder(tmp_path / "code", kind="mine.Custom"), r"modules\.json: found a module of type 'mine\.Cus"),
    ):
        with pytest.raises(DataError, match=message):
            embed(["a"], path)
    folder = model_folder(tmp_path / "damaged")
    for content in (b"", b"{", b"3", b"[3]", b"[{}]", b"\xff", b"[" * 100_000):
        (folder / "modules.json").write_bytes(content)
        with pytest.raises(DataError, match=r"modules\.json: found no readable list of modules"):
            load_model(folder)
    assert library.asked == []


def test_a_model_that_does_not_load(library, tmp_path):
    def fail(*_, **__):
        raise OSError("no tokenizer here")

    library.module.SentenceTransformer = fail
    with pytest.raises(DataError, match=r"cannot be loaded on device cuda:9 \(OSError: no tokenizer here\)"):
        load_model(model_folder(tmp_path), device="cuda:9")
    assert library.constants.HF_HUB_OFFLINE is False


def test_without_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError, match=r"sentence-transformers, .*pip install 'circlet\[embed\]'"):
        embed(["a"], model_folder(tmp_path))


def test_a_dataset_becomes_files_that_the_reader_reads(library, tmp_path):
    model, folder = model_folder(tmp_path / "letters"), tmp_path / "out"
    texts = ["aab", "b\ud800"]
    record = embed_dataset(dataset(texts, ["bb"]), model, folder, batch_size=1)
    assert sorted(path.name for path in folder.iterdir()) == ["X.trn.npy", "X.tst.npy", RECORD]
    np.testing.assert_allclose(matrices.read_features(folder / "X.trn.npy"), expected(texts), atol=5e-4)
    np.testing.assert_allclose(matrices.read_features(folder / "X.tst.npy"), expected(["bb"]), atol=5e-4)
    assert json.loads((folder / RECORD).read_text(encoding="utf-8")) == record
    assert record["model"]["name"] == "letters"
    named = embed_dataset(dataset(["a"]), model, tmp_path / "named", name="mine")
    assert named["model"]["name"] == "mine"
    assert record["model"]["max_seq_length"] == 256
    assert set(record["model"]["files"]) == {"modules.json", "model.safetensors"}
    assert record["data"] == {"name": "tiny", "format": "in memory"}
    found = {part: (entry["rows"], entry["dims"]) for part, entry in record["parts"].items()}
    assert found == {"trn": (2, 3), "tst": (1, 3)}
    assert "sentence-transformers" in record["provenance"]["versions"]


def test_a_broken_run_goes_on_with_what_is_missing(library, tmp_path, monkeypatch):
    model, folder, data = model_folder(tmp_path / "m"), tmp_path / "out", dataset(["a", "b"], ["ab"])

    def interrupt_at(part):
        def progress(description, steps):
            if part in description:
                raise KeyboardInterrupt
            return steps

        with pytest.raises(KeyboardInterrupt):
            embed_dataset(data, model, folder, progress=progress)
        return sorted(path.name for path in folder.iterdir())

    assert interrupt_at("test") == ["X.trn.npy", RECORD]
    assert list(json.loads((folder / RECORD).read_text(encoding="utf-8"))["parts"]) == ["trn"]
    seen = []
    embed_dataset(data, model, folder, progress=lambda description, steps: seen.append(description) or steps)
    assert seen == ["embedding test"]
    with monkeypatch.context() as changed:  # all done: not even the model is loaded
        changed.setitem(sys.modules, "sentence_transformers", None)
        assert list(embed_dataset(data, model, folder)["parts"]) == ["trn", "tst"]
    (model / "model.safetensors").write_bytes(b"others")
    assert interrupt_at("train") == [RECORD]  # nothing stale survives


@pytest.mark.parametrize(
    ("change", "again"),
    [
        ("texts", ["embedding train"]),
        ("model", ["embedding train", "embedding test"]),
        ("file", ["embedding train"]),
        ("no test", []),
    ],
)
def test_features_of_something_else_are_made_anew(change, again, library, tmp_path):
    model, folder = model_folder(tmp_path / "m"), tmp_path / "out"
    embed_dataset(dataset(["ab", "c"], ["ab"]), model, folder)
    # The same letters, split differently
    new = dataset(["a", "bc"] if change == "texts" else ["ab", "c"], None if change == "no test" else ["ab"])
    if change == "model":
        (model / "model.safetensors").write_bytes(b"others")
    if change == "file":
        (folder / "X.trn.npy").write_bytes(b"damaged")
    seen = []
    record = embed_dataset(new, model, folder, progress=lambda words, steps: seen.append(words) or steps)
    assert seen == again
    assert list(record["parts"]) == (["trn"] if change == "no test" else ["trn", "tst"])
    assert (folder / "X.tst.npy").exists() == (change != "no test")
    np.testing.assert_allclose(np.load(folder / "X.trn.npy"), expected(new.train.texts), atol=5e-4)


@pytest.mark.parametrize("name", ["X.trn.npz", "X.tst.npy"])
def test_a_folder_with_features_of_other_origin_is_left_alone(name, library, tmp_path):
    (tmp_path / name).write_bytes(b"mine")
    with pytest.raises(ParameterError, match=rf"holds {name}, but no embed\.json: choose another folder"):
        embed_dataset(dataset(["a"]), model_folder(tmp_path / "m"), tmp_path)
    assert (tmp_path / name).read_bytes() == b"mine"
    assert library.asked == []


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"model": {}, "parts": []}'])
def test_a_record_that_is_none(content, library, tmp_path):
    (tmp_path / RECORD).write_text(content)
    with pytest.raises(DataError, match=r"embed\.json: found no readable record .* wanted one that"):
        embed_dataset(dataset(["a"]), model_folder(tmp_path / "m"), tmp_path)


def test_a_dataset_without_texts(library, tmp_path):
    Y = sp.csr_matrix(np.ones((1, 1), dtype=np.float32))
    rows = Split(sp.csr_matrix(np.ones((1, 2), dtype=np.float32)), Y)
    with pytest.raises(DataError, match=r"d: found in memory, without texts for its train rows; wanted .*JSONL"):
        embed_dataset(Dataset("d", rows), model_folder(tmp_path / "m"), tmp_path / "out")
    both = Dataset("d", Split(rows.X, Y, ["a"]), rows)
    with pytest.raises(DataError, match=r"texts for its test rows; wanted .*test_raw_texts\.txt"):
        embed_dataset(both, model_folder(tmp_path / "m"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(find_spec("sentence_transformers") is None, reason="sentence-transformers is not installed")
@pytest.mark.filterwarnings("ignore")
def test_the_real_library(tmp_path, monkeypatch):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "fox": 1, "hen": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    weights = np.array([[1, 0], [3, 4], [0, 2]], dtype=np.float32)
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=weights)]).save(str(tmp_path / "m"))

    def refused(*_, **__):
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refused)
    record = embed_dataset(dataset(["fox", "fox hen", "hen"]), tmp_path / "m", tmp_path / "out", device="cpu")
    assert record["model"]["max_seq_length"] is None  # this kind of model has no limit
    assert any(name.endswith(".safetensors") for name in record["model"]["files"])
    rows = np.load(tmp_path / "out" / "X.trn.npy")
    np.testing.assert_allclose(rows, [[0.6, 0.8], np.array([3, 6]) / 45**0.5, [0, 1]], atol=5e-4)


def write(folder, **arrays):
    folder.mkdir(exist_ok=True)
    for part, rows in arrays.items():
        np.save(folder / f"X.{part}.npy", np.array(rows, dtype=np.float32))
    return folder


TINY = dataset([[3, 0, 4], [0, 0, 0]], [[0, 2, 0]])


def test_dense_rows_take_the_place_of_sparse_ones(tmp_path):
    write(tmp_path, trn=[[1, 2], [3, 4]], tst=[[5, 6]])
    made = with_features(TINY, tmp_path, "dense")
    np.testing.assert_array_equal(made.train.X, [[1, 2], [3, 4]])
    np.testing.assert_array_equal(made.test.X, [[5, 6]])
    assert made.train.X.dtype == np.float32
    assert made.n_features == 2
    assert made.format == "dense features"
    assert made.train.texts == TINY.train.texts
    assert made.train.Y is TINY.train.Y


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_both_halves_of_a_row_have_norm_one(form, tmp_path):
    write(tmp_path, trn=[[0, 2], [3, -4]], tst=[[5, 0]])
    parts = [Split(form(part.X.toarray()), part.Y) for part in (TINY.train, TINY.test)]
    made = with_features(Dataset("tiny", *parts), tmp_path, "both")
    X = made.train.X
    assert type(X) is sp.csr_matrix
    assert X.dtype == np.float32
    np.testing.assert_allclose(X.toarray(), [[0.6, 0, 0.8, 0, 1], [0, 0, 0, 0.6, -0.8]], atol=1e-7)
    np.testing.assert_allclose(made.test.X.toarray(), [[0, 1, 0, 1, 0]], atol=1e-7)
    assert X.nnz == 5  # zeros are not stored
    assert X.has_canonical_format
    assert made.format == "in memory, with dense features beside them"
    assert abs(parts[0].X).sum() == 7  # the caller's is as it was


def test_rows_without_test_rows_or_without_other_features(tmp_path):
    write(tmp_path, trn=[[1, 2], [3, 4]])
    made = with_features(dataset([[1, 0], [0, 1]]), tmp_path, "both")
    assert made.test is None
    assert made.n_features == 4
    texts = dataset(["a", "b"])
    assert with_features(texts, tmp_path, "dense").n_features == 2
    with pytest.raises(DataError, match="tiny: found in memory, without features; wanted features"):
        with_features(texts, tmp_path, "both")
    # An archive with one array will do.
    (tmp_path / "X.trn.npy").unlink()
    np.savez(tmp_path / "X.trn.npz", np.ones((2, 3), dtype=np.float16))
    assert with_features(texts, tmp_path, "dense").train.X.dtype == np.float32


def test_what_does_not_fit(tmp_path):
    def refused(error, message, folder=tmp_path, **options):
        with pytest.raises(error, match=message):
            with_features(TINY, folder, **options)

    refused(ParameterError, "`mode`: found 'sparse'; wanted one of dense, both", mode="sparse")
    refused(DataError, r"found no X\.trn\.npy; wanted dense features of 2 rows", tmp_path / "nowhere")
    write(tmp_path, trn=[[1, 2], [3, 4]])
    refused(DataError, r"found no X\.tst\.npy; wanted dense features of 1 rows")
    for rows, message in (
        ([[1, 2], [3, 4]], r"X\.tst\.npy: found 2 rows; wanted one for each of the 1 rows"),
        ([[1, 2, 3]], r"found 2 columns in X\.trn and 3 in X\.tst; wanted the same"),
        ([[1, np.nan]], r"X\.tst\.npy: found nan at row 1"),
    ):
        write(tmp_path, tst=rows)
        refused(DataError, message)
    sp.save_npz(tmp_path / "X.trn.npz", sp.csr_matrix(np.eye(2)))
    refused(DataError, r"X\.trn\.npz: found a sparse matrix; wanted dense features")
