from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from circlet.data.dataset import Dataset, Split
from circlet.data.feedback import HEADER, FeedbackLog, TextFeedback, apply_feedback, merge_feedback
from circlet.errors import CircletError, DataError, OutputError, ParameterError
from circlet.files import lock


@pytest.fixture
def log(tmp_path) -> FeedbackLog:
    return FeedbackLog(tmp_path / "log.jsonl")


def test_entries_come_back_in_their_order(log):
    assert (log.entries(), len(log)) == ([], 0)
    first = log.add("a fox", ["animal"], ["car", "car"], "0")
    second = log.add("ein größerer\nFuchs", [], ["日本"], "1")
    assert (first.accepted, first.rejected, first.undone) == (("animal",), ("car",), False)
    for each in (log, FeedbackLog(log.path)):
        assert each.entries() == [first, second]
        assert len(each) == 2
    assert log.path.read_bytes().startswith(HEADER)
    assert first.id != second.id


def test_undo(log):
    other = FeedbackLog(log.path)
    first, second = (log.add(text, ["a"], [], "0") for text in ("one", "two"))
    undone = other.undo(first.id)  # logs of one file see each other
    assert undone.undone
    for each in (log, other, FeedbackLog(log.path)):
        assert each.entries() == [second]
        assert each.entries(active_only=False) == [undone, second]
        assert each.snapshot() == (3, [second])
    with pytest.raises(CircletError, match="undone already"):
        log.undo(first.id)
    with pytest.raises(CircletError, match="cannot undo 'nothing': found no such entry"):
        log.undo("nothing")
    assert len(log) == 3


def test_as_it_was_earlier(log):
    first = log.add("one", ["a"], [], "0")
    log.undo(first.id)
    before = FeedbackLog(log.path, 1)
    assert before.entries() == [first]
    content = log.path.read_bytes()
    with pytest.raises(ParameterError, match="only the first 1 records are read; wanted the whole log"):
        before.add("two", ["a"], [], "0")
    assert log.path.read_bytes() == content


@pytest.mark.parametrize(
    ("text", "accepted", "rejected", "words"),
    [
        ("one", [], [], "neither an accepted nor a rejected label"),
        ("one", ["a"], ["a"], "'a' both accepted and rejected; wanted one of them"),
        ("one", [" "], [], "an empty label name"),
        ("one", ["a\nb"], [], "line end"),
        ("one", [7], [], "the label '7'; wanted text"),
        (" ", ["a"], [], "without a visible character"),
        ("\ud800", ["a"], [], "surrogate"),
        (7, ["a"], [], "as `text`; wanted text"),
    ],
)
def test_what_is_refused(log, text, accepted, rejected, words):
    with pytest.raises(ParameterError, match=words):
        log.add(text, accepted, rejected, "0")
    assert not log.path.exists()


LABELS = st.lists(st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda s: s.strip()), max_size=3)


@given(text=st.text(st.characters(codec="utf-8"), min_size=1), accepted=LABELS)
def test_any_text_comes_back_or_is_refused(tmp_path_factory, text, accepted):
    log = FeedbackLog(tmp_path_factory.mktemp("log") / "log.jsonl")
    try:
        entry = log.add(text, accepted, ["never"], "0")
    except ParameterError:
        assert len(log) == 0
        return
    assert FeedbackLog(log.path).entries() == [entry]
    assert (entry.text, entry.accepted) == (text, tuple(dict.fromkeys(accepted)))


class TestDamage:
    def test_a_log_that_ends_at_any_byte_of_its_last_record(self, log):
        kept = log.add("one", ["a"], [], "0")
        complete = log.path.stat().st_size
        log.add("two", ["größer"], [], "0")
        content = log.path.read_bytes()
        for end in range(complete, len(content)):
            log.path.write_bytes(content[:end])
            torn = FeedbackLog(log.path)
            assert torn.entries() == [kept]
            assert log.path.read_bytes() == content[:end]  # reading changes nothing
            new = torn.add("three", [], ["b"], "0")
            assert FeedbackLog(log.path).entries() == [kept, new]

    def test_a_log_that_ends_within_its_first_line(self, log):
        for end in range(len(HEADER)):
            log.path.write_bytes(HEADER[:end])
            torn = FeedbackLog(log.path)
            assert torn.entries() == []
            new = torn.add("one", ["a"], [], "0")
            assert FeedbackLog(log.path).entries() == [new]

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("{", "no readable record"),
            ("[]", "wanted an object with id, time, text"),
            ('{"id": "1", "time": "", "undo": "2"}', "an undo of '2'; wanted the id of an active entry"),
            ('{"id": "1", "time": "", "undo": 2}', "as `undo`; wanted text"),
            ("", "no readable record"),
            ('{"id": "1", "time": "", "text": "x", "accepted": "a", "rejected": [], "version": "0"}', "a list"),
        ],
    )
    def test_a_line_in_the_middle(self, log, line, words):
        log.add("one", ["a"], [], "0")
        log.add("two", ["a"], [], "0")
        lines = log.path.read_text().splitlines()
        log.path.write_text("\n".join([*lines[:2], line, lines[2], ""]))
        with pytest.raises(DataError, match=words) as caught:
            FeedbackLog(log.path)
        assert str(caught.value).startswith(f"{log.path}:3: found ")

    def test_an_entry_twice_another_file_and_a_log_that_shrank(self, log):
        log.add("one", ["a"], [], "0")
        other, lines = log.path.with_name("other.jsonl"), log.path.read_text().splitlines()
        for content, message in (
            ("\n".join([*lines, lines[1], ""]), r":3: found the id .* again"),
            ('{"text": "a fox", "labels": []}\n', r":1: found .*; wanted .*starts a feedback log"),
        ):
            other.write_text(content)
            with pytest.raises(DataError, match=message):
                FeedbackLog(other)
        log.path.write_bytes(HEADER)
        with pytest.raises(DataError, match="a feedback log only grows"):
            log.entries()


class TestDisk:
    @pytest.mark.parametrize("where", ["write", "fsync"])
    def test_a_full_disk_leaves_the_file_valid(self, log, monkeypatch, where):
        kept = log.add("one", ["a"], [], "0")
        content, write = log.path.read_bytes(), os.write

        def half(file: int, data: bytes) -> int:
            write(file, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")

        def full(file: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, where, half if where == "write" else full)
            with pytest.raises(OutputError, match="the disk is full; nothing was recorded"):
                log.add("two", ["a"], [], "0")
        assert log.path.read_bytes() == content
        assert log.entries() == [kept]
        assert FeedbackLog(log.path).entries() == [kept]
        log.add("three", ["a"], [], "0")
        assert len(log) == 2

    def test_what_returns_is_on_disk(self, log, monkeypatch):
        synced: list[int] = []
        monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_size))
        log.add("one", ["a"], [], "0")
        assert len(synced) == (1 if os.name == "nt" else 2)  # the file, then its folder
        assert synced[0] == log.path.stat().st_size

    def test_somebody_else_holds_it(self, log):
        log.add("one", ["a"], [], "0")
        impatient = FeedbackLog(log.path, patience=0.01)
        file = os.open(log.path, os.O_RDWR)
        lock(file)
        with pytest.raises(OutputError, match="another process has had it"):
            impatient.add("two", ["a"], [], "0")
        os.close(file)


def test_threads_and_handles_do_not_interleave(tmp_path):
    path = tmp_path / "log.jsonl"
    logs = [FeedbackLog(path), FeedbackLog(path)]

    def add(number: int) -> None:
        for each in range(10):
            logs[number % 2].add(f"text {number} {each} " + "x" * 5000, ["a"], [], "0")

    threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(FeedbackLog(path)) == 40
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_the_last_word_about_a_label_decides(log):
    log.add("fox", ["animal", "red"], ["car"], "0")
    log.add("van", ["car"], [], "0")
    log.add("fox", ["car"], ["red"], "0")
    assert merge_feedback(log.entries()) == [
        TextFeedback("fox", ("animal", "car"), ("red",)),
        TextFeedback("van", ("car",), ()),
    ]


def test_labels_that_have_two_names(log):
    log.add("fox", ["animal"], ["u:car"], "0")
    log.add("fox", ["car"], ["u:animal", "u:new"], "0")
    names = {"u:animal": "animal", "u:car": "car"}
    assert merge_feedback(log.entries(), names) == [TextFeedback("fox", ("car",), ("animal", "u:new"))]
    assert merge_feedback(merge_feedback(log.entries(), names)) == merge_feedback(log.entries(), names)


ADDING = """
import sys
from circlet.data.feedback import FeedbackLog
log, number = FeedbackLog(sys.argv[1]), 0
while True:
    print(log.add(f"text {number} " + "x" * 20000, ["label"], [], "0").id, flush=True)
    number += 1
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="wanted a signal that ends a process at once")
def test_nothing_acknowledged_is_lost_when_processes_are_killed(tmp_path):
    path, known = tmp_path / "log.jsonl", set()
    for _ in range(5):
        children = [
            subprocess.Popen([sys.executable, "-c", ADDING, str(path)], stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        for child in children:
            assert child.stdout is not None
            known |= {child.stdout.readline().strip() for _ in range(20)}
        for child in children:
            child.send_signal(signal.SIGKILL)
        for child in children:
            lines = child.communicate()[0].splitlines(keepends=True)
            known |= {line.strip() for line in lines if line.endswith("\n")}
        assert known <= {entry.id for entry in FeedbackLog(Path(path)).entries()}
    FeedbackLog(path).add("the end", ["label"], [], "0")


Y = sp.csr_matrix(np.array([[1, 0], [0, 1], [1, 1]], dtype=np.float32))
GIVEN = Dataset("d", Split(None, Y, ["a", "b", "c"]), Split(None, Y[:1], ["t"]), ["x", "y"])


def test_by_hand():
    feedback = [
        TextFeedback("c", ("new",), ("x", "unknown")),
        TextFeedback("d", ("y", "other"), ("x",)),
        TextFeedback("e", (), ("x",)),
    ]
    found = apply_feedback(GIVEN, feedback)
    assert found.label_names == ["x", "y", "new", "other"]
    assert found.train.texts == ["a", "b", "c", "d"]
    assert found.train.Y.toarray().tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 1, 0, 1]]
    assert found.train.Y.nnz == 6
    assert found.test is not None
    assert found.test.Y.toarray().tolist() == [[1, 0, 0, 0]]
    assert GIVEN.train.Y.toarray().tolist() == [[1, 0], [0, 1], [1, 1]]
    same = apply_feedback(GIVEN, [])
    assert same.label_names == ["x", "y"]
    assert (same.train.Y != Y).nnz == 0


def test_labels_with_uris():
    given = replace(GIVEN, label_uris=["u:x", "u:y"])
    feedback = [
        TextFeedback("a", ("u:y", "new"), ("u:x",)),
        TextFeedback("d", ("x",), ()),
        TextFeedback("d", ("u:y",), ("u:x",)),
    ]
    found = apply_feedback(given, feedback)
    assert found.label_names == ["x", "y", "new"]
    assert found.label_uris == ["u:x", "u:y", "new"]
    assert found.train.texts == ["a", "b", "c", "d"]
    assert found.train.Y.toarray().tolist() == [[0, 1, 1], [0, 1, 0], [1, 1, 0], [0, 1, 0]]


def test_rows_are_refused():
    rows = Dataset("rows", Split(sp.csr_matrix((3, 4), dtype=np.float32), Y), None, ["x", "y"])
    with pytest.raises(DataError, match="feedback needs texts with named labels"):
        apply_feedback(rows, [])
