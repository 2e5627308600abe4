"""Commands about data: `circlet datasets`, and `circlet embed` with our own sentence_transformers on the path."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from circlet.cli import data as datasets
from circlet.data import load_dataset


def test_a_download_says_how_large_and_how_fast_it_was(capsys):
    clock = iter([10.0, 14.0])
    with datasets._fetch_bar("eurlex-4k", lambda: next(clock)) as download, download(8_000_000) as tracker:
        tracker.update(3_000_000)
        tracker.update(5_000_000)
    assert capsys.readouterr() == ("", "eurlex-4k: downloaded 8.0 MB, 2.0 MB/s\n")


def test_list(as_json, circlet):
    assert "eurlex-4k" in circlet("datasets", "list").stdout
    known = {row["name"]: row for row in as_json("datasets", "list")}
    assert known["amazon-670k"]["a"] == 0.6
    assert known["eurlex-4k"]["labels"] == 3993


def test_info_of_a_file(as_json, circlet, tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text('{"text": "a red fox", "labels": ["animal", "red"]}\n{"text": "a car", "labels": []}\n')
    described = as_json("datasets", "info", path)
    assert [described[name] for name in ("train_points", "labels", "empty_rows_train")] == [2, 2, 1]
    assert "JSONL" in described["format"]
    assert "labels per point" in circlet("datasets", "info", path).stdout


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("info nowhere", ["'nowhere'", "circlet datasets list"]),
        ("fetch nowhere", ["'nowhere'", "eurlex-4k"]),
        ("fetch wiki10-31k", ["train.txt and test.txt", "{folder}/wiki10-31k"]),  # nobody may fetch it
        ("info {folder}/damaged.jsonl", ["damaged.jsonl:2", "wanted"]),
    ],
)
def test_datasets_that_are_refused(refused, tmp_path, words, parts):
    (tmp_path / "damaged.jsonl").write_text('{"text": "a", "labels": ["b"]}\n{"text": \n')
    line = refused("datasets", *words.format(folder=tmp_path).split(), CIRCLET_DATA=str(tmp_path))
    assert all(str(Path(part.format(folder=tmp_path))) in line for part in parts)


LIBRARY = """
import os
import numpy as np

class SentenceTransformer:
    max_seq_length = 8
    def __init__(self, path, device, local_files_only):
        assert local_files_only and device == "cpu" and os.environ["HF_HUB_OFFLINE"] == "1"
    def encode(self, texts, **_):
        return np.array([[3 * len(text), 4 * len(text)] for text in texts], dtype=np.float32)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_jsonl) -> Path:
    folder = tmp_path_factory.mktemp("embed")
    (folder / "site").mkdir()
    (folder / "site" / "sentence_transformers.py").write_text(LIBRARY, encoding="utf-8")
    (folder / "model").mkdir()
    (folder / "model" / "modules.json").write_text('[{"type": "sentence_transformers.models.Transformer"}]')
    (folder / "model" / "model.safetensors").write_bytes(b"weights")
    (folder / "data").mkdir()
    for part, texts in (("train", ["one", "three"]), ("test", ["two"])):
        write_jsonl(folder / "data" / f"{part}.jsonl", [{"text": text, "labels": ["number"]} for text in texts])
    return folder


@pytest.fixture
def _library(place, monkeypatch):
    monkeypatch.syspath_prepend(place / "site")
    for name in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_PROGRESS_BARS"):
        monkeypatch.setenv(name, "0")  # the command sets them for its process, which is that of the tests
    yield
    sys.modules.pop("sentence_transformers", None)


@pytest.mark.usefixtures("_library")
def test_texts_become_feature_files(as_json, works, place, tmp_path):
    out = tmp_path / "new" / "features"
    words = ("embed", place / "data", "--sentence-model", place / "model", "--output", out, "--device", "cpu")
    finished = works(*words)
    assert finished.stdout == ""
    assert "X.trn.npy: 2 texts, 2 features" in finished.stderr
    assert "X.tst.npy: 1 texts" in finished.stderr
    np.testing.assert_allclose(np.load(out / "X.trn.npy"), [[0.6, 0.8]] * 2, atol=5e-4)
    np.testing.assert_allclose(np.load(out / "X.tst.npy"), [[0.6, 0.8]], atol=5e-4)
    # The second time there is nothing to do, and the record stays the same.
    record = as_json(*words)
    assert record == json.loads((out / "embed.json").read_text(encoding="utf-8"))
    assert "--json" not in record["provenance"]["command"]
    assert record["model"]["name"] == "model"


@pytest.mark.usefixtures("_library")
def test_the_guide_ends_with_features_that_a_model_can_be_trained_on(works, place, tmp_path, monkeypatch):
    page = Path(__file__).parents[2] / "docs/guides/encoders.md"
    if not page.exists():
        pytest.skip("not a source checkout")
    section = page.read_text(encoding="utf-8").partition("## Sentence models")[2].partition("\n## ")[0]
    (command,) = re.findall(r"^circlet (embed .*)$", section, re.MULTILINE)
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    shutil.copy(place / "data" / "train.jsonl", "mine.jsonl")
    shutil.copytree(place / "model", "models/all-MiniLM-L6-v2")
    works(*command.split(), "--device", "cpu")
    exec(compile(code, "docs/guides/encoders.md", "exec"), {})
    dataset = load_dataset("features")
    assert dataset.format == "npz matrices, dense features"
    assert dataset.label_names == ["number"]
    assert dataset.train.X.shape == (2, 2)


@pytest.mark.usefixtures("_library")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--sentence-model": "someone/some-model"}, r"some-model: found no such folder; .*nothing is downloaded"),
        ({"--device": "nonsense"}, "`device` 'nonsense' is not available"),
        ({"data": "nowhere"}, "found no file, folder or dataset called 'nowhere'"),
        ({"data": "rows.txt"}, r"rows\.txt: found svmlight multilabel text, without texts for its train rows"),
    ],
)
def test_texts_that_are_refused(circlet, change, message, place, tmp_path, monkeypatch):
    (tmp_path / "rows.txt").write_text("0 1:0.5\n1 2:1\n")
    monkeypatch.chdir(tmp_path)
    options = {"--sentence-model": place / "model", "--device": "cpu", "--output": "out", **change}
    data = options.pop("data", place / "data")
    finished = circlet("embed", data, *(word for pair in options.items() for word in pair))
    assert finished.returncode == 2
    assert re.search(message, finished.stderr.splitlines()[-1])
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    assert not (tmp_path / "out").exists()
