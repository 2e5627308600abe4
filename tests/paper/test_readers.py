"""The readers without their layers: words and their numbers, rows, shapes of weights, and rules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import circlet_paper
from circlet import encoders
from circlet.errors import DataError, DTypeError, ParameterError
from circlet.features import TextVectorizer
from circlet.settings import EFFORTS, Facts, NetworkSettings, RunSettings
from circlet_paper.readers import RESERVED, UNKNOWN, Convolutional, Recurrent, Transformer, WordRows

TEXTS = ["The red fox", "the RED car, red", "", "größer 日本"]


def known(texts, **given) -> list[str]:
    reader = Convolutional(**given)
    reader.fit(texts)
    return reader.words()


def test_words_in_their_order():
    reader = Convolutional()
    rows = reader.fit(TEXTS)
    names = ["", "?", *reader.words()]
    assert names[2:] == ["car", "fox", "größer", "red", "the", "日", "本"]
    padded = [[names[word] for word in row] for row in rows.batch().tolist()]
    assert padded == [
        ["the", "red", "fox", ""], ["the", "red", "car", "red"], [""] * 4, ["größer", "日", "本", ""],
    ]  # fmt: skip
    assert reader.documents(["a blue car"]).batch().tolist() == [[1, 1, 2]]
    assert reader.documents([]).shape == (0, 1536)


def test_few_words_are_kept():
    assert known(TEXTS, min_df=2) == ["red", "the"]
    assert known(TEXTS, min_df=0.5) == ["red", "the"]
    assert known(TEXTS, max_features=1) == ["red"]  # three times, twice in one text
    # Among equally frequent words, the first by code points; a vectorizer leaves that to chance.
    assert known(["a b b", "aa c c"], max_features=3) == ["a", "b", "c"]
    assert Convolutional(min_df=2).fit(TEXTS).batch().tolist()[1] == [3, 2, 1, 2]
    short = Convolutional(max_words=2)
    assert short.fit(TEXTS).batch().tolist() == short.documents(TEXTS).batch().tolist()
    assert np.diff(short.documents(TEXTS).starts).tolist() == [2, 2, 0, 2]


@given(texts=st.lists(st.text(alphabet="ab cé.", max_size=12), max_size=6), least=st.sampled_from([1, 2, 0.4]))
def test_the_words_are_those_of_a_vectorizer(texts, least):
    try:
        reader = Convolutional(min_df=least)
        rows = reader.fit(texts)
    except DataError:
        with pytest.raises(DataError):
            TextVectorizer(min_df=least).fit(texts)
        return
    vectorizer = TextVectorizer(min_df=least).fit(texts)
    assert reader.words() == vectorizer.feature_names()
    again = reader.documents(texts)
    assert np.array_equal(rows.ids, again.ids)
    assert np.array_equal(rows.starts, again.starts)
    present = [set(row) - {0, 1} for row in rows.batch().tolist()]
    columns = vectorizer.transform(texts)
    assert present == [
        {RESERVED + column for column in columns[row].indices.tolist()} for row in range(len(texts))
    ]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"min_df": 0}, "`min_df`: found 0; wanted an integer"),
        ({"max_features": 0}, "`max_features`: found 0; wanted"),
        ({"max_words": 0}, "`max_words`: found 0; wanted an integer >= 1"),
        ({"embedding": 2.5}, "`embedding`: found 2.5; wanted an integer >= 1"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ParameterError, match=message):
        Convolutional(**parameters)


def test_bad_texts():
    with pytest.raises(DataError, match=r"found no word in at least min_df=3 of the 4 texts; wanted texts"):
        Convolutional(min_df=3).fit(TEXTS)
    with pytest.raises(DTypeError, match=r"texts\[1\]: found int; wanted a str"):
        Convolutional().fit(["a", 1])  # type: ignore[list-item]
    with pytest.raises(ParameterError, match="not fitted"):
        Convolutional().documents(["a"])


class TestState:
    def test_round_trip(self):
        fitted = Convolutional(max_features=50, max_words=9, embedding=7)
        fitted.fit(TEXTS)
        restored = Convolutional(**fitted.settings())
        restored.restore(*fitted.state())
        assert repr(restored) == "Convolutional(embedding=7, max_words=9, min_df=1, max_features=50)"
        assert restored.words() == fitted.words()
        assert np.array_equal(restored.documents(TEXTS).ids, fitted.documents(TEXTS).ids)

    @pytest.mark.parametrize(
        "values", [{}, {"words": "ab"}, {"words": []}, {"words": [1]}, {"words": ["a"], "more": 1}]
    )
    def test_damaged(self, values):
        with pytest.raises(DataError, match="found damaged words of an encoder; wanted a list of text strings"):
            Convolutional().restore(values, {})
        with pytest.raises(DataError, match="found a word twice"):
            Convolutional().restore({"words": ["a", "b", "a"]}, {})


# Rows

NUMBERS = st.lists(st.lists(st.integers(1, 9), max_size=6), max_size=7)


def rows_of(texts: list[list[int]]) -> WordRows:
    starts = np.append(0, np.cumsum([len(text) for text in texts], dtype=np.int64))
    return WordRows(np.array([word for text in texts for word in text], dtype=np.int32), starts, 10)


def texts_of(rows: WordRows) -> list[list[int]]:
    return [rows.ids[start:end].tolist() for start, end in zip(rows.starts[:-1], rows.starts[1:], strict=True)]


def test_padding_ends_short_texts():
    rows = rows_of([[4, 2], [], [3, 3, 9]])
    assert rows.shape == (3, 10)
    assert rows.batch().tolist() == [[4, 2, 0], [0, 0, 0], [3, 3, 9]]
    assert rows_of([[], []]).batch().tolist() == [[0], [0]]  # never without columns
    assert rows_of([]).batch().shape == (0, 1)


def test_words_that_are_left_out():
    rows = rows_of([[4, 2], [4]])
    assert rows.counts().tolist() == [2, 1]
    assert texts_of(rows.without(rows.ids == 4)) == [[UNKNOWN, 2], [UNKNOWN]]
    assert texts_of(rows) == [[4, 2], [4]]


@given(texts=NUMBERS, data=st.data())
def test_rows_are_taken_as_from_a_matrix(texts, data):
    rows = rows_of(texts)
    matrix = sp.csr_matrix((np.ones(len(rows.ids)), rows.ids, rows.starts), shape=rows.shape)
    places = data.draw(st.lists(st.integers(0, len(texts) - 1)) if texts else st.just([]))
    chosen = np.array(places, dtype=np.int64)
    assert texts_of(rows[chosen]) == [texts[place] for place in places]
    assert np.array_equal(rows[chosen].starts, matrix[chosen].indptr)
    part = slice(data.draw(st.integers(0, 8)), data.draw(st.integers(0, 8)))
    assert texts_of(rows[part]) == texts[part]
    assert rows[part].shape == matrix[part].shape


def test_words_of_held_out_texts_alone_are_unknown():
    rows = Convolutional().fit(["red fox", "red car", "blue car"])
    assert rows.as_if_new(np.array([2])).batch().tolist() == [[1, rows.batch()[1, 1]]]


# What the library asks of them


def test_they_are_installed_under_their_names():
    for name, kind in {"cnn": Convolutional, "lstm": Recurrent, "transformer": Transformer}.items():
        assert encoders.find(name) is kind
        assert NetworkSettings(encoder=name, embedding=8).text_encoder is kind
    offered = (
        (Path(__file__).parents[2] / "pyproject.toml")
        .read_text()
        .split('[project.entry-points."circlet.encoders"]')[1]
    )
    lines = [f'{name} = "{place}"' for name, place in circlet_paper.ENCODERS.items()]
    assert offered.strip().startswith("\n".join(lines) + "\n\n")


def test_sizes():
    assert Convolutional.width == 3 * 128 * 4
    assert (Recurrent(embedding=20).width, Transformer(embedding=20).width) == (80, 20)
    longest = Transformer(embedding=20, max_words=77)
    longest.fit(["a b"])
    assert longest.shapes()["reader.positions"] == (77, 20)
    assert longest.shapes()["words"] == (4, 20)
    with pytest.raises(ParameterError, match="`embedding`: found 30; wanted a multiple of 4"):
        NetworkSettings(encoder="transformer", embedding=30)


class TestRules:
    """They have rules of their own for settings that are left open."""

    def decided(self, documents: int, encoder: str = "cnn", preset: str = "default", **given) -> RunSettings:
        facts = Facts(documents, 500, texts=False, sparse=False, typical=given.pop("typical", 100.0))
        return RunSettings.from_preset(preset, {"encoder": encoder, **given}).decided(facts)[0]

    @pytest.mark.parametrize("encoder", circlet_paper.ENCODERS)
    @pytest.mark.parametrize("preset", EFFORTS)
    @pytest.mark.parametrize("documents", [4, 30, 3000, 60_000, 10**6])
    def test_nothing_is_left_to_features(self, encoder, preset, documents):
        settings = self.decided(documents, encoder, preset, typical=1.0)
        assert not settings.undecided
        assert settings.training.first_layer == "same"
        assert settings.training.lr == 3e-3
        assert (settings.text.char_ngrams, settings.text.word_ngrams) == (None, (1, 1))
        assert 1 <= settings.training.epochs <= 120

    def test_more_documents_need_less(self):
        few, many = self.decided(5000), self.decided(500_000)
        assert few.training.epochs > many.training.epochs
        assert few.network.dropout > many.network.dropout
        assert few.network.hidden < many.network.hidden
        assert (self.decided(100).text.min_df, few.text.min_df) == (1, 2)
