"""Documents and their ids come from every kind of input, in batches."""

from __future__ import annotations

import io
import json
import os
import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from circlet.cli import documents
from circlet.cli.console import DocumentBar
from circlet.cli.documents import Documents
from circlet.data import Dataset, Split
from circlet.data.matrices import write_matrices
from circlet.errors import DataError


@pytest.fixture
def bar():
    return DocumentBar(shown=False)


@pytest.fixture
def asked(monkeypatch, bar):
    """Answer all texts of an input; gives the batches, each a list of ids and texts."""
    monkeypatch.setattr(documents, "BATCH", 2)

    def run(data: Any, text_column: str = "text", stdin: bytes | None = None) -> list[list[tuple[Any, str]]]:
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        batches: list[list[tuple[Any, str]]] = []
        Documents([str(data)], text_column).answer_texts(
            lambda *batch: batches.append(list(zip(*batch, strict=True))), bar
        )
        return batches

    return run


def test_batches_of_a_file_and_of_a_stream(asked, bar, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": f"é {n}"}, ensure_ascii=False) + "\n" for n in range(5)), "utf-8")
    assert asked(path) == [[(0, "é 0"), (1, "é 1")], [(2, "é 2"), (3, "é 3")], [(4, "é 4")]]
    assert bar.read == bar.total == path.stat().st_size
    assert asked("-", stdin=b"a\nb\nc\n\n") == [[(0, "a"), (1, "b")], [(2, "c"), (3, "")]]


@pytest.mark.parametrize(
    ("content", "ids"),
    [
        ('{"text": "a", "id": "x"}\n{"text": "b"}\n{"text": "c", "id": 9}\n', ["x", 1, 9]),
        ("text,id\na,x\nb,\nc,9\n", ["x", 1, "9"]),
        ("id\ttext\nx\ta\n\t\n9\tc\n", ["x", 1, "9"]),
        ("text,labels\na,x\nb,y\nc,z\n", [0, 1, 2]),
        ("__label__x a\n\n__label__y b\nc\n", [0, 1, 2]),
    ],
)
def test_ids(asked, tmp_path, content, ids):
    (tmp_path / "a").write_text(content)
    for batches in (asked(tmp_path / "a"), asked("-", stdin=content.encode())):
        assert [identifier for batch in batches for identifier, _ in batch] == ids


def test_a_column_of_texts_called_id(asked):
    assert asked("-", text_column="id", stdin=b"id,text\na fox,x\n") == [[(0, "a fox")]]


def test_a_folder_gives_its_test_documents_without_their_labels(asked, tmp_path):
    (tmp_path / "train.jsonl").write_text("damaged, but nobody asked for it\n")
    (tmp_path / "test.jsonl").write_text('{"text": "a", "id": 7}\n')
    assert asked(tmp_path) == [[(7, "a")]]


def test_texts_beside_matrices(asked, bar, tmp_path):
    one = sp.csr_matrix(np.eye(3, dtype=np.float32))
    write_matrices(tmp_path, Dataset("a", Split(one, one)))
    (tmp_path / "train_raw_texts.txt").write_text("a\nb\nc\n")
    assert asked(tmp_path) == [[(0, "a"), (1, "b")], [(2, "c")]]
    assert bar.read == bar.total == 3


def test_documents_before_a_fault_are_answered(tmp_path, bar):
    (tmp_path / "a").write_text('{"text": "a"}\n{"text": "b"}\nbroken\n{"text": "c"}\n')
    answered: list[str] = []
    with pytest.raises(DataError, match=":3: found 'broken'"):
        Documents([str(tmp_path / "a")], "text").answer_texts(lambda ids, texts: answered.extend(texts), bar)
    assert answered == ["a", "b"]


def test_an_answer_that_fails_is_not_tried_again(monkeypatch, bar):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\n")))
    tries = []

    def fail(ids: Any, texts: Any) -> None:
        tries.append(texts)
        raise DataError("no such features")

    with pytest.raises(DataError, match="no such features"):
        Documents(["-"], "text").answer_texts(fail, bar)
    assert tries == [["a"]]


def test_a_closed_stdin(asked, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(DataError, match="cannot read stdin: it is closed"):
        asked("-")


class TestRows:
    @pytest.fixture
    def folder(self, tmp_path):
        train, test = (sp.csr_matrix(np.eye(n, 4, dtype=np.float32)) for n in (3, 5))
        write_matrices(tmp_path, Dataset("a", Split(train, train), Split(test, test)))
        return tmp_path

    def test_numbers_as_ids(self, monkeypatch, folder, bar):
        monkeypatch.setattr(documents, "BATCH", 2)
        found = []
        Documents([str(folder)]).answer_rows(
            lambda ids, rows: found.append((list(ids), rows.toarray().tolist())), bar
        )
        eye = np.eye(5, 4).tolist()
        assert found == [([0, 1], eye[:2]), ([2, 3], eye[2:4]), ([4], eye[4:])]
        assert bar.read == bar.total == 5

    @pytest.mark.parametrize(("name", "found"), [("-", "-, which reads texts"), ("a.jsonl", "JSONL text")])
    def test_texts_are_none_nor_are_rows_texts(self, asked, folder, monkeypatch, bar, name, found):
        monkeypatch.chdir(folder)
        (folder / "a.jsonl").write_text('{"text": "a", "labels": ["x"]}\n')
        with pytest.raises(DataError, match=f"found {found}; this model was trained on feature rows"):
            Documents([name]).answer_rows(print, bar)
        (folder / "a.jsonl").unlink()
        with pytest.raises(DataError, match=r"found npz matrices, .*; this model was trained on texts"):
            asked(folder)


@pytest.mark.skipif(os.name == "nt", reason="needs pipes of POSIX systems")
class TestPipes:
    def test_texts_of_a_pipe(self, asked):
        reader, writer = os.pipe()
        os.write(writer, b'{"text": "a", "id": "x"}\n{"text": "b"}\n')
        os.close(writer)
        try:
            assert asked(f"/dev/fd/{reader}") == [[("x", "a"), (1, "b")]]
        finally:
            os.close(reader)

    def test_a_faulty_line_of_a_named_pipe(self, asked, tmp_path):
        path = tmp_path / "pipe"
        os.mkfifo(path)
        # Opened for reading too, so that this does not wait for the other side.
        writer = os.open(path, os.O_RDWR)
        os.write(writer, b'{"text": "a"}\n{"text": 1}\n')
        try:
            with pytest.raises(DataError, match=r"pipe:2: found 'text' of type int"):
                asked(path)
        finally:
            os.close(writer)

    def test_feature_rows_need_a_file(self, bar, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(DataError, match="pipe: found a pipe or device; wanted a regular file"):
            Documents([str(tmp_path / "pipe")]).answer_rows(lambda *_: None, bar)


def test_several_files_and_folders(tmp_path, bar):
    """Plain texts are documents; their ids are whole paths, because names alone could be the same."""
    (tmp_path / "y" / "z").mkdir(parents=True)
    (tmp_path / "y" / "z" / "a.txt").touch()
    (tmp_path / "a.txt").write_text("a fox\nand a van\n")
    (tmp_path / "b.jsonl").write_text('{"text": "snow", "id": "s"}\n{"text": "rain"}\n')
    seen: list[Any] = []
    inputs = [str(tmp_path / name) for name in ("a.txt", "b.jsonl", "y")]
    Documents(inputs, "text").answer_texts(lambda ids, texts: seen.extend(zip(ids, texts, strict=True)), bar)
    assert bar.read == bar.total
    first, last = ((tmp_path / name).as_posix() for name in ("a.txt", "y/z/a.txt"))
    assert seen == [(first, "a fox\nand a van\n"), ("s", "snow"), (2, "rain"), (last, "")]
    with pytest.raises(DataError, match="found no file, folder or dataset called"):
        Documents([inputs[0], "nothing"]).answer_texts(lambda ids, texts: None, bar)
