from __future__ import annotations

import gzip
import sys

import pytest

from circlet.data import load_dataset
from circlet.data.dataset import names_by_uri
from circlet.data.load import read_names
from circlet.errors import DataError, MissingExtraError

URI = "http://example.org/"
LINES = (
    "a fox\t<http://example.org/1> <http://example.org/2>\na bank\t<http://example.org/3> <http://example.org/4>\n"
)
TSV = (
    "<http://example.org/1>\tred\tR\n\nhttp://example.org/2\tbank\n<http://example.org/3>\tbank\n<http://x/9>\tz\n"
)
SKOS = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
<http://example.org/1> skos:prefLabel "red"@en, "punainen"@fi .
<http://example.org/2> skos:prefLabel "bank"@en, "pankki"@fi ; skos:altLabel "bench"@en .
<http://example.org/3> skos:prefLabel "ranta"@fi .
"""


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text(LINES, encoding="utf-8")
    return path


def write(folder, content, name="names.tsv"):
    (folder / name).write_text(content, encoding="utf-8")
    return folder / name


def test_annifs_subjects(tmp_path, data):
    dataset = load_dataset(data, names=write(tmp_path, TSV))
    assert dataset.label_uris == [f"{URI}{n}" for n in (1, 2, 3, 4)]
    # Two labels share a name, and one has none.
    assert dataset.label_names == ["red", f"bank ({URI}2)", f"bank ({URI}3)", f"{URI}4"]
    assert "names from names.tsv (1 labels are not in it and keep their URIs)" in dataset.format


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<http://a>\n", "names.tsv:1: found '<http://a>'; wanted a URI, a tab and a name"),
        ("<u:1>\ta\n<u:1>\tb\n", "names.tsv:2: found another name of 'u:1', 'b'; wanted one name for each URI"),
        ("<u:1>\t \n", "names.tsv:1: found ' ', an empty label name"),
        ("<u:1>\ta\n", "found none of the 4 labels of .*, such as 'http://example.org/1'; wanted the vocabulary"),
        ("", "names.tsv: found an empty file"),
    ],
)
def test_vocabularies_that_do_not_fit(tmp_path, data, content, message):
    with pytest.raises(DataError, match=message):
        load_dataset(data, names=write(tmp_path, content))


def test_no_vocabulary_and_no_uris(tmp_path, data):
    with pytest.raises(DataError, match=r"none\.tsv: found no vocabulary"):
        load_dataset(data, names=tmp_path / "none.tsv")
    numbers = write(tmp_path, "0,1 0:1\n1 1:1\n", "numbers.svm")
    with pytest.raises(DataError, match="found labels without URIs"):
        load_dataset(numbers, names=write(tmp_path, TSV))


def test_names_by_uri():
    assert names_by_uri(["a", "b"], ["u:a", "u:b"]) == {"u:a": "a", "u:b": "b"}
    assert names_by_uri(["a", "b"], None) == names_by_uri(None, None) == {}


class TestSkos:
    @pytest.fixture(autouse=True)
    def rdflib(self):
        pytest.importorskip("rdflib")

    @pytest.mark.parametrize(
        ("language", "expected"),
        [
            (None, {"1": "punainen", "2": "pankki", "3": "ranta"}),  # most names are Finnish
            ("EN", {"1": "red", "2": "bank"}),
        ],
    )
    def test_languages(self, tmp_path, language, expected):
        found = read_names(write(tmp_path, SKOS, "v.ttl"), language)
        assert found == {f"{URI}{number}": name for number, name in expected.items()}

    def test_english_where_all_names_are_in_it(self, tmp_path):
        assert read_names(write(tmp_path, SKOS.rpartition("<http")[0], "v.ttl"))[f"{URI}1"] == "red"

    @pytest.mark.parametrize(("kind", "ending"), [("turtle", "ttl"), ("nt", "nt"), ("xml", "rdf"), ("xml", "XML")])
    @pytest.mark.parametrize("packed", [False, True])
    def test_every_format(self, tmp_path, kind, ending, packed):
        import rdflib

        content = rdflib.Graph().parse(data=SKOS, format="turtle").serialize(format=kind).encode()
        path = tmp_path / (f"v.{ending}.gz" if packed else f"v.{ending}")
        path.write_bytes(gzip.compress(content) if packed else content)
        assert read_names(path, "en") == {f"{URI}1": "red", f"{URI}2": "bank"}
        if packed:
            path.write_bytes(gzip.compress(content)[:-9])
            with pytest.raises(DataError, match=path.name):
                read_names(path)

    @pytest.mark.parametrize(
        ("content", "language", "message"),
        [
            ("@prefix oh no", None, "v.ttl: found no readable turtle"),
            ("<http://a> <http://b> <http://c> .", None, "found no skos:prefLabel; wanted a SKOS vocabulary"),
            (SKOS, "sv", "found names in the languages en, fi; wanted one of these, not sv"),
        ],
    )
    def test_refused(self, tmp_path, content, language, message):
        with pytest.raises(DataError, match=message):
            read_names(write(tmp_path, content, "v.ttl"), language)


def test_skos_without_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "rdflib", None)
    monkeypatch.setattr("circlet.checks.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"circlet\[skos\]"):
        read_names(write(tmp_path, SKOS, "v.ttl"))
