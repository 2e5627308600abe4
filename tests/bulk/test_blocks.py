from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

import circlet
from circlet.bulk.plan import Options, Plan, cut
from circlet.bulk.run import Job, columns_of, digest_of, documents, tag_block
from circlet.errors import DataError


@pytest.fixture
def prepared(model, tmp_path):
    """The job and the tasks for a file."""

    def prepare(path: Path, kind: str = "jsonl", size: int = 100, integer_ids: bool = False):
        options = Options(digest_of(model), 3, None, 0.0, "text", kind, size)
        plan = Plan(options, [cut(path, columns_of("text"), size)])
        output = tmp_path / "out"
        output.mkdir(exist_ok=True)
        return Job(str(model), str(output), options, integer_ids), list(plan.tasks())

    return prepare


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv", "parquet"])
def test_labels_are_those_of_the_tagger(prepared, model, write, read, texts, tmp_path, kind):
    job, tasks = prepared(write(tmp_path / f"a.{kind}", texts(30), list("abcdefghijklmnopqrstuvwxyzäöüß")), kind)
    outcomes = [tag_block(job, task) for task in tasks]
    assert sum(outcome.documents for outcome in outcomes) == 30
    assert all(outcome.error is None for outcome in outcomes)
    labels, scores = circlet.load(model).suggest(texts(30), k=3)
    found = read(tmp_path / "out")
    assert [row["id"] for row in found] == list("abcdefghijklmnopqrstuvwxyzäöüß")
    assert [row["labels"] for row in found] == labels.tolist()
    assert [row["scores"] for row in found] == [[round(one, 4) for one in row] for row in scores.tolist()]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {task.part for task in tasks}


def test_documents_without_ids_have_file_and_line(prepared, write, read, tmp_path):
    job, tasks = prepared(write(tmp_path / "a.jsonl", ["one", "two", "three"]), size=1)
    for task in tasks:
        tag_block(job, task)
    assert [row["id"] for row in read(tmp_path / "out")] == ["a.jsonl:1", "a.jsonl:2", "a.jsonl:3"]


class TestIdsOfParquet:
    def test_all_parts_have_one_type(self, prepared, write, tmp_path):
        parquet = pytest.importorskip("pyarrow.parquet")
        job, tasks = prepared(write(tmp_path / "a.jsonl", ["one", "two"], [1, "b"]), "parquet", size=1)
        for task in tasks:
            tag_block(job, task)
        parts = [parquet.read_table(tmp_path / "out" / task.part) for task in tasks]
        assert parts[0].schema == parts[1].schema
        assert [part["id"].to_pylist() for part in parts] == [["1"], ["b"]]

    def test_integers_stay(self, prepared, write, read, tmp_path):
        path = write(tmp_path / "a.parquet", ["one", "two"], [7, 8])
        job, (task,) = prepared(path, "parquet", integer_ids=True)
        tag_block(job, task)
        assert [row["id"] for row in read(tmp_path / "out")] == [7, 8]

    def test_an_id_that_is_missing(self, prepared, write, tmp_path):
        job, (task,) = prepared(write(tmp_path / "a.parquet", ["one", "two"], [7, None]), "parquet", 100, True)
        assert tag_block(job, task).error.endswith(
            "a.parquet:2: found no id; wanted an integer, as the column has"
        )


class TestFaults:
    def test_bad_rows_are_named_by_file_and_line(self, prepared, write, texts, tmp_path):
        path = write(tmp_path / "a.jsonl", texts(40))
        lines = path.read_bytes().splitlines(keepends=True)
        lines[30] = b'{"text": 5}\n'
        path.write_bytes(b"".join(lines))
        job, tasks = prepared(path)
        errors = [outcome.error for outcome in (tag_block(job, task) for task in tasks) if outcome.error]
        assert errors == [f"{path}:31: found 'text' of type int; wanted a string"]
        assert len(list((tmp_path / "out").iterdir())) == len(tasks) - 1

    @pytest.mark.parametrize(("ids", "named"), [([1.5, 2.0], "'id' of type float"), (None, "'text' of type int")])
    def test_bad_rows_of_parquet(self, prepared, write, tmp_path, ids, named):
        path = write(tmp_path / "a.parquet", ["a", "b"] if ids else [1, 2], ids)
        job, (task,) = prepared(path)
        assert tag_block(job, task).error.startswith(f"{path}:1: found {named}; wanted a string")

    def test_not_utf8(self, prepared, write, tmp_path):
        path = write(tmp_path / "a.jsonl", ["a", "b", "c"])
        path.write_bytes(path.read_bytes().replace(b"c", b"\xff"))
        job, tasks = prepared(path, size=20)
        assert f"{path}:3: found byte 0xff" in tag_block(job, tasks[-1]).error

    def test_a_file_that_changes_during_the_run(self, prepared, write, texts, tmp_path):
        path = write(tmp_path / "a.jsonl", texts(10))
        job, tasks = prepared(path)
        os.utime(path, ns=(0, 0))
        assert "found another time of change than when its blocks were planned" in tag_block(job, tasks[0]).error
        assert list((tmp_path / "out").iterdir()) == []

    def test_another_model(self, prepared, write, texts, tmp_path):
        job, tasks = prepared(write(tmp_path / "a.jsonl", texts(10)))
        changed = replace(job, options=replace(job.options, model="0" * 64))
        assert "found another model than when the run began" in tag_block(changed, tasks[0]).error

    def test_no_model(self, tmp_path):
        with pytest.raises(DataError, match="found no readable model"):
            digest_of(tmp_path)


def test_batches_are_bounded(prepared, model, tmp_path, write, monkeypatch):
    """However large a block is, few documents are in memory: their number and their length are bounded."""
    from circlet.bulk import run

    monkeypatch.setattr(run, "_DOCUMENTS", 4)
    monkeypatch.setattr(run, "_CHARACTERS", 50)
    path = write(tmp_path / "a.jsonl", ["a"] * 10 + ["b" * 60] * 2 + ["c"])
    file, (block,) = cut(path, columns_of("text"), 1 << 20)
    records = documents(file, block, columns_of("text"))
    assert [len(batch) for batch in run._batches(records)] == [4, 4, 3, 1, 1]
