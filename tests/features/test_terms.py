from __future__ import annotations

import pickle
import re
import unicodedata
from collections import Counter

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from circlet.features import TextVectorizer
from circlet.features.vectorizer import Characters, Vocabulary, Words, occurrences, origins, word_pattern


def test_runs_of_words():
    text = "one, two; one"
    assert Words(1, 1)(text) == ["one", "two", "one"]
    assert Words(1, 2)(text) == ["one", "two", "one", "one two", "two one"]
    assert Words(2, 3)(text) == ["one two", "two one", "one two one"]
    assert Words(4, 9)(text) == Words(1, 3)("!?") == []


@given(st.text(st.characters(max_codepoint=127)))
def test_ascii_has_a_pattern_of_its_own_that_finds_the_same(text):
    assert Words(1, 1)(text) == re.compile(word_pattern()).findall(text)


def test_runs_of_characters():
    assert Characters(2, 2)("ab  c") == [" a", "ab", "b ", " c", "c "]  # words have a space at both ends
    assert Characters(3, 4)("ab c") == [" ab", "ab ", " ab ", " c "]  # and runs do not leave them
    assert Characters(5, 7)("ab\tcdef") == [" ab ", " cdef", "cdef ", " cdef "]  # one too short counts once
    assert Characters(1, 3)(" \n ") == []


def test_counts_by_hand():
    vocabulary = Vocabulary(["b", "a", "d"])
    for text, expected in (("a b a c", [(0, 1), (1, 2)]), ("d d", [(2, 2)]), ("c e", []), ("", [])):
        columns, times = vocabulary.count(text, Words(1, 1))
        assert list(zip(columns.tolist(), times.tolist(), strict=True)) == expected


@given(st.lists(st.text("ab é日", max_size=12), max_size=6), st.sampled_from([Words(1, 2), Characters(1, 3)]))
def test_counts_are_those_of_terms(texts, terms):
    vocabulary = Vocabulary(["a", "b", "aa", " a", "é", "日", "a b", "b a", "ab "])
    for text in texts:
        wanted = Counter(term for term in terms(text) if term in vocabulary.terms)
        columns, times = vocabulary.count(text, terms)
        assert columns.tolist() == sorted(columns.tolist())
        assert {vocabulary.terms[c]: t for c, t in zip(columns, times, strict=True)} == wanted


def test_what_it_remembers_is_bounded_and_changes_nothing():
    vocabulary, terms = Vocabulary(["a", "b"], cache_size=3), Characters(1, 1)
    for text in ("a b", "ba ab aab", "a", "aa bb ab ba b"):
        columns, times = vocabulary.count(text, terms)
        assert times.tolist() == [text.count("ab"[column]) for column in columns.tolist()]
        assert len(vocabulary.cache) <= 3


def test_a_pickled_vocabulary_forgets_its_cache():
    vocabulary = Vocabulary(["b", "a"])
    vocabulary.count("ab", Characters(1, 1))
    copied = pickle.loads(pickle.dumps(vocabulary))
    assert copied.terms == ["b", "a"]
    assert copied.cache == {}
    assert copied.lookup(["a", "x"]).tolist() == [1, -1]


#: Letters whose normal or lower form is longer or shorter, or depends on what is beside them.
ODD = "eé\u0301\u0327ßİIıŞΣσςΑﬁﬀ½²①㌀ｶﾞ한\u1112\u1161\u11abनि\u0bc6\u0bbe日あ\u200dxX9 .-\t\u3000\ud800\U0001f600ſẞ"
texts = st.text(st.sampled_from(ODD), max_size=12) | st.text(max_size=12)


def prepared(text: str, lowercase: bool = True) -> str:
    return TextVectorizer(lowercase=lowercase)._prepare(text)


def found_by(text: str, known: str, **parameters) -> dict[str, list[tuple[int, int]]]:
    vectorizer = TextVectorizer(**parameters).fit([known])
    names = vectorizer.feature_names()
    return {names[column]: spans for column, spans in vectorizer.spans(text).items()}


def test_spans_by_hand():
    text = "Fox, the RED\u3000fox; ﬁx"
    words = found_by(text, "the red fox fix", word_ngrams=(1, 2))
    assert words == {
        "fox": [(0, 3), (13, 16)],
        "the": [(5, 8)],
        "red": [(9, 12)],
        "fix": [(18, 20)],
        "the red": [(5, 12)],
        "red fox": [(9, 16)],
        "fox fix": [(13, 20)],
    }
    runs = found_by(text, "red fix x", word_ngrams=None, char_ngrams=(3, 3))
    assert runs == {
        " re": [(9, 11)],
        "red": [(9, 12)],
        "ed ": [(10, 12)],
        " fi": [(18, 19)],  # the f and the i are one character
        "fix": [(18, 20)],
        "ix ": [(18, 20)],
    }
    assert found_by("", "a") == found_by("unknown", "a") == {}
    # One letter in all its forms
    for text, span in (("caf\u0065\u0301 x", (0, 5)), ("x ＣＡＦÉ", (2, 6)), ("CAFÉ", (0, 4))):
        assert found_by(text, "café") == {"café": [span]}
    # Kinds have columns of their own.
    vectorizer = TextVectorizer(char_ngrams=(3, 3)).fit(["fox"])
    assert vectorizer.feature_names() == ["fox", " fo", "fox", "ox "]
    assert vectorizer.spans("a fox") == {0: [(2, 5)], 1: [(2, 4)], 2: [(2, 5)], 3: [(3, 5)]}


@given(text=texts, lowercase=st.booleans())
@example(text="e\u0301", lowercase=True)
@example(text="ｶﾞ", lowercase=False)
def test_every_prepared_character_has_a_place(text, lowercase):
    clean = text.encode("utf-8", "replace").decode() if any("\ud800" <= c <= "\udfff" for c in text) else text
    starts, ends = origins(clean, unicodedata.normalize("NFKC", clean), lowercase=lowercase)
    whole = prepared(clean, lowercase)
    assert len(starts) == len(ends) == len(whole)
    assert (np.diff(starts) >= 0).all()
    assert (np.diff(ends) >= 0).all()
    if whole:
        assert (starts[0], ends[-1]) == (0, len(clean))
        assert (starts < ends).all()


@given(
    text=texts, terms=st.sampled_from([Words(1, 1), Words(1, 3), Words(2, 2), Characters(1, 3), Characters(3, 5)])
)
def test_the_same_terms_as_ever_and_where_they_are(text, terms):
    text = prepared(text)
    found = list(occurrences(text, terms))
    assert [term for term, _, _ in found] == terms(text)
    for term, start, end in found:
        there = text[start:end]
        if not isinstance(terms, Characters):
            assert " ".join(Words(1, 1)(there)) == term
        else:
            assert there == term.strip() or not term.strip()


def alike(text: str) -> str:
    """Without what lower case does only at the ends of words."""
    return text.replace("ς", "σ")


@given(text=texts, words=st.booleans())
@example(text="ΑΣ ΑΣΑ", words=True)
@example(text="½ cup", words=True)
@example(text="İx İ", words=False)
def test_the_text_at_a_span_has_the_term(text, words):
    vectorizer = TextVectorizer(word_ngrams=(1, 2) if words else None, char_ngrams=None if words else (2, 3))
    if not any(terms(prepared(text)) for terms in vectorizer._kinds.values()):
        return
    vectorizer.fit([text])
    spans, names = vectorizer.spans(text), vectorizer.feature_names()
    # Every term of the text is found, as often as it occurs.
    (kind,) = vectorizer._kinds.values()
    every = kind(prepared(text))
    assert {names[column]: len(found) for column, found in spans.items()} == {t: every.count(t) for t in every}
    for column, found in spans.items():
        for start, end in found:
            assert 0 <= start < end <= len(text)
            there = alike(prepared(text[start:end]))
            if words:
                assert f" {alike(names[column])} " in f" {' '.join(map(alike, Words(1, 1)(there)))} "
            else:
                assert alike(names[column].strip()) in there
