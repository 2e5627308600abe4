"""Words of many scripts, and tf-idf by hand and against scikit-learn."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer

from circlet.errors import DataError, DTypeError, ParameterError
from circlet.features.terms import word_pattern
from circlet.features.vectorizer import TextVectorizer, load_vectorizer

ENGLISH = ["the red fox", "The red, red car!", "a blue car on the road", "fox"]


def words(text: str, **parameters) -> list[str]:
    return sorted(TextVectorizer(**parameters).fit([text]).feature_names())


def same(a: csr_matrix, b: csr_matrix) -> bool:
    return (
        a.shape == b.shape
        and np.array_equal(a.indptr, b.indptr)
        and np.array_equal(a.indices, b.indices)
        and a.data.tobytes() == b.data.tobytes()
    )


# Words


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("A red fox, I say: x² foo_bar", ["a", "foo_bar", "fox", "i", "red", "say", "x2"]),
        ("हिन्दी में लिखा", ["में", "लिखा", "हिन्दी"]),
        ("தமிழ் மொழி", ["தமிழ்", "மொழி"]),
        ("क\u094d\u200dष", ["क\u094d\u200dष"]),  # a joiner inside a word
        ("العَرَبِيَّة لغة", ["العَرَبِيَّة", "لغة"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),  # Persian, a non-joiner inside a word
        ("Съешь ещё этих", ["съешь", "ещё", "этих"]),
        ("我爱数据。", ["我", "据", "数", "爱"]),
        ("日本のデータ", ["の", "データ", "日", "本"]),
        ("葛\U000e0100城", ["城", "葛\U000e0100"]),  # a variation selector stays with its ideograph
        ("한국어 텍스트", ["텍스트", "한국어"]),
        ("İstanbul", ["i̇stanbul"]),  # lower case leaves a combining dot
        ("𞤀𞤣𞤤𞤢𞤥\U0001e944 cat", ["cat", "𞤢𞤣𞤤𞤢𞤥\U0001e944"]),  # Adlam: letters and marks beyond 16 bits
        ("word 👍🏽 ❤️ !?", ["word"]),
    ],
)
def test_words_of_many_scripts(text, wanted):
    assert words(text) == sorted(wanted)


def test_one_letter_has_one_form():
    assert words("caf\u00e9 cafe\u0301 ＣＡＦÉ") == ["caf\u00e9"]
    assert words("Red red", lowercase=False) == ["Red", "red"]


def test_character_ngrams_see_what_has_no_words():
    emoji = ["👍🎉", "🎉", "👍"]
    rows = TextVectorizer(char_ngrams=(1, 1)).fit_transform(emoji)
    assert rows.shape == (3, 3)  # the space around a word, and two emoji; no words at all
    assert np.allclose(rows.multiply(rows).sum(axis=1), 1)
    vectorizer = TextVectorizer(word_ngrams=None, char_ngrams=(2, 2)).fit(["แมวกินปลา", "ปลากินแมว"])
    assert {"กิ", "ปล", " แ"} <= set(vectorizer.feature_names())


def test_emoji_alone_are_an_empty_row():
    rows = TextVectorizer().fit(ENGLISH).transform(["👍🏽 🎉", "red"])
    assert rows.getnnz(axis=1).tolist() == [0, 1]


def test_word_ngrams():
    assert words("one two three", word_ngrams=(2, 3)) == ["one two", "one two three", "two three"]


def test_pattern_is_linear():
    # Nested repetition would take exponential time on letters and marks that end in neither.
    text = "a\u0301" * 20_000 + "!"
    assert TextVectorizer().fit([text]).n_features == 1


# Rows


def test_tfidf_by_hand():
    # idf = ln((1 + n) / (1 + df)) + 1: 1 for "a" in both texts, ln(3 / 2) + 1 for "b" in one.
    vectorizer = TextVectorizer().fit(["a b b", "a"])
    b = (1 + math.log(2)) * (math.log(3 / 2) + 1)
    length = math.hypot(1, b)
    rows = vectorizer.transform(["a b b", "b a", "c"]).toarray()
    assert vectorizer.feature_names() == ["a", "b"]
    assert rows[0] == pytest.approx([1 / length, b / length])
    assert rows[1, 1] / rows[1, 0] == pytest.approx(math.log(3 / 2) + 1)
    assert rows[2].tolist() == [0, 0]


def test_equals_scikit_learn_on_plain_text():
    for sublinear in (True, False):
        ours = TextVectorizer(sublinear_tf=sublinear, word_ngrams=(1, 2)).fit_transform(ENGLISH)
        theirs = TfidfVectorizer(token_pattern=r"(?u)\w+", sublinear_tf=sublinear, ngram_range=(1, 2))
        assert same(ours, csr_matrix(theirs.fit(ENGLISH).transform(ENGLISH), dtype=np.float32))


def test_min_df_and_max_features():
    assert TextVectorizer(min_df=2).fit(ENGLISH).feature_names() == ["car", "fox", "red", "the"]
    assert TextVectorizer(min_df=0.7).fit(ENGLISH).feature_names() == ["the"]
    assert TextVectorizer(max_features=2).fit(ENGLISH).feature_names() == ["red", "the"]
    both = TextVectorizer(max_features=2, char_ngrams=(1, 1)).fit(ENGLISH)
    assert both.feature_names() == ["red", "the", " ", "e"]


def test_words_and_characters_weigh_the_same():
    vectorizer = TextVectorizer(char_ngrams=(2, 4)).fit(ENGLISH)
    n_words = TextVectorizer().fit(ENGLISH).n_features
    squares = vectorizer.transform(ENGLISH).toarray().astype(float) ** 2
    assert squares[:, :n_words].sum(axis=1) == pytest.approx(0.5)
    assert squares[:, n_words:].sum(axis=1) == pytest.approx(0.5)
    # A text whose words are all unknown has all its length in characters.
    assert np.sum(vectorizer.transform(["foxes"]).toarray() ** 2) == pytest.approx(1)


@settings(max_examples=60)
@given(texts=st.lists(st.text(st.characters(exclude_categories=())), max_size=6), chars=st.booleans())
def test_rows_of_any_text(texts, chars):
    vectorizer = TextVectorizer(char_ngrams=(1, 3) if chars else None)
    vectorizer.fit([*ENGLISH, "\ud800 lone"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = vectorizer.transform(texts)
    assert isinstance(rows, csr_matrix)
    assert rows.dtype == np.float32
    assert rows.shape == (len(texts), vectorizer.n_features)
    assert rows.has_sorted_indices
    assert np.isfinite(rows.data).all()
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    assert np.allclose(lengths[rows.getnnz(axis=1) > 0], 1, atol=1e-5)


@settings(
    max_examples=40,
    suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture],
)
@given(
    texts=st.lists(st.text(st.characters(exclude_categories=()), min_size=1), min_size=1, max_size=6),
    chars=st.booleans(),
)
def test_fit_transform_and_a_saved_copy_give_the_same_bits(tmp_path, texts, chars):
    texts = [*texts, "word"]
    vectorizer = TextVectorizer(word_ngrams=(1, 2), char_ngrams=(1, 2) if chars else None)
    rows = vectorizer.fit_transform(texts)
    assert same(rows, vectorizer.transform(texts))
    vectorizer.save(tmp_path)
    loaded = load_vectorizer(tmp_path)
    assert isinstance(loaded, TextVectorizer)
    assert loaded.parameters() == vectorizer.parameters()
    assert loaded.feature_names() == vectorizer.feature_names()
    assert same(loaded.transform(texts), rows)


# Bad arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"word_ngrams": (2, 1)}, r"`word_ngrams` must be \(shortest, longest\).*got \(2, 1\)"),
        ({"word_ngrams": 1}, "`word_ngrams` must be"),
        ({"char_ngrams": (0, 2)}, "`char_ngrams` must be"),
        ({"char_ngrams": (1, 2.5)}, "`char_ngrams` must be"),
        ({"word_ngrams": None}, "both None"),
        ({"sublinear_tf": 1}, "`sublinear_tf` must be True or False, got 1"),
        ({"lowercase": None}, "`lowercase` must be True or False"),
    ],
)
def test_bad_parameters(arguments, message):
    with pytest.raises(ParameterError, match=message):
        TextVectorizer(**arguments)


@pytest.mark.parametrize("value", [0, -1, 1.0, 1.5, True, "2", None, math.nan])
def test_bad_min_df(value):
    with pytest.raises(ParameterError, match="`min_df` must be"):
        TextVectorizer(min_df=value)


@pytest.mark.parametrize("value", [0, 2.0, True, "2"])
def test_bad_sizes(value):
    with pytest.raises(ParameterError, match="`max_features` must be"):
        TextVectorizer(max_features=value)


def test_texts_that_are_not_texts():
    vectorizer = TextVectorizer().fit(ENGLISH)
    with pytest.raises(DTypeError, match=r"transform: texts\[1\] must be a str, got float"):
        vectorizer.transform(["a", math.nan])
    with pytest.raises(DTypeError, match=r"texts\[0\] must be a str, got bytes"):
        vectorizer.transform([b"a"])
    with pytest.raises(DTypeError, match="`texts` must be a list of str, got str"):
        vectorizer.transform("a text")
    with pytest.raises(DTypeError, match="`texts` must be a list of str, got NoneType"):
        vectorizer.transform(None)
    with pytest.raises(DTypeError, match=r"fit: texts\[2\] must be a str, got int"):
        TextVectorizer().fit(["a", "b", 3])


@pytest.mark.parametrize("texts", [[], [""], ["!?", "👍"]])
def test_nothing_to_learn(texts):
    with pytest.raises(DataError, match=f"found no term in at least min_df=1 of the {len(texts)} texts"):
        TextVectorizer().fit(texts)
    with pytest.raises(DataError, match="min_df=9"):
        TextVectorizer(min_df=9).fit(ENGLISH)


def test_not_fitted(tmp_path):
    for use in (lambda v: v.transform(["a"]), lambda v: v.n_features, lambda v: v.save(tmp_path)):
        with pytest.raises(NotFittedError, match="call `fit` first"):
            use(TextVectorizer())
    assert list(tmp_path.iterdir()) == []


@given(
    texts=st.lists(st.text(alphabet="ab c\n\té漢か́😀1_-", max_size=25), min_size=1, max_size=6),
    more=st.lists(st.text(alphabet="abc d\n é漢か́😀1", max_size=25), max_size=4),
    word=st.sampled_from([None, (1, 1), (1, 3), (2, 2)]),
    char=st.sampled_from([None, (1, 2), (2, 4), (5, 5)]),
    sublinear=st.booleans(),
)
@settings(max_examples=150)
def test_rows_are_scikit_learns(texts, more, word, char, sublinear):
    """To the last digit but for rounding, whatever the texts; ours without importing it."""
    if word is None and char is None:
        return
    ours = TextVectorizer(word_ngrams=word, char_ngrams=char, sublinear_tf=sublinear)
    try:
        ours.fit(texts)
    except DataError:
        return
    blocks = []
    for ngrams, arguments in ((word, {"token_pattern": word_pattern()}), (char, {"analyzer": "char_wb"})):
        if ngrams is None:
            continue
        theirs = TfidfVectorizer(
            **arguments, ngram_range=ngrams, preprocessor=ours._prepare, sublinear_tf=sublinear
        )
        try:
            blocks.append(theirs.fit(texts).transform(texts + more).toarray())
        except ValueError:  # no terms of that kind
            continue
    expected = np.hstack(blocks)
    norms = np.linalg.norm(expected, axis=1, keepdims=True)
    expected = expected / np.where(norms > 0, norms, 1)
    np.testing.assert_allclose(ours.transform(texts + more).toarray(), expected, atol=1e-6)


def test_tagging_does_not_import_scikit_learn(tmp_path):
    """Which takes longer than everything else that tagging a text does."""
    TextVectorizer(char_ngrams=(2, 3)).fit(["a red fox", "the car"]).save(tmp_path)
    code = (
        "import sys; from circlet.features.vectorizer import load_vectorizer; "
        f"rows = load_vectorizer({str(tmp_path)!r}).transform(['the fox', 'nothing known', '']); "
        "assert rows.shape[0] == 3; assert 'sklearn' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
