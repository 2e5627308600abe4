"""Words of many scripts, and tf-idf by hand and against scikit-learn."""

from __future__ import annotations

import json
import math
import os
import stat
import warnings
from contextlib import suppress
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from scipy.sparse import csr_matrix
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from tests.fuzz.damage import cut, flip, insert

from circlet.errors import DataError, DTypeError, ParameterError
from circlet.features.vectorizer import TextVectorizer, load_vectorizer, word_pattern

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


def saved_copy(vectorizer: TextVectorizer, folder: Path) -> TextVectorizer:
    """Save a vectorizer, and load it, with the same terms."""
    vectorizer.save(folder)
    loaded = load_vectorizer(folder)
    assert loaded.feature_names() == vectorizer.feature_names()
    return loaded


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
    assert TextVectorizer().fit(ENGLISH).transform(["👍🏽 🎉", "red"]).getnnz(axis=1).tolist() == [0, 1]
    vectorizer = TextVectorizer(word_ngrams=None, char_ngrams=(2, 2)).fit(["แมวกินปลา", "ปลากินแมว"])
    assert {"กิ", "ปล", " แ"} <= set(vectorizer.feature_names())


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
def test_rows_of_any_text(tmp_path_factory, texts, chars):
    vectorizer = TextVectorizer(word_ngrams=(1, 2), char_ngrams=(1, 3) if chars else None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = vectorizer.fit_transform([*ENGLISH, "\ud800 lone", *texts])
        rows = vectorizer.transform(["unknown", *texts])
    assert isinstance(rows, csr_matrix)
    assert rows.dtype == np.float32
    assert rows.shape == (len(texts) + 1, vectorizer.n_features)
    assert rows.has_sorted_indices
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    assert np.allclose(lengths[rows.getnnz(axis=1) > 0], 1, atol=1e-5)
    # To the bit what fitting gave, and what a saved copy gives.
    assert same(rows[1:], fitted[len(ENGLISH) + 1 :])
    loaded = saved_copy(vectorizer, tmp_path_factory.mktemp("saved"))
    assert isinstance(loaded, TextVectorizer)
    assert loaded.parameters() == vectorizer.parameters()
    assert same(loaded.transform(["unknown", *texts]), rows)


# Bad arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"word_ngrams": (2, 1)}, r"`word_ngrams`: found \(2, 1\); wanted \(shortest, longest\)"),
        ({"word_ngrams": 1}, "`word_ngrams`: found"),
        ({"char_ngrams": (0, 2)}, "`char_ngrams`: found"),
        ({"char_ngrams": (1, 2.5)}, "`char_ngrams`: found"),
        ({"word_ngrams": None}, "found None for both"),
        ({"sublinear_tf": 1}, "`sublinear_tf`: found 1; wanted True or False"),
        ({"lowercase": None}, "`lowercase`: found None; wanted True or False"),
        *(({"min_df": value}, "`min_df`: found") for value in (0, -1, 1.0, 1.5, True, "2", None, math.nan)),
        *(({"max_features": value}, "`max_features`: found") for value in (0, 2.0, True, "2")),
    ],
)
def test_bad_parameters(arguments, message):
    with pytest.raises(ParameterError, match=message):
        TextVectorizer(**arguments)


def test_texts_that_are_not_texts():
    vectorizer = TextVectorizer().fit(ENGLISH)
    for use, texts, message in (
        (vectorizer.transform, ["a", math.nan], r"transform: texts\[1\]: found float; wanted a str"),
        (vectorizer.transform, [b"a"], r"texts\[0\]: found bytes; wanted a str"),
        (vectorizer.transform, "a text", "`texts`: found str; wanted a list of str"),
        (vectorizer.transform, None, "`texts`: found NoneType; wanted a list of str"),
        (TextVectorizer().fit, ["a", "b", 3], r"fit: texts\[2\]: found int; wanted a str"),
    ):
        with pytest.raises(DTypeError, match=message):
            use(texts)


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


KNOWN = TextVectorizer(char_ngrams=(2, 3), min_df=2, max_features=50).fit([*ENGLISH, *ENGLISH])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    KNOWN.save(tmp_path)
    return tmp_path


def test_saved_files(saved):
    assert sorted(path.name for path in saved.iterdir()) == ["vectorizer.json", "vectorizer.safetensors"]
    assert (saved / "vectorizer.json").read_bytes().isascii()
    loaded = TextVectorizer.load(str(saved))
    assert repr(loaded) == (
        "TextVectorizer(word_ngrams=(1, 1), char_ngrams=(2, 3), sublinear_tf=True, lowercase=True, "
        "min_df=2, max_features=50)"
    )
    before = loaded.feature_names()
    assert loaded.fit(["new words"] * 2).feature_names() != before  # a loaded one may learn anew


def test_whoever_may_read_one_file_may_read_the_other(tmp_path):
    before = os.umask(0o027)
    try:
        TextVectorizer().fit(ENGLISH).save(tmp_path)
    finally:
        os.umask(before)
    modes = {path.suffix: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys((".json", ".safetensors"), modes[".json"])
    if os.name == "posix":
        assert modes[".json"] == 0o640


def test_states_of_every_kind(tmp_path):
    sizes = TextVectorizer(min_df=np.int64(1), max_features=np.int32(9)).fit(ENGLISH)
    assert saved_copy(sizes, tmp_path / "sizes").parameters()["max_features"] == 9
    wordless = TextVectorizer(char_ngrams=(1, 1)).fit(["👍🎉", "🎉"])
    assert same(
        saved_copy(wordless, tmp_path / "wordless").transform(["🎉 word"]), wordless.transform(["🎉 word"])
    )
    # Line separators and lone surrogates would not survive text mode or UTF-8; they can be in a term only as
    # characters, and a surrogate is replaced before.
    texts = ["a\u2028b\x85c\x00d", "\ud800x\udfff", "\ufeff\u00a0"]
    odd = TextVectorizer(word_ngrams=None, char_ngrams=(1, 3)).fit(texts)
    assert same(saved_copy(odd, tmp_path / "odd").transform(texts), odd.transform(texts))
    assert "\ufffdx\ufffd" in odd.feature_names()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "hashing"}, "`kind`: found 'hashing'; wanted 'tfidf'"),
        ({"kind": ["tfidf"]}, "`kind`: found"),
        ({"format": 2}, r"saved by a newer circlet \(format 2\); this one reads up to 1"),
        ({"format": True}, "`format`: found True; wanted 1"),
        ({"format": 0}, "`format`: found 0; wanted 1"),
        ({"format": None}, "`format`: found None; wanted 1"),
        ({"more": 1}, "found the keys .*'more'.*; wanted"),
        ({"parameters": []}, r"`parameters`: found \[\]; wanted"),
        ({"parameters": {"min_df": 1}}, "`parameters`: found .*; wanted"),
        ({"terms": []}, r"`terms`: found list; wanted a list for each of \['word', 'char'\]"),
        ({"terms": {"word": ["a"]}}, "`terms`: found .*; wanted a list for each"),
        ({"terms": {"word": ["a"], "char": "b"}}, "the terms of 'char': found str; wanted a list of str"),
        ({"terms": {"word": ["a", 1], "char": []}}, "the terms of 'word': found list; wanted a list of str"),
        ({"terms": {"word": ["a", "a"], "char": []}}, "the terms of 'word': found the same twice"),
        ({"terms": {"word": [], "char": []}}, "found no terms"),
        (
            {"terms": {"word": ["a"], "char": ["b"]}},
            r"'idf': found float64 of shape .*; wanted float64 of shape \(2,\), one per term",
        ),
        ({"sha256": "0"}, "the sha256 differs"),
        ({"parameters": {**KNOWN.parameters(), "min_df": 0}}, r"vectorizer.json: `min_df`: found"),
        ({"parameters": {**KNOWN.parameters(), "lowercase": False}}, "the sha256 differs"),
    ],
)
def test_edited_state(saved, changes, message):
    path = saved / "vectorizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(DataError, match=message) as caught:
        load_vectorizer(saved)
    assert "vectorizer." in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *((content, "found no readable JSON") for content in (b"", b"\xff\xfe\x00", b"[" * 100_000)),
        (b"[1]", "a JSON object, found list"),
        (b"{}", "`kind`: found"),
        (b'{"kind": ' + b"9" * 5000 + b"}", "vectorizer.json"),
    ],
)
def test_foreign_state(saved, content, message):
    (saved / "vectorizer.json").write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_vectorizer(saved)


def test_other_numbers(saved):
    path = saved / "vectorizer.safetensors"
    size = KNOWN.n_features
    for tensors, message in [
        ({"idf": np.ones(size, np.float32)}, r"found float32 .*wanted float64 of shape"),
        ({"idf": np.ones((size, 1))}, "wanted float64 of shape"),
        ({"other": np.ones(size)}, r"found tensors \['other'\]; wanted one, 'idf'"),
        ({"idf": np.full(size, np.nan)}, "non-finite numbers"),
        ({"idf": np.ones(size)}, "the sha256 differs"),
    ]:
        save_file(tensors, path)
        with pytest.raises(DataError, match=message):
            load_vectorizer(saved)
    path.unlink()
    with pytest.raises(DataError, match=r"vectorizer.safetensors: found no readable tensors"):
        load_vectorizer(saved)
    with pytest.raises(DataError, match=r"vectorizer.json: found no readable JSON \(No such file"):
        load_vectorizer(saved / "nowhere")


def test_damage_is_noticed(saved):
    wanted = KNOWN.transform(ENGLISH)
    for number in range(120):
        random = Random(number)
        path = saved / random.choice(["vectorizer.json", "vectorizer.safetensors"])
        original = path.read_bytes()
        path.write_bytes(random.choice([flip, cut, insert])(original, random))
        with suppress(DataError):
            # White space in the JSON, for instance, changes nothing.
            assert same(load_vectorizer(saved).transform(ENGLISH), wanted)
        path.write_bytes(original)
