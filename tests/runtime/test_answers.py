from __future__ import annotations

import csv
import gzip
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circlet.data.records import Columns, iter_records
from circlet.errors import DataError, MissingExtraError, OutputError, ParameterError
from circlet.runtime.answers import Answer, Suggestion, format_of, rounded, rounded_rows, shown, writing_answers


def tagged(name, labels, scores):
    return Answer(name, list(map(Suggestion, labels, scores)))


DOCUMENTS = [
    tagged("a, b", ["red; fox", 'the "fox"', "it's | é"], [0.9, 0.1234, 0.0]),
    tagged(7, [], []),
    tagged("x\ty\nz", ["fox"], [1.0]),
]
TEXT_FORMATS = ["jsonl", "csv", "tsv"]
# Any label that a dataset may have, without the spaces around it that readers drop.
LABELS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r\0"), min_size=1).filter(
    lambda label: label.strip(" ") == label and label.strip()
)


def written(path: Path, *batches: list[Answer], **options: int) -> Path:
    with writing_answers(path, **options) as write:
        for batch in batches:
            write(batch)
    return path


def read(path: Path) -> list[Answer]:
    """What a file holds, read by others than circlet; CSV and TSV have no integer ids."""
    if path.suffix == ".parquet":
        from pyarrow import parquet

        return [tagged(*row.values()) for row in parquet.read_table(path).to_pylist()]
    packed = path.suffix == ".gz"
    text = (gzip.decompress(path.read_bytes()) if packed else path.read_bytes()).decode()
    if ".jsonl" in path.name:
        return [tagged(*json.loads(line).values()) for line in text.splitlines()]
    rows = list(csv.DictReader(text.splitlines(keepends=True), delimiter="\t" if ".tsv" in path.name else ","))
    return [tagged(row["id"], json.loads(row["labels"]), json.loads(row["scores"])) for row in rows]


@given(st.lists(st.floats(0, 1, width=32), min_size=1))
def test_digits(row):
    some = {0.123456789: 0.123457, 1.0: 1.0, 1.23456789e-9: 1.23457e-09, 0.0: 0.0, 0.0001: 0.0001}
    assert [rounded(one) for one in some] == list(some.values())
    assert [shown(one) for one in (0.123456789, 1.0, 1.23456789e-9)] == ["0.1235", "1.0000", "0.0000"]
    both = [row, row[::-1]]
    assert rounded_rows(np.array(both, dtype=np.float32)) == [[rounded(one) for one in each] for each in both]


def test_the_bytes_by_hand(tmp_path):
    assert written(tmp_path / "a.jsonl", DOCUMENTS[:2]).read_text(encoding="utf-8") == (
        '{"id": "a, b", "labels": ["red; fox", "the \\"fox\\"", "it\'s | é"], "scores": [0.9, 0.1234, 0.0]}\n'
        '{"id": 7, "labels": [], "scores": []}\n'
    )
    pair = [tagged(0, ["a", "b"], [0.9, 0.1])]
    assert written(tmp_path / "a.csv", pair).read_text() == ('id,labels,scores\n0,"[""a"", ""b""]","[0.9, 0.1]"\n')
    assert written(tmp_path / "none.jsonl").read_text() == ""
    assert written(tmp_path / "none.csv").read_text() == "id,labels,scores\n"
    assert written(tmp_path / "a.tsv", pair).read_text() == (
        'id\tlabels\tscores\n0\t"[""a"", ""b""]"\t[0.9, 0.1]\n'
    )


@pytest.mark.parametrize("kind", [*TEXT_FORMATS, *(f"{kind}.gz" for kind in TEXT_FORMATS), "parquet"])
def test_others_read_it(tmp_path, kind):
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    as_text = "jsonl" not in kind
    found = read(written(tmp_path / f"a.{kind}", DOCUMENTS[:1], DOCUMENTS[1:]))
    assert found == [Answer(str(one.id) if as_text else one.id, one.labels) for one in DOCUMENTS]
    nameless = tagged(0, [3, 1], [0.75, 0.5])
    (answer,) = read(written(tmp_path / f"b.{kind}", [nameless], named=False))
    assert answer == Answer("0" if as_text and kind != "parquet" else 0, nameless.labels)


@pytest.mark.parametrize("kind", TEXT_FORMATS)
@settings(max_examples=40)
@given(labels=st.lists(st.lists(LABELS, max_size=3, unique=True), min_size=1, max_size=4))
def test_circlet_reads_the_labels(tmp_path_factory, kind, labels):
    path = tmp_path_factory.mktemp("tagged") / f"a.{kind}"
    written(path, [tagged(f"d{row}", names, [0.5] * len(names)) for row, names in enumerate(labels)])
    # The ids take the place of texts, which are not in these files.
    found = [(one.text, list(one.labels)) for one in iter_records(path, kind, Columns("id"))]
    assert found == [(f"d{row}", names) for row, names in enumerate(labels)]


@pytest.mark.parametrize("kind", [*TEXT_FORMATS, "parquet"])
def test_a_fault_leaves_what_was_there(tmp_path, kind):
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"a.{kind}"

    def fail() -> None:
        with writing_answers(path) as write:
            write(DOCUMENTS)
            raise DataError("half-way")

    with pytest.raises(DataError):
        fail()
    assert list(tmp_path.iterdir()) == []
    before = written(path, DOCUMENTS[:1]).read_bytes()
    with pytest.raises(DataError):
        fail()
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


class TestFormats:
    def test_by_the_name(self):
        names = {"a.jsonl": "jsonl", "A.CSV": "csv", "a.b.tsv": "tsv", "a.csv.gz": "csv", "a.jsonl.gz": "jsonl"}
        assert {name: format_of(Path("folder.csv") / name) for name in names} == names
        for name in ("a", "a.txt", "a.json", "csv", ".csv", "a.gz", "a.parquet.gz", "a.csv.zip"):
            wanted = f"{re.escape(repr(name))}.*wanted a name that ends in .jsonl, .csv, .tsv or .parquet"
            with pytest.raises(ParameterError, match=wanted):
                format_of(Path(name))

    def test_parquet_needs_its_extra(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(MissingExtraError, match=r"writing Parquet needs pyarrow, .*'circlet\[parquet\]'"):
            format_of(Path("a.parquet"))


class TestParquet:
    @pytest.fixture(autouse=True)
    def parquet(self):
        return pytest.importorskip("pyarrow.parquet")

    def test_row_groups_are_written_as_they_come(self, tmp_path, parquet):
        batches = [[tagged(row, ["a", "b"], [0.5, 0.25])] for row in range(5)]
        path = written(tmp_path / "a.parquet", *batches, group=6)
        file = parquet.ParquetFile(path)
        assert [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)] == [2, 2, 1]
        assert read(path) == [one for batch in batches for one in batch]

    @pytest.mark.parametrize(
        ("ids", "expected"),
        [
            ([0, -5, 2**63 - 1], "int64"),
            (["a", "b"], "string"),
            ([0, "b"], "string"),
            ([0, 2**63], "string"),
            ([], "int64"),
        ],
    )
    def test_types(self, tmp_path, parquet, ids, expected):
        path = written(tmp_path / "a.parquet", [tagged(one, [], []) for one in ids])
        types = [str(field.type) for field in parquet.read_schema(path)]
        assert types == [expected, "list<element: string>", "list<element: double>"]
        assert [one.id for one in read(path)] == (ids if expected == "int64" else [str(one) for one in ids])

    @pytest.mark.parametrize("late", ["x", 2**63])
    def test_ids_of_another_kind_after_the_first_group(self, tmp_path, late):
        with pytest.raises(DataError, match=f"found the id {late!r}; wanted integers of 64 bits, .*a .jsonl file"):
            written(tmp_path / "a.parquet", [tagged(0, [], [])], [tagged(late, [], [])], group=1)
        assert list(tmp_path.iterdir()) == []
        mixed = written(tmp_path / "a.parquet", [tagged("x", [], [])], [tagged(1, [], [])], group=1)
        assert [one.id for one in read(mixed)] == ["x", "1"]

    def test_a_full_disk(self, tmp_path, monkeypatch):
        full = Path("/dev/full")
        if not full.exists():
            pytest.skip("this system has no device that is always full")
        # The temporary file is a link to it.
        monkeypatch.setattr("circlet.files.os.getpid", lambda: 1)
        (tmp_path / ".a.parquet.1.part").symlink_to(full)
        with pytest.raises(OutputError, match=r"cannot write .*a\.parquet: No space left on device"):
            written(tmp_path / "a.parquet", [tagged(0, ["a"] * 9, [0.5] * 9)], [tagged(1, [], [])], group=1)
        assert list(tmp_path.iterdir()) == []
