"""Which format a file is in, by its content."""

from __future__ import annotations

import re
from pathlib import Path

from circlet.data.lines import bad, iter_text, peek, shown
from circlet.data.parquet import MAGIC
from circlet.data.plain import PLAIN
from circlet.data.records import Columns, header_delimiter
from circlet.errors import DataError

__all__ = ["ACCEPTED", "IN_WORDS", "UnrecognizedError", "is_annif", "recognize"]

ACCEPTED = (
    "a dataset's name; a folder with X.trn.npz and Y.trn.npz (or folders X.trn and Y.trn with their arrays, read "
    "from the disk as needed), with trn_X_Xf.txt and trn_X_Y.txt, with train.* and test.* files, "
    "with a data file and its *_trSplit.txt and *_tstSplit.txt, or with plain texts (.txt) and their labels "
    "beside them (.tsv or .key); or files: the Extreme Classification Repository's text, svmlight, JSONL, CSV, "
    "TSV, fastText, Annif TSV or Parquet"
)
IN_WORDS = {
    "xmc": "Extreme Classification Repository text",
    "svmlight": "svmlight multilabel text",
    "jsonl": "JSONL text",
    "csv": "CSV text",
    "tsv": "TSV text",
    "fasttext": "fastText lines",
    "annif": "Annif short-text TSV",
    "parquet": "Parquet",
    "plain": "plain text, a document per file",
}
_SVM_ROW = re.compile(
    rb"(?:[0-9]+(?:,[0-9]+)*)?(?:[ \t]+[0-9]+:\S+)*[ \t\r]*|[0-9]+:\S+(?:[ \t]+[0-9]+:\S+)*[ \t\r]*"
)


class UnrecognizedError(DataError):
    """There is nothing of that name, or a file is in no format that circlet knows."""


def recognize(path: Path | str, columns: Columns | None = None) -> str:
    """The format of one file, from its first lines: a key of `IN_WORDS`."""
    path, columns = Path(path), columns or Columns()
    start = peek(path)
    if not start.strip():
        raise bad(path, None, "an empty file", "data")
    if start.startswith((b"PK\x03\x04", b"\x93NUMPY")):
        raise bad(path, None, "a lone matrix", "the folder with X.trn.npz and Y.trn.npz")
    if start.startswith(MAGIC):
        return "parquet"
    if b"\0" in start:
        raise bad(path, None, "a binary file", ACCEPTED)
    # The last line may be cut off, unless it is the only one.
    lines = [line for line in start.split(b"\n") if line.strip()][:100]
    complete = lines[:-1] or lines
    if lines[0].lstrip().startswith(b"{"):
        return "jsonl"
    if re.fullmatch(rb"\s*[0-9]+\s+[0-9]+\s+[0-9]+\s*", lines[0]):
        return "xmc"
    if any(line.lstrip().startswith(b"__label__") for line in lines):
        return "fasttext"
    if all(line.startswith(b"#") or _SVM_ROW.fullmatch(line) for line in complete[:3]):
        return "svmlight"
    return _recognize_table(path, start, columns)


def _recognize_table(path: Path, start: bytes, columns: Columns) -> str:
    number, first = next(((at, line) for at, line in iter_text(path) if not line.isspace()), (1, ""))
    if mark := header_delimiter(first, columns.text):
        return "tsv" if mark == "\t" else "csv"
    if is_annif(first):
        return "annif"
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    guess = {".jsonl": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "tsv"}.get(suffix)
    if guess is None and re.match(rb"(?:\s*[0-9,]+)?\s+[0-9]+:", start):
        guess = "svmlight"  # its reader will say what is wrong with the row
    if guess is None and re.search(rb"\s__label__\S", start):
        guess = "fasttext"  # with its labels after the text
    if guess is None and suffix == PLAIN:
        guess = "plain"
    if guess is None:
        wanted = f"one of these: {', '.join(words for kind, words in IN_WORDS.items() if kind != 'plain')}"
        raise UnrecognizedError(str(bad(path, number, shown(first.strip()), wanted)))
    return guess


def is_annif(line: str) -> bool:
    """Whether a line is text, a tab, and subject URIs."""
    _, tab, uris = line.rstrip("\r\n").partition("\t")
    return bool(tab) and all(re.fullmatch(r"<\S+>|\S+:\S+", uri) for uri in uris.split())
