from __future__ import annotations

import pytest

from circlet.features.terms import characters, count, words


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
        assert words(r"\w+", shortest, longest)("one, two; one") == expected

    def test_no_words(self):
        assert words(r"\w+", 1, 3)("!?") == []


class TestCharacters:
    def test_words_have_a_space_at_both_ends(self):
        assert characters(2, 2)("ab  c") == [" a", "ab", "b ", " c", "c "]

    def test_runs_do_not_leave_their_word(self):
        assert characters(3, 4)("ab c") == [" ab", "ab ", " ab ", " c "]

    def test_a_word_too_short_counts_once(self):
        assert characters(5, 7)("ab\tcdef") == [" ab ", " cdef", "cdef ", " cdef "]

    def test_nothing(self):
        assert characters(1, 3)(" \n ") == []


class TestCount:
    def test_by_hand(self):
        vocabulary = {"b": 0, "a": 1, "d": 2}
        rows = count(["a b a c", "", "d"], words(r"\w+", 1, 1), vocabulary)
        assert rows.toarray().tolist() == [[1, 2, 0], [0, 0, 0], [0, 0, 1]]
        assert rows.has_sorted_indices

    def test_no_texts(self):
        assert count([], words(r"\w+", 1, 1), {"a": 0}).shape == (0, 1)
