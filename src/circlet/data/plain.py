"""Plain texts, a document in each file, and their labels in files beside them, as in Annif's full-text corpora.

Beside `report.txt`, its labels are in `report.tsv`, a line for each: a URI with or without angle brackets, and
maybe a tab and its name; or in `report.key`, a name on each line. The path of the text file within the folder is
the document's id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from circlet.data.dataset import label_fault
from circlet.data.lines import MAX_LINE, bad, explained, iter_text, open_bytes, shown, writing
from circlet.data.records import Record
from circlet.errors import DataError

__all__ = ["LABELS", "PLAIN", "iter_texts", "text_files", "write_texts"]

#: What the names of plain texts end in.
PLAIN = ".txt"
#: What the names of files with their labels end in; the first that is there counts.
LABELS = (".tsv", ".key")


def text_files(path: Path) -> list[Path]:
    """The plain texts of a folder and of the folders in it, in the order of their names; or the one file itself.

    What is hidden, like the content of `.git`, is left out.
    """
    if path.is_dir():
        texts = (each for each in path.rglob("*") if each.suffix.lower() == PLAIN and each.is_file())
        return sorted(each for each in texts if not any(_is_hidden(part) for part in each.relative_to(path).parts))
    return [path] if path.is_file() else []


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def iter_texts(
    path: Path, *, need_labels: bool = True, progress: Callable[[int], object] | None = None
) -> Iterator[Record]:
    """The documents of a folder, or of one file; without the labels of any, if they are not needed.

    If they are, documents without a file of labels are left out. `progress` is told the bytes of each document.
    """
    found = False
    for number, file in enumerate(text_files(path), 1):
        labels = _labels_of(file) if need_labels else ()
        if labels is None:
            continue
        found = True
        text = _read(file)
        if progress is not None:
            progress(len(text))
        yield Record(number, text, labels, file.relative_to(path).as_posix() if path.is_dir() else file.name)
    if not found:
        wanted = "its labels beside it: those of a.txt in a.tsv or a.key"
        raise bad(path, None, "plain text without labels", wanted)


def write_texts(folder: Path, records: Iterable[Record]) -> None:
    """Write documents to a folder, a text and a file of labels (`.key`) for each."""
    for number, record in enumerate(records, 1):
        name = str(record.id or f"{number:06}.txt")
        with writing(folder / name) as out:
            out.write(record.text.encode())
        with writing((folder / name).with_suffix(".key")) as out:
            out.writelines(f"{label}\n".encode() for label in record.labels)


def _read(path: Path) -> str:
    content = bytearray()
    with explained(path), open_bytes(path) as stream:
        while block := stream.read(1 << 20):
            content += block
            if len(content) > MAX_LINE:
                raise bad(path, None, f"more than {MAX_LINE:,} bytes", "the text of one document")
    if b"\0" in content:
        raise bad(path, None, "a zero byte (a binary file?)", "text")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: found byte 0x{content[error.start]:02x}; wanted UTF-8 text") from error


def _labels_of(path: Path) -> tuple[str, ...] | None:
    """The labels beside a text; None if there is no file of them."""
    for ending in LABELS:
        file = path.with_suffix(ending)
        if not file.is_file():
            continue
        labels = []
        for number, line in iter_text(file) if file.stat().st_size else ():
            label = line.rstrip("\r\n").partition("\t")[0] if ending == ".tsv" else line.strip()
            if line.isspace():
                continue
            label = label[1:-1] if label[:1] + label[-1:] == "<>" else label
            if fault := label_fault(label):
                raise bad(file, number, *f"{shown(label)}, {fault}".split("; wanted ", 1))
            labels.append(label)
        return tuple(dict.fromkeys(labels))
    return None
