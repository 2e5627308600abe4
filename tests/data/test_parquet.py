from __future__ import annotations

import sys

import pytest

from circlet.data import load_dataset
from circlet.data.documents import iter_parquet, write_parquet
from circlet.data.records import Columns, Record
from circlet.errors import DataError, MissingExtraError

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

RECORDS = [Record(1, "a fox", ("animal", "é")), Record(2, "", ())]


def write(path, **columns):
    parquet.write_table(pyarrow.table(columns), path)
    return path


def test_written_and_read(tmp_path):
    write_parquet(tmp_path / "a.parquet", RECORDS)
    assert list(iter_parquet(tmp_path / "a.parquet")) == RECORDS
    dataset = load_dataset(tmp_path / "a.parquet")
    assert (dataset.format, dataset.label_names) == ("Parquet", ["animal", "é"])


def test_other_columns_ids_and_labels(tmp_path):
    path = write(tmp_path / "a.parquet", body=["a", "b", "c"], tags=[[1, 2], None, [2]], id=["x", None, "z"])
    found = list(iter_parquet(path, Columns("body", "tags", id="id")))
    assert [(each.text, each.labels, each.id) for each in found] == [
        ("a", ("1", "2"), "x"), ("b", (), None), ("c", ("2",), "z"),
    ]  # fmt: skip
    assert [each.labels for each in iter_parquet(path, Columns("body"), need_labels=False)] == [(), (), ()]


def test_one_label_each(tmp_path):
    path = write(tmp_path / "a.parquet", text=["a"], labels=["red, dark"])
    assert next(iter_parquet(path)).labels == ("red, dark",)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": ["a"]}, "found the columns 'text'; wanted a column 'labels', or --label-column"),
        ({"body": ["a"], "labels": [["x"]]}, "wanted a column 'text', or --text-column"),
        ({"text": [1], "labels": [["x"]]}, "a.parquet:1: found 'text' of type int; wanted a string"),
        ({"text": ["a"], "labels": [[0.5]]}, r"found the labels '\[0.5\]'; wanted a list of strings or integers"),
        ({"text": ["a"], "labels": [["x\ty"]]}, "a label name with a tab"),
    ],
)
def test_tables_that_do_not_fit(tmp_path, columns, message):
    with pytest.raises(DataError, match=message):
        list(iter_parquet(write(tmp_path / "a.parquet", **columns)))


@pytest.mark.parametrize("harmed", [b"a fox", b"labels"])  # a text, and the names of columns
def test_bytes_that_are_no_text(tmp_path, harmed):
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["a fox"], "labels": [["x"]]}), path, compression="none")
    path.write_bytes(path.read_bytes().replace(harmed, b"\xf4" + harmed[1:]))
    with pytest.raises(DataError, match=r"a\.parquet: found no readable Parquet .*; wanted a complete file"):
        list(iter_parquet(path))


def test_no_rows_and_no_parquet(tmp_path):
    schema = pyarrow.schema({"text": pyarrow.string(), "labels": pyarrow.list_(pyarrow.string())})
    parquet.write_table(schema.empty_table(), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="found no documents; wanted at least one"):
        list(iter_parquet(tmp_path / "a.parquet"))
    (tmp_path / "b.parquet").write_bytes(b"PAR1 and nothing else PAR1")
    with pytest.raises(DataError, match=r"b\.parquet: found no readable Parquet"):
        load_dataset(tmp_path / "b.parquet")


def test_progress(tmp_path):
    write_parquet(tmp_path / "a.parquet", RECORDS)
    told: list[int] = []
    list(iter_parquet(tmp_path / "a.parquet", progress=told.append))
    assert 0 < sum(told) <= (tmp_path / "a.parquet").stat().st_size


def test_without_its_extra(tmp_path, monkeypatch):
    write_parquet(tmp_path / "a.parquet", RECORDS)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr("circlet.extras.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"circlet\[parquet\]"):
        load_dataset(tmp_path / "a.parquet")
