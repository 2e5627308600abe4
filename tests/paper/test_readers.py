"""Words get numbers, in the same way every time, and a damaged vocabulary is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circlet.errors import DataError, DTypeError, ParameterError
from circlet.features.rows import RESERVED
from circlet.features.tokenizer import Tokenizer
from circlet.features.vectorizer import TextVectorizer

TEXTS = ["The red fox", "the RED car, red", "", "größer 日本"]


def test_words_in_their_order():
    tokenizer = Tokenizer()
    rows = tokenizer.fit_transform(TEXTS)
    names = ["", "?", *tokenizer.feature_names()]
    assert names[2:] == ["car", "fox", "größer", "red", "the", "日", "本"]
    padded = [[names[word] for word in row] for row in rows.padded().tolist()]
    assert padded == [
        ["the", "red", "fox", ""], ["the", "red", "car", "red"], [""] * 4, ["größer", "日", "本", ""],
    ]  # fmt: skip
    assert tokenizer.transform(["a blue car"]).padded().tolist() == [[1, 1, 2]]
    assert tokenizer.transform([]).shape == (0, 9)


def test_few_words_are_kept():
    rare = Tokenizer(min_df=2).fit(TEXTS)
    assert rare.feature_names() == ["red", "the"]
    assert Tokenizer(min_df=0.5).fit(TEXTS).feature_names() == ["red", "the"]
    assert Tokenizer(max_features=1).fit(TEXTS).feature_names() == ["red"]  # three times, twice in one text
    # Among equally frequent words, the first by code points; a vectorizer leaves that to chance.
    assert Tokenizer(max_features=3).fit(["a b b", "aa c c"]).feature_names() == ["a", "b", "c"]
    assert rare.fit_transform(TEXTS).padded().tolist()[1] == [3, 2, 1, 2]
    short = Tokenizer(max_words=2)
    assert short.fit_transform(TEXTS).padded().tolist() == short.transform(TEXTS).padded().tolist()
    assert np.diff(short.transform(TEXTS).starts).tolist() == [2, 2, 0, 2]


@given(texts=st.lists(st.text(alphabet="ab cé.", max_size=12), max_size=6), least=st.sampled_from([1, 2, 0.4]))
def test_the_words_are_those_of_a_vectorizer(texts, least):
    try:
        tokenizer = Tokenizer(min_df=least)
        rows = tokenizer.fit_transform(texts)
    except DataError:
        with pytest.raises(DataError):
            TextVectorizer(min_df=least).fit(texts)
        return
    vectorizer = TextVectorizer(min_df=least).fit(texts)
    assert tokenizer.feature_names() == vectorizer.feature_names()
    again = tokenizer.transform(texts)
    assert np.array_equal(rows.ids, again.ids)
    assert np.array_equal(rows.starts, again.starts)
    present = [set(row) - {0, 1} for row in rows.padded().tolist()]
    columns = vectorizer.transform(texts)
    assert present == [
        {RESERVED + column for column in columns[row].indices.tolist()} for row in range(len(texts))
    ]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"min_df": 0}, "`min_df` must be"),
        ({"max_features": 0}, "`max_features` must be"),
        ({"max_words": 0}, "`max_words` must be an integer >= 1, got 0"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ParameterError, match=message):
        Tokenizer(**parameters)


def test_bad_texts():
    with pytest.raises(DataError, match=r"found no word in at least min_df=3 of the 4 texts; wanted texts"):
        Tokenizer(min_df=3).fit(TEXTS)
    with pytest.raises(DTypeError, match=r"texts\[1\] must be a str, got int"):
        Tokenizer().fit(["a", 1])  # type: ignore[list-item]
    with pytest.raises(ParameterError, match="not fitted"):
        Tokenizer().transform(["a"])


class TestFiles:
    @pytest.fixture
    def path(self, tmp_path):
        path = tmp_path / "vectorizer.json"
        Tokenizer(min_df=1, max_features=50, max_words=9).fit(TEXTS).write(path)
        return path

    def test_round_trip(self, path):
        assert path.read_bytes().isascii()
        read, fitted = Tokenizer.read(path), Tokenizer(max_features=50, max_words=9).fit(TEXTS)
        assert repr(read) == repr(fitted) == "Tokenizer(min_df=1, max_features=50, max_words=9)"
        assert read.feature_names() == fitted.feature_names()
        assert np.array_equal(read.transform(TEXTS).ids, fitted.transform(TEXTS).ids)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"kind": "tfidf"}, "`kind` must be 'words', found 'tfidf'"),
            ({"format": 2}, "saved by a newer circlet"),
            ({"parameters": {}}, "`parameters` must have"),
            ({"parameters": {"min_df": 1, "max_features": None, "max_words": 0}}, "`max_words` must be"),
            ({"terms": {"words": ["a", "a"]}}, "are not all different"),
            ({"terms": {"words": [1]}}, "must be a list of strings"),
            ({"terms": {"words": []}}, "there are no terms"),
            ({"terms": {"words": ["a"]}}, "damaged: the sha256 differs"),
            ({"more": 1}, "the keys must be"),
        ],
    )
    def test_damaged(self, path, changes, message):
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
        with pytest.raises(DataError, match=message) as caught:
            Tokenizer.read(path)
        assert str(path) in str(caught.value)
