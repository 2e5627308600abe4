from __future__ import annotations

import json
import logging
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data.layouts import put

from circlet.data import load_dataset
from circlet.data.load import recognize
from circlet.data.records import (
    LINE_FORMATS,
    LISTS,
    Columns,
    Record,
    guess_separator,
    iter_records,
    parse_list,
    split_field,
    write_records,
)
from circlet.errors import DataError, ParameterError

UNICODE = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
ANY_TEXT = st.text(UNICODE, max_size=20)
# What every format can hold: one line of text, labels without spaces and separators.
LINE = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=8)
PLAIN = st.builds(" ".join, st.lists(LINE, min_size=1, max_size=4)).filter(lambda text: "__label__" not in text)
NAME = LINE.filter(lambda name: not set(name) & set("<>;"))
# What the writer uses unless it is told otherwise; a reader that has to guess could take other marks for it.
SEMICOLON = Columns(separator=";")


def records(texts, names):
    one = st.tuples(texts, st.lists(names, max_size=4, unique=True))
    return st.lists(one, min_size=1, max_size=6).map(
        lambda pairs: [Record(at, text, tuple(labels)) for at, (text, labels) in enumerate(pairs, 1)]
    )


def content(found):
    return [(record.text, record.labels) for record in found]


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("kind", LINE_FORMATS)
@settings(max_examples=30)
@given(data=st.data())
def test_round_trip(tmp_path_factory, kind, suffix, data):
    quotes = kind in ("jsonl", "csv", "tsv")
    written = data.draw(records(ANY_TEXT if quotes else PLAIN, NAME))
    path = tmp_path_factory.mktemp("texts") / f"a.{kind}{suffix}"
    write_records(path, written, kind)
    assert content(iter_records(path, kind, SEMICOLON)) == content(written)


@pytest.mark.parametrize("kind", LINE_FORMATS)
@settings(max_examples=60)
@given(written=records(ANY_TEXT, ANY_TEXT))
def test_a_writer_writes_what_reads_back_or_refuses(tmp_path_factory, kind, written):
    folder = tmp_path_factory.mktemp("texts")
    try:
        write_records(folder / "a", written, kind)
    except DataError:
        assert list(folder.iterdir()) == []
        return
    expected = content(written)
    if kind == "fasttext":  # spaces around a text are not kept
        expected = [(text.strip(), labels) for text, labels in expected]
    assert content(iter_records(folder / "a", kind, SEMICOLON)) == expected


def test_writing_is_deterministic(tmp_path):
    for name in ("a.gz", "b.gz"):
        write_records(tmp_path / name, [Record(1, "x", ("y",))], "jsonl")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        (
            "jsonl",
            b'{"text": "a", "labels": "x y"}\n\n{"labels": [], "text": "b", "id": 3}',
            [("a", ("x y",)), ("b", ())],
        ),
        ("jsonl", b'{"text": "a", "labels": ["x", "y", "x"]}\n', [("a", ("x", "y"))]),
        (
            "jsonl",
            b'{"text": "a", "labels": [10, "x", -2, "10"]}\n{"text": "b", "labels": 0}\n',
            [("a", ("10", "x", "-2")), ("b", ("0",))],
        ),
        ("csv", b'id,text,labels\n1,"a, ""b""\nc",x; y;\n\n2,d,\n', [('a, "b"\nc', ("x", "y")), ("d", ())]),
        ("tsv", b"labels\ttext\r\nx;y\ta, b\r\n", [("a, b", ("x", "y"))]),
        ("fasttext", b"__label__x __label__y some words\nno\n", [("some words", ("x", "y")), ("no", ())]),
        ("fasttext", b"some __label__x words __label__y\n", [("some words", ("x", "y"))]),
        ("annif", b"a title\t<http://x/1> u:2\nb\t\n", [("a title", ("http://x/1", "u:2")), ("b", ())]),
        ("jsonl", b'\xef\xbb\xbf{"text": "\xc3\xa9", "labels": []}\n', [("é", ())]),
    ],
)
def test_by_hand(tmp_path, kind, data, expected):
    path = put(tmp_path, data)
    assert content(iter_records(path, kind)) == expected
    assert recognize(path) == kind


def test_lines_and_streaming(tmp_path):
    path = put(tmp_path, b'text,labels\n"a\nb",x\nc,y\n"never closed')
    stream = iter_records(path, "csv")
    assert next(stream) == Record(2, "a\nb", ("x",))
    assert next(stream) == Record(4, "c", ("y",))
    with pytest.raises(DataError, match=r"documents\.dat:5: found a row that cannot be read .*; wanted quotes"):
        next(stream)


def test_named_columns_and_separator(tmp_path):
    columns = Columns("body", "tags", "|")
    path = put(tmp_path, b"tags,body\nx;1|y,hello\n")
    assert content(iter_records(path, "csv", columns)) == [("hello", ("x;1", "y"))]
    path = put(tmp_path, b'{"tags": ["x"], "body": "hello"}\n')
    assert content(iter_records(path, "jsonl", columns)) == [("hello", ("x",))]
    with pytest.raises(ParameterError, match="wanted two different columns"):
        Columns("a", "a")
    with pytest.raises(ParameterError, match="at least one character between labels"):
        Columns(separator="")
    with pytest.raises(ParameterError, match="found '3' as the text of columns; wanted text"):
        Columns(text=3)


def test_labels_may_be_missing_for_prediction(tmp_path):
    contents = {"jsonl": '{"text": "a"}', "csv": "text\na", "tsv": "id\ttext\n1\ta", "fasttext": "a", "annif": "a"}
    for kind, data in contents.items():
        assert content(iter_records(put(tmp_path, f"{data}\n"), kind, need_labels=False)) == [("a", ())], kind


@pytest.mark.parametrize(
    ("kind", "data", "ids"),
    [
        ("jsonl", b'{"text": "a", "id": "x"}\n{"id": 7, "text": "b"}\n{"text": "c", "id": null}', ["x", 7, None]),
        ("csv", b'id,text\n7,a\n"x, ""y""",b\n,c\n', ["7", 'x, "y"', None]),
        ("tsv", b"text\tid\na\t7\n", ["7"]),
        ("tsv", b"text\tkey\na\t7\n", [None]),
        ("fasttext", b"__label__id a\n", [None]),
        ("annif", b"a\t<u:id>\n", [None]),
    ],
)
def test_ids_are_read_where_they_are_named(tmp_path, kind, data, ids):
    path = put(tmp_path, data)
    found = iter_records(path, kind, Columns(id="id"), need_labels=False)
    assert [record.id for record in found] == ids
    assert {record.id for record in iter_records(path, kind, need_labels=False)} == {None}


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        ("jsonl", b'{"text": "a", "id": 1.5}\n', r":1: found 'id' of type float; wanted a string or an integer$"),
        ("jsonl", b'{"text": "a", "id": true}\n', r":1: found 'id' of type bool; wanted a string or an integer$"),
        ("jsonl", b'{"text": "a", "id": "\\udc00"}\n', r":1: found half of a surrogate pair"),
        ("csv", b"id,text,id\n1,a,2\n", r":1: found two columns 'id'; wanted one$"),
    ],
)
def test_ids_that_are_none(tmp_path, kind, data, message):
    path = put(tmp_path, data)
    with pytest.raises(DataError, match=message):
        list(iter_records(path, kind, Columns(id="id"), need_labels=False))
    if "surrogate" not in message:
        assert content(iter_records(path, kind, need_labels=False)) == [("a", ())]


def test_a_field_longer_than_the_csv_module_likes(tmp_path):
    path = put(tmp_path, b"text,labels\n" + b"a" * 200_000 + b",x\n")
    assert len(next(iter_records(path, "csv")).text) == 200_000


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        ("jsonl", b'{"text": "a", "labels": []}\n{"text"\n', r""":2: found '\{"text"'.*; wanted a JSON object"""),
        ("jsonl", b"[1]\n", r":1: found '\[1\]'.*; wanted a JSON object"),
        ("jsonl", b"[" * 100_000, r":1: found '\[\[\[.*; wanted a JSON object"),
        (
            "jsonl",
            b'{"text": "a"}\n',
            ":1: found the keys 'text'.*; wanted 'labels' among them, or --label-column",
        ),
        (
            "jsonl",
            b'{"labels": []}\n',
            ":1: found the keys 'labels'.*; wanted 'text' among them, or --text-column",
        ),
        ("jsonl", b'{"text": 3, "labels": []}\n', ":1: found 'text' of type int.*; wanted a string"),
        (
            "jsonl",
            b'{"text": "\\ud800", "labels": []}\n',
            ":1: found half of a surrogate pair.*; wanted text that UTF-8",
        ),
        ("jsonl", b'{"text": "\xff", "labels": []}\n', ":1: found byte 0xff at position 11.*; wanted UTF-8 text"),
        (
            "csv",
            b"text,tags\na,x\n",
            ":1: found the columns 'text, tags'.*; wanted a column 'labels', or --label-column",
        ),
        (
            "csv",
            b"body,labels\na,x\n",
            ":1: found the columns 'body, labels'.*; wanted a column 'text', or --text-column",
        ),
        ("csv", b"text,labels,text\na,x,b\n", ":1: found two columns 'text'.*; wanted one"),
        ("csv", b"\n\ntext,labels\na,x\nb\n", ":5: found 1 fields.*; wanted 2, as in the header"),
        ("csv", b'text,labels\n"a"b,x\n', ":2: found a row that cannot be read.*; wanted quotes"),
        ("csv", b'text,labels\na,"x\ty"\n', r":2: found 'x\\ty', a label name with a tab.*; wanted one without"),
        ("csv", b"text,labels\n", ": found no documents.*; wanted at least one"),
        ("csv", "text,labels\né,x\n".encode("latin-1"), ":2: found byte 0xe9 at position 1.*; wanted UTF-8 text"),
        ("fasttext", b"__label__ a\n", ":1: found '', an empty label name.*; wanted at least one"),
        ("fasttext", b"a\n\x00\n", r":2: found a zero byte \(a binary file\?\).*; wanted lines of text"),
        ("annif", b"a title\n", ":1: found no tab in 'a title'.*; wanted text, a tab, subject URIs"),
        ("annif", b"\n", ": found no documents.*; wanted at least one"),
        ("tsv", b"", ": found an empty file.*; wanted data"),
    ],
)
def test_bad_files_are_named(tmp_path, kind, data, message):
    path = put(tmp_path, data)
    with pytest.raises(DataError, match=f"^{re.escape(str(path))}{message}"):
        list(iter_records(path, kind))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            "[3, true, 1.0, null]",
            "'labels' of type list of NoneType, bool, float, int; wanted a list of strings or i",
        ),
        ("true", "'labels' of type bool; wanted a list of strings or integers"),
        ("null", "'labels' of type NoneType; wanted a list of strings"),
        (r'["x\ty"]', r"'x\\ty', a label name with a tab.*; wanted one without"),
        (r'["x\ny"]', r"'x\\ny', a label name with a tab.*; wanted one without"),
        ('[""]', "'', an empty label name; wanted at least one"),
    ],
)
def test_labels_that_are_none(tmp_path, labels, message):
    path = put(tmp_path, f'{{"text": "a", "labels": {labels}}}\n')
    with pytest.raises(DataError, match=rf"documents\.dat:1: found {message}"):
        list(iter_records(path, "jsonl"))


@pytest.mark.parametrize("kind", LINE_FORMATS)
def test_truncated_gzip(tmp_path, kind):
    write_records(tmp_path / "a.gz", [Record(1, f"text {n}", ("x",)) for n in range(50)], kind)
    path = put(tmp_path, (tmp_path / "a.gz").read_bytes()[:-5], "b.gz")
    with pytest.raises(DataError, match=r"b\.gz: found a gzip file that ends too early; wanted a complete one"):
        list(iter_records(path, kind))


@pytest.mark.parametrize(
    ("kind", "record"),
    [
        ("csv", Record(1, "a", ("x;y",))),
        ("csv", Record(1, "a", (" x",))),
        ("tsv", Record(1, "\0", ())),
        ("fasttext", Record(1, "a\nb", ())),
        ("fasttext", Record(1, "a", ("x y",))),
        ("fasttext", Record(1, "a __label__b", ())),
        ("annif", Record(1, "a\tb", ())),
        ("annif", Record(1, "a", ("x y",))),
        ("jsonl", Record(1, "a", ("x\ty",))),
    ],
)
def test_what_a_format_cannot_hold_is_not_written(tmp_path, kind, record):
    with pytest.raises(DataError, match=r"document 1.*found .*wanted"):
        write_records(tmp_path / "a", [record], kind)
    assert list(tmp_path.iterdir()) == []


def test_unknown_kind(tmp_path):
    with pytest.raises(ParameterError, match="found the format 'xml'; wanted one of jsonl, csv"):
        list(iter_records(tmp_path / "a", "xml"))
    with pytest.raises(ParameterError, match="found the format 'xml'; wanted one of jsonl, csv"):
        write_records(tmp_path / "a", [], "xml")


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
        found = guess_separator([separator.join(labels) for labels in SETS])
        assert found.separator == (separator.strip(" ") or separator)
        assert found.doubt == ""

    def test_lists(self):
        for write in (json.dumps, repr, str):
            assert guess_separator([write(list(labels)) for labels in SETS]).separator == LISTS

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
            ["red, blue"] * 50,  # a repeated field
            [],
        ],
    )
    def test_without_clear_evidence_a_label_stays_whole(self, fields):
        found = guess_separator(fields)
        assert (found.separator, found.words) == (";", "one label per row")

    @pytest.mark.parametrize("other", ["Arts|Music|Film", "a,b", "[x]"])
    def test_a_semicolon_anywhere_is_what_it_always_was(self, other):
        fields = [other, "a", "b", "a|b", "b|a", "a,b", "b,a", "x;y"]
        assert guess_separator(fields).separator == ";"

    def test_doubts(self):
        assert "look like lists" in guess_separator(["[a b]", "[c]", "d"]).doubt
        assert "look like lists" in guess_separator(["['a' 'b']", "['c']"]).doubt  # as NumPy writes them
        names = ["Paris, France", "Lyon, France"] * 10
        for fields in (names, [f"a{n}" for n in range(20)], [f"a{n}, b;c" for n in range(20)]):
            assert guess_separator(fields).doubt == ""

    @given(st.lists(st.text(alphabet="ab;|,\t []'\" ", max_size=12), max_size=8))
    def test_any_fields(self, fields):
        found = guess_separator(fields)
        assert found.separator in (";", "|", ",", "\t", LISTS)
        for field in fields:
            labels = split_field(field, found.separator)
            assert labels is not None
            assert all(label.strip(" ") == label != "" for label in labels)


NO_LISTS = [
    *("a", "[", "[a]", "[a, b]", "['a' 'b']", "['a'", "['a', ['b']]", '["a", {"b": 1}]', "['a'] + ['b']"),
    *("[True]", "[true]", "[1.5]", "[None]", "[__import__('os')]", "[007, 'a']", "['a\nb']"),
    *(r"['\U99999999']", r"['\d']", "[" * 100_000 + "]" * 100_000, "['" + "a" * (1 << 20) + "']"),
]


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

    @pytest.mark.parametrize("field", NO_LISTS)
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
        write_rows(tmp_path / "train.csv", ["x", "y"])  # no evidence in train
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
