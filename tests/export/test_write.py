from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
import scipy.sparse as sp
import torch
from tests.conformance import Graph, inputs_of, make_documents, make_model
from torch import nn

from circlet.errors import DataError, OutputError, ParameterError
from circlet.export import write
from circlet.export.graph import OPSET
from circlet.export.write import write_onnx
from circlet.features.rows import Scaling
from circlet.model import Model
from circlet.network import Ensemble, Network, NetworkSettings

PAGE = Path(__file__).parents[2] / "docs/export.md"
TEXTS = ["a red fox", "the fast car", "a brown bear", "an old red lorry", "größere Bären", "日本のデータ"]


@pytest.fixture
def rows_model(tmp_path) -> Path:
    make_model().save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def text_model(tmp_path) -> Path:
    make_model("texts", named=True, train=TEXTS, text={"char_ngrams": (2, 4)}).save(tmp_path / "texts")
    return tmp_path / "texts"


def test_files(text_model, tmp_path):
    written = write_onnx(text_model, tmp_path / "new" / "tagger.v2.onnx")
    assert {path.name: size for path, size in written.sizes.items()} == {
        path.name: path.stat().st_size for path in (tmp_path / "new").iterdir()
    }
    assert [path.name for path in written.sizes] == [
        "tagger.v2.onnx",
        "tagger.v2.labels.txt",
        "tagger.v2.vocabulary.json",
    ]
    assert (written.opset, written.inputs) == (OPSET, ["columns", "values"])
    assert written.outputs == ["labels", "probabilities", "scores"]
    labels = (tmp_path / "new" / "tagger.v2.labels.txt").read_text(encoding="utf-8")
    assert labels == (text_model / "labels.txt").read_text(encoding="utf-8")
    onnx.checker.check_model(tmp_path / "new" / "tagger.v2.onnx", full_check=True)


def test_uris_of_labels(tmp_path):
    model = make_model(named=True)
    model.label_uris = [f"http://example.org/{i}" for i in range(model.n_labels)]
    model.save(tmp_path / "model")
    path = tmp_path / "out" / "tagger.onnx"
    assert [each.name for each in write_onnx(tmp_path / "model", path).sizes] == [
        "tagger.onnx",
        "tagger.labels.txt",
        "tagger.uris.txt",
    ]
    assert path.with_suffix(".uris.txt").read_text(encoding="utf-8").split("\n") == [*model.label_uris, ""]
    model.label_uris = None
    model.save(tmp_path / "model")
    write_onnx(tmp_path / "model", path, overwrite=True)
    assert not path.with_suffix(".uris.txt").exists()


def test_rows_without_names_need_no_other_file(rows_model, tmp_path):
    written = write_onnx(rows_model, tmp_path / "out" / "tagger.onnx")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["tagger.onnx"]
    assert list(written.sizes) == [tmp_path / "out" / "tagger.onnx"]


def test_what_a_file_says_about_itself(rows_model, tmp_path):
    sparse = Graph(rows_model, make_model()).session
    described = [(each.name, each.shape, each.type) for each in sparse.get_inputs()]
    assert described == [
        ("columns", ["batch", "m"], "tensor(int32)"),
        ("values", ["batch", "m"], "tensor(float)"),
    ]
    described = [(each.name, each.shape, each.type) for each in sparse.get_outputs()]
    assert described == [
        ("labels", ["batch", 5], "tensor(int64)"),
        ("probabilities", ["batch", 5], "tensor(float)"),
        ("scores", ["batch", 23], "tensor(float)"),
    ]
    make_model("dense").save(tmp_path / "dense")
    dense = Graph(tmp_path / "dense", make_model("dense")).session
    assert [(each.name, each.shape) for each in dense.get_inputs()] == [("features", ["batch", 30])]
    about = dense.get_modelmeta()
    assert about.producer_name == "circlet"
    assert about.custom_metadata_map == {"slope": "1.3", "intercept": "-0.4"}


def test_a_row_does_not_depend_on_its_padding(rows_model):
    graph, rows = Graph(rows_model, make_model()).session, inputs_of(make_documents("sparse", 9, 1))
    wide = {name: np.pad(array, [(0, 0), (0, 5)]) for name, array in rows.items()}
    narrow, padded = (graph.run(["scores"], each)[0] for each in (rows, wide))
    np.testing.assert_allclose(padded, narrow, rtol=1e-5, atol=1e-6)


class TestOverwriting:
    @pytest.mark.parametrize(
        "name", ["tagger.onnx", "tagger.labels.txt", "tagger.uris.txt", "tagger.vocabulary.json"]
    )
    def test_nothing_is_replaced_unasked(self, rows_model, tmp_path, name):
        (tmp_path / name).write_text("mine")
        with pytest.raises(ParameterError, match=f"{name} exists already: .*--overwrite"):
            write_onnx(rows_model, tmp_path / "tagger.onnx")
        assert (tmp_path / name).read_text() == "mine"
        assert {path.name for path in tmp_path.iterdir()} == {"model", name}

    def test_asked(self, rows_model, text_model, tmp_path):
        path = tmp_path / "out" / "tagger.onnx"
        write_onnx(text_model, path)
        assert len(list(path.parent.iterdir())) == 3
        write_onnx(text_model, path, overwrite=True, k=3)
        assert len(list(path.parent.iterdir())) == 3
        written = write_onnx(rows_model, path, overwrite=True)
        assert list(path.parent.iterdir()) == [path]  # a vocabulary of another model would mislead
        assert path.stat().st_size == written.sizes[path]


class TestMistakes:
    @pytest.mark.parametrize("name", ["tagger", "tagger.pb", ".onnx", "tagger.onnx.gz"])
    def test_name(self, rows_model, tmp_path, name):
        with pytest.raises(ParameterError, match=r"wanted a name that ends in \.onnx"):
            write_onnx(rows_model, tmp_path / name)

    @pytest.mark.parametrize("k", [0, -1, 2.5, True])
    def test_k(self, rows_model, tmp_path, k):
        with pytest.raises(ParameterError, match=r"`k`: found .*; wanted an integer >= 1"):
            write_onnx(rows_model, tmp_path / "tagger.onnx", k=k)

    def test_no_model(self, tmp_path):
        with pytest.raises(DataError, match="is not a circlet model"):
            write_onnx(tmp_path, tmp_path / "new" / "tagger.onnx")
        assert not (tmp_path / "new").exists()

    def test_no_folder(self, rows_model, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(OutputError, match="cannot write"):
            write_onnx(rows_model, tmp_path / "file" / "tagger.onnx")

    def test_a_failure_leaves_nothing(self, text_model, tmp_path, monkeypatch):
        def full(path, *mode, **options):
            if "tagger.vocabulary" in path.name:
                raise OSError(28, "No space left on device")
            return real(path, *mode, **options)

        real = Path.open
        monkeypatch.setattr(Path, "open", full)
        path = tmp_path / "out" / "tagger.onnx"
        with pytest.raises(OutputError, match=r"cannot write .*tagger.vocabulary.json: No space left"):
            write_onnx(text_model, path)
        assert list(path.parent.iterdir()) == []


@pytest.mark.skipif(not PAGE.exists(), reason="not a source checkout")
class TestPage:
    def test_python_runs(self, tmp_path, monkeypatch, capsys):
        (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        model = make_model(scaling="sqrt", named=True)
        model.save(tmp_path / "model")
        write_onnx(tmp_path / "model", tmp_path / "tagger.onnx", k=2)
        X = make_documents("sparse", 10, 0)
        sp.save_npz(tmp_path / "X.tst.npz", X)
        monkeypatch.chdir(tmp_path)
        exec(compile(code, PAGE.name, "exec"), {})
        ids, scores = model.top_k(X[:8], 2)
        expected = [
            [f"label {label} {p:.2f}" for label, p in zip(*row, strict=True)]
            for row in zip(ids, model.probabilities(scores), strict=True)
        ]
        assert capsys.readouterr().out.splitlines() == [str(row) for row in expected]

    def test_describes_inputs_and_outputs(self, rows_model, tmp_path):
        text = PAGE.read_text(encoding="utf-8")
        written = write_onnx(rows_model, tmp_path / "tagger.onnx")
        for name in ("features", *written.inputs, *written.outputs):
            assert f"| `{name}` |" in text
        assert f"opset {OPSET}" in text

    def test_describes_the_vocabulary(self, text_model, tmp_path):
        write_onnx(text_model, tmp_path / "tagger.onnx")
        made = json.loads((tmp_path / "tagger.vocabulary.json").read_text(encoding="ascii"))
        table = PAGE.read_text(encoding="utf-8").split("## From a text")[1]
        for key in (*made, *made["parts"][0]):
            assert key == "format" or f"`{key}`" in table

    def test_probabilities_of_all_scores(self, rows_model):
        graph = Graph(rows_model, make_model(), 40)
        labels, probabilities, scores = graph.run(make_documents("sparse", 9, 1))
        about = graph.session.get_modelmeta().custom_metadata_map
        about = {name: float(value) for name, value in about.items()}
        by_hand = 1 / (1 + np.exp(-(about["slope"] * scores + about["intercept"])))
        np.testing.assert_allclose(np.take_along_axis(by_hand, labels, axis=1), probabilities, rtol=1e-5)


@pytest.mark.parametrize(
    ("head", "codebook", "size"), [("chrr", "independent", 23 * 2 * 16 * 4), ("hrr", "auto", 23 * 16 * 4)]
)
def test_a_table_is_refused_above_a_size(head, codebook, size, tmp_path, monkeypatch):
    make_model(head=head, codebook=codebook).save(tmp_path / "model")
    monkeypatch.setattr(write, "LARGEST_TABLE", size)
    write_onnx(tmp_path / "model", tmp_path / "one.onnx")
    monkeypatch.setattr(write, "LARGEST_TABLE", size - 1)
    with pytest.raises(ParameterError, match=r"whose codes of 23 labels would take 0 MB .*--large-table"):
        write_onnx(tmp_path / "model", tmp_path / "two.onnx")
    write_onnx(tmp_path / "model", tmp_path / "two.onnx", large_table=True)


def test_a_series_is_never_too_large(rows_model, tmp_path, monkeypatch):
    monkeypatch.setattr(write, "LARGEST_TABLE", 0)
    write_onnx(rows_model, tmp_path / "tagger.onnx")


def test_int8_stays_int8(tmp_path):
    make_model(members=2).save(tmp_path / "model", "int8")
    write_onnx(tmp_path / "model", tmp_path / "tagger.onnx")
    constants = onnx.load(tmp_path / "tagger.onnx").graph.initializer
    assert sum(each.data_type == onnx.TensorProto.INT8 for each in constants) == 4  # two layers of each network


def test_a_custom_encoder(tmp_path):
    class Custom(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.zeros(30, 12))

    network = Network(NetworkSettings(dim=16, hidden=(12,)), 30, 23, sparse=True, encoder=Custom())
    model = Model(Ensemble([network]), Scaling("none"), n_features=30, sparse=True)
    model.save(tmp_path / "model")
    with pytest.raises(DataError, match="found a model with an encoder of its own, which only torch can run"):
        write_onnx(tmp_path / "model", tmp_path / "tagger.onnx")
