from __future__ import annotations

import pickle
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circlet.features import terms as module
from circlet.features.terms import Characters, Vocabulary, Words


class TestWords:
    @pytest.mark.parametrize(
        ("shortest", "longest", "expected"),
        [
            (1, 1, ["one", "two", "one"]),
            (1, 2, ["one", "two", "one", "one two", "two one"]),
            (2, 3, ["one two", "two one", "one two one"]),
            (4, 9, []),
        ],
    )
    def test_runs(self, shortest, longest, expected):
        assert Words(shortest, longest)("one, two; one") == expected

    def test_no_words(self):
        assert Words(1, 3)("!?") == []

    @given(st.text(st.characters(max_codepoint=127)))
    def test_ascii_has_a_pattern_of_its_own_that_finds_the_same(self, text):
        assert Words(1, 1)(text) == module._any_word().findall(text)

    def test_other_letters(self):
        assert Words(1, 1)("größer 日本 a") == ["größer", "日", "本", "a"]


class TestCharacters:
    def test_words_have_a_space_at_both_ends(self):
        assert Characters(2, 2)("ab  c") == [" a", "ab", "b ", " c", "c "]

    def test_runs_do_not_leave_their_word(self):
        assert Characters(3, 4)("ab c") == [" ab", "ab ", " ab ", " c "]

    def test_a_word_too_short_counts_once(self):
        assert Characters(5, 7)("ab\tcdef") == [" ab ", " cdef", "cdef ", " cdef "]

    def test_nothing(self):
        assert Characters(1, 3)(" \n ") == []


class TestVocabulary:
    def test_by_hand(self):
        vocabulary = Vocabulary(["b", "a", "d"])
        for text, expected in {
            "a b a c": [(0, 1), (1, 2)],
            "": [],
            "d": [(2, 1)],
            "c e": [],
            "d d": [(2, 2)],
        }.items():
            columns, times = vocabulary.count(text, Words(1, 1))
            assert list(zip(columns.tolist(), times.tolist(), strict=True)) == expected

    @given(st.lists(st.text("ab é日", max_size=12), max_size=6), st.sampled_from([Words(1, 2), Characters(1, 3)]))
    def test_the_same_as_counting_terms(self, texts, terms):
        vocabulary = Vocabulary(["a", "b", "aa", " a", "é", "日", "a b", "b a", "ab "])
        for text in texts:
            wanted = Counter(term for term in terms(text) if term in vocabulary.terms)
            columns, times = vocabulary.count(text, terms)
            assert columns.tolist() == sorted(columns.tolist())
            assert {vocabulary.terms[c]: t for c, t in zip(columns, times, strict=True)} == wanted

    def test_what_it_remembers_is_bounded_and_changes_nothing(self, monkeypatch):
        monkeypatch.setattr(module, "_REMEMBERED", 3)
        vocabulary, terms = Vocabulary(["a", "b"]), Characters(1, 1)
        for text in ("a b", "ba ab aab", "a", "aa bb ab ba b"):
            columns, times = vocabulary.count(text, terms)
            assert times.tolist() == [text.count("ab"[column]) for column in columns.tolist()]
            assert len(vocabulary.remembered) <= 3

    def test_pickled(self):
        vocabulary = Vocabulary(["b", "a"])
        vocabulary.count("ab", Characters(1, 1))
        copied = pickle.loads(pickle.dumps(vocabulary))
        assert copied.terms == ["b", "a"]
        assert copied.remembered == {}
        assert copied.lookup(["a", "x"]).tolist() == [1, -1]

    def test_whether_terms_differ(self):
        assert Vocabulary(["a", "b"]).all_different
        assert not Vocabulary(["a", "a"]).all_different
