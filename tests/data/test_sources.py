from __future__ import annotations

import pytest

from circlet.data import load_dataset
from circlet.data.documents import iter_documents, size_of, write_texts
from circlet.data.records import Record, write_records
from circlet.errors import DataError, ParameterError

RECORDS = [Record(1, "a fox", ("animal",)), Record(2, "a van", ("vehicle", "red"))]


@pytest.fixture
def inputs(tmp_path):
    write_records(tmp_path / "a.jsonl", RECORDS, "jsonl")
    write_records(tmp_path / "b.csv", RECORDS[1:], "csv")
    (tmp_path / "texts").mkdir()
    write_texts(tmp_path / "texts", RECORDS[:1])
    return [tmp_path / "a.jsonl", tmp_path / "b.csv", tmp_path / "texts"]


def test_each_kind(inputs):
    for path, kind, expected in zip(
        inputs, ("jsonl", "csv", "plain"), (RECORDS, RECORDS[1:], RECORDS[:1]), strict=True
    ):
        told: list[int] = []
        found = list(iter_documents(path, kind, progress=told.append))
        assert [(each.text, each.labels) for each in found] == [(each.text, each.labels) for each in expected]
        assert sum(told) <= size_of(path)
    assert size_of(inputs[2]) == len("a fox")


def test_several_as_one(inputs):
    dataset = load_dataset(inputs)
    assert dataset.train.texts == ["a fox", "a van", "a van", "a fox"]
    assert dataset.label_names == ["animal", "red", "vehicle"]
    assert dataset.train.Y.sum(axis=0).tolist() == [[2, 2, 2]]
    assert dataset.name == "a and 2 more"
    assert dataset.format == "JSONL text, CSV text, plain text, a document per file; 3 files"


def test_several_that_are_not_texts(inputs, tmp_path):
    (tmp_path / "x.svm").write_text("0 0:1\n")
    (tmp_path / "empty").mkdir()
    for other, found in ((tmp_path / "x.svm", "svmlight"), (tmp_path / "empty", "a folder")):
        with pytest.raises(
            DataError, match=f"found {found}.*; wanted only files with texts, if there are several"
        ):
            load_dataset([inputs[0], other])
    with pytest.raises(ParameterError, match="found no files to read"):
        load_dataset([])
