"""`circlet embed` as a person runs it, with our own sentence_transformers on the path."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from circlet.data import load_dataset

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


@pytest.fixture(autouse=True)
def _library(place, monkeypatch):
    monkeypatch.syspath_prepend(place / "site")
    for name in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_PROGRESS_BARS"):
        monkeypatch.setenv(name, "0")  # the command sets them for its process, which is that of the tests
    yield
    sys.modules.pop("sentence_transformers", None)


def test_texts_become_feature_files(circlet, works, place, tmp_path):
    out = tmp_path / "new" / "features"
    words = ("embed", place / "data", "--sentence-model", place / "model", "--output", out, "--device", "cpu")
    finished = works(*words)
    assert finished.stdout == ""
    assert "X.trn.npy: 2 texts, 2 features" in finished.stderr
    assert "X.tst.npy: 1 texts" in finished.stderr
    np.testing.assert_allclose(np.load(out / "X.trn.npy"), [[0.6, 0.8]] * 2, atol=5e-4)
    np.testing.assert_allclose(np.load(out / "X.tst.npy"), [[0.6, 0.8]], atol=5e-4)
    # The second time there is nothing to do, and the record stays the same.
    finished = circlet(*words, "--json")
    record = json.loads(finished.stdout)
    assert record == json.loads((out / "embed.json").read_text(encoding="utf-8"))
    assert "--json" not in record["provenance"]["command"]
    assert record["model"]["name"] == "model"


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--sentence-model": "someone/some-model"}, r"some-model: found no such folder; .*nothing is downloaded"),
        ({"--device": "nonsense"}, "`device` 'nonsense' is not available"),
        ({"data": "nowhere"}, "found no file, folder or dataset called 'nowhere'"),
        ({"data": "rows.txt"}, r"rows\.txt: found svmlight multilabel text, without texts for its train rows"),
    ],
)
def test_mistakes(circlet, change, message, place, tmp_path, monkeypatch):
    (tmp_path / "rows.txt").write_text("0 1:0.5\n1 2:1\n")
    monkeypatch.chdir(tmp_path)
    options = {"--sentence-model": place / "model", "--device": "cpu", "--output": "out", **change}
    data = options.pop("data", place / "data")
    finished = circlet("embed", data, *(word for pair in options.items() for word in pair))
    assert finished.returncode == 2
    assert re.search(message, finished.stderr.splitlines()[-1])
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    assert not (tmp_path / "out").exists()
