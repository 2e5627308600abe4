from __future__ import annotations

import gzip
import json
import os
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circlet.bulk.plan import (
    PLAN,
    Block,
    File,
    Options,
    Plan,
    check_folder,
    cut,
    documents,
    find_files,
    format_in,
    unchanged,
)
from circlet.data.records import Columns, iter_records
from circlet.errors import DataError, OutputError

COLUMNS = Columns(id="id")


def all_documents(file, blocks) -> list[tuple[int, str]]:
    return [(each.line, each.text) for block in blocks for each in documents(file, block, COLUMNS)]


class TestFindFiles:
    def test_files_folders_and_patterns(self, tmp_path, monkeypatch):
        for name in ("b.jsonl", "a.jsonl", "_plan.json", ".hidden", "in/c.csv"):
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.touch()
        monkeypatch.chdir(tmp_path)
        a, b, c = (tmp_path / name for name in ("a.jsonl", "b.jsonl", "in/c.csv"))
        assert find_files(["b.jsonl", "a.jsonl"]) == [b, a]
        assert find_files([str(tmp_path)]) == [a, b]
        assert find_files(["*.jsonl", "a.jsonl"]) == [a, b]
        assert find_files([f"{tmp_path}/**/*.*"]) == [a, b, c]
        (tmp_path / "empty").mkdir()
        for name in ("none.jsonl", "*.csv", "empty"):
            with pytest.raises(DataError, match="found no"):
                find_files([f"{tmp_path}/{name}"])
        (tmp_path / "a[1].jsonl").touch()  # a name that looks like a pattern
        assert find_files([str(tmp_path / "a[1].jsonl")]) == [tmp_path / "a[1].jsonl"]

    def test_only_folders(self, tmp_path):
        (tmp_path / "2024").mkdir()
        (tmp_path / "2024" / "a.jsonl").touch()
        with pytest.raises(DataError, match=r"found only folders, .* a pattern with \*\* in quotes") as raised:
            find_files([str(tmp_path)])
        (pattern,) = re.findall(r"'(.*)'$", str(raised.value))
        assert find_files([pattern]) == [tmp_path / "2024" / "a.jsonl"]


class TestLines:
    def test_by_hand(self, tmp_path):
        path = tmp_path / "a.jsonl"
        path.write_bytes(b'{"text": "1"}\n\n{"text": "2"}\n{"text": "3"}')
        file, blocks = cut(path, COLUMNS, 15)
        assert blocks == [Block(0, 15, 1, 15), Block(15, 42, 3, 27)]
        assert all_documents(file, blocks) == [(1, "1"), (3, "2"), (4, "3")]
        path.write_bytes(b'{"text": "1"}\n' + b"\n" * 50 + b'{"text": "2"}\n')
        file, blocks = cut(path, COLUMNS, 14)
        assert all_documents(file, blocks) == [(1, "1"), (52, "2")]
        assert len(blocks) == 2  # without the blank one

    @given(st.lists(st.text(max_size=20), max_size=12), st.integers(1, 200), st.booleans())
    def test_every_document_is_in_one_block(self, tmp_path_factory, write, texts, size, mark):
        path = write(tmp_path_factory.mktemp("lines") / "a.jsonl", texts)
        if mark:
            path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
        file, blocks = cut(path, COLUMNS, size)
        assert all_documents(file, blocks) == list(enumerate(texts, 1))
        assert all(one.end == other.start for one, other in pairwise(blocks))


class TestTables:
    # The format holds no zero characters, and no lone carriage returns.
    TEXTS = st.lists(st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"])), min_size=1)

    def test_by_hand(self, tmp_path):
        path = tmp_path / "a.csv"
        path.write_bytes(b'\ntext,"more\nof it"\n"1\n1",\n\n2,\n3,\n')
        file, blocks = cut(path, COLUMNS, 6)
        assert file.header == len(b'\ntext,"more\nof it"\n')
        assert [(block.start, block.first) for block in blocks] == [(19, 4), (26, 6)]
        assert all_documents(file, blocks) == [(4, "1\n1"), (7, "2"), (8, "3")]

    @pytest.mark.parametrize("ending", ["csv", "tsv"])
    @given(data=st.data(), size=st.integers(1, 100), mark=st.booleans())
    def test_as_the_whole_file_is_read(self, tmp_path_factory, write, ending, data, size, mark):
        made = data.draw(self.TEXTS)
        path = write(tmp_path_factory.mktemp("tables") / f"a.{ending}", made, list(range(len(made))))
        if mark:
            path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
        file, blocks = cut(path, COLUMNS, size)
        whole = [(record.line, record.text) for record in iter_records(path, ending, COLUMNS, need_labels=False)]
        assert all_documents(file, blocks) == whole
        assert len(blocks) > 1 or sum(block.size for block in blocks) <= size + 500

    def test_faulty_rows_are_named(self, tmp_path):
        path = tmp_path / "a.csv"
        path.write_text('text,id\n"a\nb",1\nc\n')
        with pytest.raises(DataError, match=r"a\.csv:4: found 1 fields; wanted 2"):
            cut(path, COLUMNS, 100)


class TestParquet:
    def test_row_groups(self, tmp_path, write, texts):
        path = write(tmp_path / "a.parquet", texts(10), list(range(10)), row_group_size=3)
        file, blocks = cut(path, COLUMNS, 1)
        places = [(block.start, block.end, block.first) for block in blocks]
        assert places == [(i, i + 1, 3 * i + 1) for i in range(4)]
        assert file.integer_ids
        assert all_documents(file, blocks) == list(enumerate(texts(10), 1))
        (whole,) = cut(path, COLUMNS, 1 << 20)[1]
        assert (whole.start, whole.end) == (0, 4)

    def test_faults(self, tmp_path, write):
        path = write(tmp_path / "a.parquet", ["a"])
        with pytest.raises(DataError, match="found the columns text; wanted a column 'body', or --text-column"):
            cut(path, Columns("body"), 100)
        path.write_bytes(path.read_bytes()[:-9])
        with pytest.raises(DataError, match=r"a\.parquet: found no readable Parquet"):
            cut(path, COLUMNS, 100)


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_empty_files_have_no_blocks(tmp_path, content, write):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    file, blocks = cut(path, COLUMNS, 100)
    assert (file.format, blocks) == ("empty", [])
    (tmp_path / "a.csv").write_text("text,id\n")
    assert cut(tmp_path / "a.csv", COLUMNS, 100)[1] == []
    assert cut(write(tmp_path / "a.parquet", []), COLUMNS, 100)[1] == []


def test_line_ends_in_quotes_are_never_cut_and_compressed_files_not_at_all(tmp_path, write, texts):
    path = write(tmp_path / "a.csv", texts(30))
    for n in (30, 1):
        file, blocks = cut(path, COLUMNS, 1)
        assert len(blocks) == n
        assert [text for _, text in all_documents(file, blocks)] == texts(30)
        path.write_bytes(gzip.compress(path.read_bytes()))


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("a.txt", "replace the brakes\n", "plain text, a document per file"),
        ("a.key", "cycling\n", "the labels of a.txt, a plain text beside it"),
        ("a.tsv", "<http://example.org/1>\tCycling\n", "the labels of a.txt, a plain text beside it"),
        ("a.tsv", "http://example.org/1\n", "the labels of a.txt, a plain text beside it"),
    ],
)
def test_plain_texts(tmp_path, name, content, found):
    (tmp_path / "a.txt").write_text("replace the brakes\n", encoding="utf-8")
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=f"found {found}; wanted texts in .*, or circlet predict without --engine"):
        format_in(tmp_path / name, COLUMNS)
    (tmp_path / "a.svm").write_text("1,2 3:0.5\n")
    with pytest.raises(DataError, match="found svmlight multilabel text; wanted texts in Parquet, JSONL"):
        format_in(tmp_path / "a.svm", COLUMNS)


@pytest.mark.parametrize(
    ("content", "kind"), [("text\tlabels\na\tb\n", "tsv"), ("a fox\t<http://example.org/1>\n", "annif")]
)
def test_a_table_beside_a_text_has_texts_of_its_own(tmp_path, content, kind):
    (tmp_path / "a.txt").write_text("notes about the table\n", encoding="utf-8")
    (tmp_path / "a.tsv").write_text(content, encoding="utf-8")
    assert format_in(tmp_path / "a.tsv", COLUMNS) == kind


def test_changes_are_noticed(tmp_path, write, texts):
    path = write(tmp_path / "a.jsonl", texts(3))
    file, _ = cut(path, COLUMNS, 100)
    unchanged(file)
    os.utime(path, ns=(0, 0))
    with pytest.raises(DataError, match="another time of change than when"):
        unchanged(file)
    path.write_text("{}")
    with pytest.raises(DataError, match="another size than when"):
        unchanged(file)
    path.unlink()
    with pytest.raises(DataError, match="cannot read"):
        unchanged(file)


OPTIONS = Options("digest", 5, None, 0.0, "text", "parquet", 100)
BLOCKS = [Block(0, 90, 1, 90), Block(90, 130, 8, 40)]


def made(*names: str, **about) -> Plan:
    files = [File(str(Path("/data") / name), 130, 17, "jsonl", **about) for name in names]
    return Plan(OPTIONS, [(file, BLOCKS) for file in files])


class TestParts:
    def test_names_are_stable(self):
        """Who has half of a run from an older version must find the same names."""
        assert [(task.name, task.part) for task in made("b/x.jsonl", "a/x.jsonl").tasks()] == [
            ("b/x.jsonl", "part-00000-2af045b7-00000.parquet"),
            ("b/x.jsonl", "part-00000-2af045b7-00001.parquet"),
            ("a/x.jsonl", "part-00001-9a786367-00000.parquet"),
            ("a/x.jsonl", "part-00001-9a786367-00001.parquet"),
        ]

    def test_names_sort_like_the_input(self):
        parts = [task.part for task in made(*(f"{name}.jsonl" for name in "cabxd")).tasks()]
        assert parts == sorted(set(parts))

    def test_a_changed_file_has_other_parts(self):
        def parts(**about) -> set[str]:
            file, blocks = made("x.jsonl").files[0]
            return {task.part for task in Plan(OPTIONS, [(replace(file, **about), blocks)]).tasks()}

        assert parts() == parts(path="/elsewhere/x.jsonl")  # the same file in a folder that was moved
        for change in ({"size": 131}, {"changed": 18}, {"path": "/data/y.jsonl"}):
            assert not parts() & parts(**change)


class TestSaved:
    def test_there_and_back(self, tmp_path):
        assert Plan.load(tmp_path) is None
        plan = made("a.jsonl", "b.jsonl", header=7, integer_ids=True)
        plan.save(tmp_path)
        assert Plan.load(tmp_path) == plan
        assert plan.integer_ids
        assert not Plan(OPTIONS, [*plan.files, *made("c").files]).integer_ids  # only if all are
        content = json.loads((tmp_path / PLAN).read_text())
        content["files"][0]["blocks"][0] = [1]
        (tmp_path / PLAN).write_text(json.dumps(content))
        with pytest.raises(DataError, match="found no plan of this version"):
            Plan.load(tmp_path)

    @pytest.mark.parametrize(
        "content", ["{", "[]", "{}", '{"format": "circlet plan 2"}', '{"format": "circlet plan 1", "options": {}}']
    )
    def test_damaged(self, tmp_path, content):
        (tmp_path / PLAN).write_text(content)
        with pytest.raises(DataError, match=PLAN):
            Plan.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "names", "message"),
    [
        ({"k": 3}, "ab", "found a run with -k 5, and now 3; wanted the same"),
        ({"threshold": 0.5}, "ab", "found a run with --threshold None, and now 0.5"),
        ({"text_column": "body"}, "ab", "found a run with --text-column text, and now body"),
        ({"block_size": 7}, "ab", "found a run with --block-size 100, and now 7"),
        ({"model": "other"}, "ab", "found a run with another model; wanted the same"),
        ({}, "a", "found a run with .*b.jsonl, which is not in the input now"),
        ({}, "abc", "found a run without .*c.jsonl, which is in the input now"),
        ({}, "ba", "the same files in another order"),
    ],
)
def test_other_options_or_files_are_refused(change, names, message):
    paths = [Path("/data") / f"{name}.jsonl" for name in names]
    with pytest.raises(DataError, match=message):
        made("a.jsonl", "b.jsonl").check(Path("out"), replace(OPTIONS, **change), paths)


def test_folders_with_other_things_are_refused(tmp_path):
    check_folder(tmp_path / "new")
    check_folder(tmp_path)
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(OutputError, match=r"found 'thesis\.txt' and no _plan\.json; wanted an empty folder"):
        check_folder(tmp_path)
    with pytest.raises(OutputError, match="found a file; wanted a folder"):
        check_folder(tmp_path / "thesis.txt")
    made().save(tmp_path)
    check_folder(tmp_path)
