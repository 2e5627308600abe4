"""How labels are written in a field: guessed from the fields, with clear evidence or not at all."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circlet.data import load_dataset
from circlet.data.records import (
    LISTS,
    Columns,
    Record,
    guess,
    iter_records,
    parse_list,
    split_field,
    write_records,
)
from circlet.errors import DataError

SETS = [("red",), ("red", "blue"), ("blue", "green"), ("green", "red", "blue"), ("dark red",)]
RECORDS = [Record(line, f"document {line}", labels) for line, labels in enumerate(SETS, 1)]


def labels_of(path, **arguments) -> list[tuple[str, ...]]:
    dataset = load_dataset(path, **arguments)
    Y, names = dataset.train.Y, dataset.label_names
    return [tuple(names[label] for label in Y[row].indices) for row in range(Y.shape[0])]


def write_rows(path, fields, mark=",") -> None:
    rows = ["text,labels".replace(",", mark)]
    rows += [f"some words{mark}" + '"' + field.replace('"', '""') + '"' for field in fields]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


class TestGuess:
    @pytest.mark.parametrize("separator", [";", "|", ",", ", ", "\t", " | ", "; "])
    def test_separators(self, separator):
        found = guess([separator.join(labels) for labels in SETS])
        assert found.separator == (separator.strip(" ") or separator)
        assert found.doubt == ""

    def test_lists(self):
        for write in (json.dumps, repr, str):
            assert guess([write(list(labels)) for labels in SETS]).separator == LISTS

    @pytest.mark.parametrize(
        "fields",
        [
            ["Paris, France", "Lyon, France", "Berlin, Germany", "Paris, France"],
            ["Paris, France", "France", "Lyon, France", "Germany", "Berlin, Germany"],
            ["Art", "Art, French", "Art, Modern", "Music", "Music, French"],
            ["Arts|Music", "Arts|Film", "Sport|Tennis"],
            ["1,000", "2,000", "3,000"],
            ["Doe,John", "Doe,Jane"],
            ["x|y"],
            ["a, b"],
            ["one", "two", "three"],
            [],
        ],
    )
    def test_without_clear_evidence_a_label_stays_whole(self, fields):
        found = guess(fields)
        assert (found.separator, found.words) == (";", "one label per row")

    @pytest.mark.parametrize("other", ["Arts|Music|Film", "a,b", "[x]"])
    def test_a_semicolon_anywhere_is_what_it_always_was(self, other):
        fields = [other, "a", "b", "a|b", "b|a", "a,b", "b,a", "x;y"]
        assert guess(fields).separator == ";"

    def test_a_repeated_field_is_no_evidence(self):
        assert guess(["red, blue"] * 50).separator == ";"

    def test_doubts(self):
        assert "look like lists" in guess(["[a b]", "[c]", "d"]).doubt
        assert "look like lists" in guess(["['a' 'b']", "['c']"]).doubt  # as NumPy writes them
        assert guess([f"a{n}|b{n}" for n in range(20)]).doubt.startswith("nearly every row has a label of its own")
        assert guess(["Paris, France", "Lyon, France"] * 10).doubt == ""
        assert guess([f"a{n}" for n in range(20)]).doubt == ""
        assert guess([f"a{n}, b;c" for n in range(20)]).doubt == ""

    @given(st.lists(st.text(alphabet="ab;|,\t []'\" ", max_size=12), max_size=8))
    def test_any_fields(self, fields):
        found = guess(fields)
        assert found.separator in (";", "|", ",", "\t", LISTS)
        for field in fields:
            labels = split_field(field, found.separator)
            assert labels is not None
            assert all(label.strip(" ") == label != "" for label in labels)


class TestLists:
    @pytest.mark.parametrize(
        ("field", "items"),
        [
            ("[]", []),
            (" ['a', 'b'] ", ["a", "b"]),
            ('["a", "b"]', ["a", "b"]),
            ("""['it\\'s', "isn't", 'x\\ny', '\\u00e9']""", ["it's", "isn't", "x\ny", "é"]),
            ('["a\\/b", "\\u00e9"]', ["a/b", "é"]),
            ("['a',]", ["a"]),
            ("[3, '4', -5]", ["3", "4", "-5"]),
            ("['a, b', 'c; d']", ["a, b", "c; d"]),
        ],
    )
    def test_lists(self, field, items):
        assert parse_list(field) == items

    @pytest.mark.parametrize(
        "field",
        [
            "a",
            "[",
            "[a]",
            "[a, b]",
            "['a' 'b']",
            "['a'",
            "['a', ['b']]",
            '["a", {"b": 1}]',
            "[True]",
            "[true]",
            "[1.5]",
            "[None]",
            "[__import__('os')]",
            "['a'] + ['b']",
            "[" * 100_000 + "]" * 100_000,
            "['" + "a" * (1 << 20) + "']",
            "['\\U99999999']",
            r"['\d']",
            "[007, 'a']",
            "['a\nb']",
        ],
    )
    def test_no_lists(self, field):
        assert parse_list(field) is None

    @given(st.lists(st.text(st.characters(exclude_categories=["Cs"])) | st.integers(-(10**9), 10**9)))
    def test_python_and_json_write_lists_that_are_read(self, items):
        wanted = [str(item) for item in items]
        assert parse_list(json.dumps(items)) == parse_list(json.dumps(items, ensure_ascii=False)) == wanted
        if all(not isinstance(item, str) or item.isprintable() for item in items):
            assert parse_list(repr(items)) == wanted


class TestFiles:
    @pytest.mark.parametrize("separator", [None, ";", "|", ",", "\t", LISTS])
    @pytest.mark.parametrize("kind", ["csv", "tsv"])
    def test_what_is_written_is_guessed(self, tmp_path, kind, separator, caplog):
        path = tmp_path / f"a.{kind}"
        write_records(path, RECORDS, kind, Columns(separator=separator))
        with caplog.at_level(logging.INFO, logger="circlet"):
            assert labels_of(path) == [tuple(sorted(labels)) for labels in SETS]
        words = {None: "by ;", "\t": "by tabs", LISTS: "as lists"}.get(separator, f"by {separator}")
        wanted = f"{kind.upper()} text, labels {'' if separator == LISTS else 'separated '}{words}"
        assert load_dataset(path).format == wanted
        assert f"recognized {wanted}" in caplog.text
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert [record.labels for record in iter_records(path, kind)] == SETS

    def test_the_guess_from_train_holds_for_test(self, tmp_path):
        write_records(tmp_path / "train.csv", RECORDS, "csv", Columns(separator="|"))
        (tmp_path / "test.csv").write_text("text,labels\na,red; or blue|green\nb,red\n")
        dataset = load_dataset(tmp_path)
        assert dataset.label_names == ["blue", "dark red", "green", "red", "red; or blue"]
        assert dataset.format == "CSV text, labels separated by |, train and test files"

    def test_no_evidence_in_train_holds_for_test_too(self, tmp_path):
        write_rows(tmp_path / "train.csv", ["x", "y"])
        write_records(tmp_path / "test.csv", RECORDS, "csv", Columns(separator="|"))
        assert "green|red|blue" in load_dataset(tmp_path).label_names

    def test_a_given_separator_is_used_as_given(self, tmp_path):
        path = tmp_path / "a.csv"
        write_records(path, RECORDS, "csv", Columns(separator="|"))
        dataset = load_dataset(path, label_separator=";")
        assert dataset.label_names == sorted("|".join(labels) for labels in SETS)
        assert dataset.format == "CSV text, labels separated by ;"
        write_rows(path, ["['a', 'b']"])
        assert labels_of(path, label_separator=",") == [("'b']", "['a'")]
        assert labels_of(path, label_separator=LISTS) == [("a", "b")]

    @pytest.mark.parametrize("separator", ["|", ",", ";", LISTS])
    def test_semicolons_between_columns(self, tmp_path, separator):
        path = tmp_path / "a.csv"
        join = json.dumps if separator == LISTS else separator.join
        write_rows(path, [join(labels) for labels in SETS], mark=";")
        assert labels_of(path) == [tuple(sorted(labels)) for labels in SETS]
        assert load_dataset(path).train.texts == ["some words"] * len(SETS)

    def test_a_text_with_commas_in_a_file_with_semicolons(self, tmp_path):
        path = tmp_path / "a.csv"
        path.write_text('id;text;labels\n1;"one, two; three";x|y\n2;four, five;y|x\n')
        assert labels_of(path) == [("x", "y")] * 2
        assert load_dataset(path).train.texts == ["one, two; three", "four, five"]

    def test_blank_lines_before_the_header(self, tmp_path):
        path = tmp_path / "a.csv"
        path.write_text("\n\ntext,labels\na,x\nb\n")
        with pytest.raises(DataError, match=r"a\.csv:5: found 1 fields; wanted 2, as in the header"):
            load_dataset(path)

    def test_a_row_that_is_no_list_among_lists(self, tmp_path):
        path = tmp_path / "a.csv"
        write_rows(path, ["['a']"] * 300 + [" ", "['b'"])
        with pytest.raises(DataError, match=r"a\.csv:303: found the labels \"\['b'\"; wanted a list such as"):
            load_dataset(path)

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ([f"a{n}|b{n}" for n in range(20)], "nearly every row has a label of its own, with '|' in it"),
            (["[a b]", "[c d]", "[c]"], "labels look like lists"),
        ],
    )
    def test_a_doubtful_guess_is_said(self, tmp_path, caplog, fields, words):
        path = tmp_path / "a.csv"
        write_rows(path, fields)
        dataset = load_dataset(path)
        assert f"one label per row (but {words}" in dataset.format
        assert "is --label-separator needed?" in dataset.format
        warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert len(warnings) == 1
        assert words in warnings[0]

    def test_only_the_first_fields_are_looked_at(self, tmp_path):
        path = tmp_path / "a.csv"
        write_rows(path, ["x"] * 200 + ["a|b", "b|a"])
        assert labels_of(path)[200:] == [("a|b",), ("b|a",)]
        write_rows(path, [""] * 300 + ["a|b", "b|a"])  # empty ones do not count
        assert labels_of(path)[300:] == [("a", "b")] * 2
