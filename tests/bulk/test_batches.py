from __future__ import annotations

import re
import shutil
import subprocess
import sys
from copy import copy
from pathlib import Path

import numpy as np
import pytest

import circlet
from circlet.bulk import TagBatches, tag_files
from circlet.errors import CircletError, DataError, ParameterError

PAGE = Path(__file__).parents[2] / "docs" / "bulk.md"


@pytest.fixture(scope="module")
def documents(texts) -> list[str]:
    return texts(20)


@pytest.fixture(
    scope="module",
    params=[{"k": 3}, {"k": 6, "threshold": 0.3}, {"k": 6, "threshold": "auto"}, {"k": 2, "favor_rare": 1.0}],
)
def options(request):
    return request.param


@pytest.fixture(scope="module")
def wanted(model, documents, options) -> dict[str, list]:
    """What the tagger itself answers."""
    answers = circlet.load(model).answers(documents, **{"threshold": None, **options})
    return {
        "labels": [[each.label for each in answer] for answer in answers],
        "scores": [[each.score for each in answer] for answer in answers],
    }


class TestEqualsTheTagger:
    def test_dictionary(self, model, documents, options, wanted):
        batch = {"text": np.array(documents), "n": np.arange(20)}
        found = TagBatches(model, **options)(batch)
        assert {name: found[name].tolist() for name in wanted} == wanted
        assert list(found) == ["text", "n", "labels", "scores"]
        assert list(batch) == ["text", "n"]
        empty = TagBatches(model, **options)({"text": np.array([], dtype=str)})
        assert [len(column) for column in empty.values()] == [0, 0, 0]

    def test_arrow(self, model, documents, options, wanted):
        pyarrow = pytest.importorskip("pyarrow")
        table = pyarrow.table({"body": documents})
        found = TagBatches(model, text_column="body", labels_column="a", scores_column="b", **options)(table)
        assert found["a"].to_pylist() == wanted["labels"]
        assert found["b"].to_pylist() == [list(map(float, map(np.float32, row))) for row in wanted["scores"]]
        assert str(found.schema.field("a").type).endswith(": string>")

    def test_pandas(self, model, documents, options, wanted):
        pandas = pytest.importorskip("pandas")
        found = TagBatches(model, **options)(pandas.DataFrame({"text": documents}))
        assert {name: found[name].tolist() for name in wanted} == wanted


def test_labels_without_names(shared, documents, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    shared("texts", names=False).save(tmp_path / "model")
    tag = TagBatches(tmp_path / "model", k=2, threshold=0.1)
    found = tag(pyarrow.table({"text": documents}))
    assert str(found.schema.field("labels").type).endswith(": int64>")
    assert found.schema == tag(pyarrow.table({"text": pyarrow.array([], pyarrow.string())})).schema


class TestUris:
    @pytest.fixture
    def with_uris(self, shared, tmp_path) -> Path:
        found = copy(shared("texts"))
        found.label_uris = [f"http://example.org/{name}" for name in found.label_names]
        found.save(tmp_path / "model")
        return tmp_path / "model"

    def test_are_added_beside_names(self, with_uris, documents):
        found = TagBatches(with_uris, k=2, threshold=0.1, uris_column="links")({"text": documents})
        assert list(found) == ["text", "labels", "scores", "links"]
        for labels, uris in zip(found["labels"], found["links"], strict=True):
            assert uris == [f"http://example.org/{label}" for label in labels]

    def test_in_arrow_have_a_type_even_without_rows(self, with_uris, documents):
        pyarrow = pytest.importorskip("pyarrow")
        tag = TagBatches(with_uris)
        found = tag(pyarrow.table({"text": documents}))
        assert found.schema == tag(pyarrow.table({"text": pyarrow.array([], pyarrow.string())})).schema
        assert str(found.schema.field("uris").type).endswith(": string>")
        assert found["uris"][0].as_py() == [f"http://example.org/{label}" for label in found["labels"][0].as_py()]

    def test_a_column_that_is_there(self, with_uris):
        with pytest.raises(DataError, match=r"a column 'uris' in the batch, .* wanted another uris_column"):
            TagBatches(with_uris)({"text": ["a"], "uris": [1]})

    @pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
    def test_are_in_the_parts_of_a_run(self, with_uris, documents, write, read, tmp_path, kind):
        if kind == "parquet":
            pytest.importorskip("pyarrow")
        write(tmp_path / "a.jsonl", documents)
        tag_files(with_uris, [str(tmp_path / "a.jsonl")], tmp_path / "out", k=2, format=kind, workers=1)
        for row in read(tmp_path / "out"):
            assert row["uris"] == [f"http://example.org/{label}" for label in row["labels"]]
            assert len(row["uris"]) == 2


def test_other_classes_are_text(documents, tmp_path):
    y = np.array([1.0, 2.0])[np.arange(20) % 2]
    small = {"dim": 16, "hidden": (8,), "epochs": 1, "validation": 0}
    circlet.CircletClassifier(**small).fit(documents, y.tolist()).save(tmp_path / "model")
    found = TagBatches(tmp_path / "model", k=2)({"text": documents[:1]})["labels"]
    assert sorted(found[0]) == ["1.0", "2.0"]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"body": ["a"]}, r"the columns \['body'\]; wanted 'text' among them"),
        ({"text": ["a", None]}, "'text' of type NoneType in row 1 of a batch; wanted a string"),
        ({"text": ["a"], "labels": [1]}, "a column 'labels' in the batch, which would be lost"),
    ],
)
def test_faulty_batches(model, batch, message):
    with pytest.raises(DataError, match=message):
        TagBatches(model)(batch)


@pytest.mark.parametrize("options", [{"k": 0}, {"threshold": 2}, {"labels_column": "text"}])
def test_options_are_checked_when_it_is_made(model, options):
    with pytest.raises(ParameterError):
        TagBatches(model, **options)


def test_a_model_of_rows(shared, tmp_path):
    shared("sparse").save(tmp_path / "model")
    with pytest.raises(CircletError, match="found a model of feature rows; wanted one that was trained on texts"):
        TagBatches(tmp_path / "model")


def recipe(framework: str) -> str:
    """The Python of the page that uses a framework."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (found,) = [code for code in blocks if f"import {framework}" in code or f"from {framework}" in code]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["ray", "pyspark"])
def test_recipe(framework, model, write, documents, at_home, tmp_path):
    """Run a recipe where there are `my-model` and `docs`."""
    pytest.importorskip(framework, reason=f"needs {framework}")
    parquet = pytest.importorskip("pyarrow.parquet")
    if framework == "pyspark" and shutil.which("java") is None:
        pytest.skip("needs Java")
    shutil.copytree(model, tmp_path / "my-model")
    (tmp_path / "docs").mkdir()
    write(tmp_path / "docs" / "a.parquet", documents, [str(row) for row in range(20)])
    local = "import ray; ray.init(address='local', num_cpus=3, include_dashboard=False)\n"
    done = subprocess.run(
        [sys.executable, "-c", (local if framework == "ray" else "") + recipe(framework)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**at_home, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stderr
    found = parquet.read_table(tmp_path / "tagged").to_pylist()
    labels, scores = circlet.load(model).suggest(documents, k=5)
    rows = {row["id"]: row for row in found}
    assert len(found) == len(rows) == 20
    for row in range(20):
        assert list(rows[str(row)]["labels"]) == labels[row].tolist()
        np.testing.assert_allclose(rows[str(row)]["scores"], scores[row], rtol=1e-5)  # six digits
