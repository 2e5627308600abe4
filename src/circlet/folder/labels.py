"""`labels.txt` and `uris.txt`: the names or URIs of the labels, one a line, in the order of their numbers."""

from __future__ import annotations

from pathlib import Path

from circlet import files
from circlet.data.dataset import check_label_names
from circlet.errors import DataError

__all__ = ["labels_text", "read_labels"]


def labels_text(names: list[str], n_labels: int, where: str = "label_names") -> str:
    """The file's content; names that could not be told apart when it is read raise `DataError`.

    Its message starts with `where`, which says what these names are.
    """
    text = "".join(f"{name}\n" for name in names)
    _check(names, text, n_labels, where)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: found a label name that is not text ({error.reason})") from error
    return text


def read_labels(path: Path, n_labels: int) -> list[str]:
    """The names in a file, which may be gzipped."""
    content = files.read_bytes(path, "label names")
    lines = content.count(b"\n")
    if lines != n_labels:  # before anything is made of a number that a configuration claims
        raise DataError(f"{path}: found {lines} label names; wanted {n_labels}")
    try:
        text = content.decode()
    except ValueError as error:
        raise DataError(f"{path}: found no readable label names ({error})") from error
    if not text.endswith("\n"):
        raise DataError(f"{path}: found a last name without a line end; wanted one after each of {n_labels} names")
    names = text.split("\n")[:-1]
    _check(names, text, n_labels, str(path))
    return names


def _check(names: list[str], text: str, n_labels: int, where: str) -> None:
    # Looking at each of a million names takes seconds, so that is done only if something is wrong with one.
    lines = len(names) == n_labels == text.count("\n") and not any(each in text for each in "\t\r\0")
    if not lines or not all(map(str.strip, names)) or len(set(names)) != len(names):
        check_label_names(names, n_labels, where)
