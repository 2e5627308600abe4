"""Feedback of users about the labels of texts, in an append-only log.

The log is a file of JSON lines. The first line states the format; each further line is a record. A record is
acknowledged only after all of it is on disk:

    {"circlet_feedback": 1}
    {"id": "…", "time": "…", "text": "…", "accepted": ["…"], "rejected": ["…"], "version": "0"}
    {"id": "…", "time": "…", "undo": "the id of an earlier record"}

Records never change. A killed process may leave an incomplete, unacknowledged record at the end: readers ignore
it, and the next append removes it. Any other damage raises `DataError`.

`apply_feedback` applies feedback to a dataset.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from circlet import files
from circlet.data.dataset import SURROGATE, Dataset, Split, label_fault, names_by_uri, widen
from circlet.errors import DataError, OutputError, ParameterError, bad, shown

#: The first line of every log, with the format's version.
HEADER = b'{"circlet_feedback": 1}\n'
#: The type of each field of a record.
_ENTRY = {"id": str, "time": str, "text": str, "accepted": list, "rejected": list, "version": str}
_UNDO = {"id": str, "time": str, "undo": str}


@dataclass(frozen=True)
class Entry:
    """One user's feedback about a text: the labels that apply and those that do not.

    It says nothing about other labels. `version` is the version of the model that made the suggestions.
    """

    id: str
    time: str
    text: str
    accepted: tuple[str, ...]
    rejected: tuple[str, ...]
    version: str
    undone: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return the entry as a dictionary for JSON."""
        return {**vars(self), "accepted": list(self.accepted), "rejected": list(self.rejected)}


class TextFeedback(NamedTuple):
    """A text with its accepted and rejected labels."""

    text: str
    accepted: tuple[str, ...]
    rejected: tuple[str, ...]


def merge_feedback(
    entries: Iterable[Entry | TextFeedback], names: Mapping[str, str] | None = None
) -> list[TextFeedback]:
    """Combine entries about the same text; for each label, the last entry that names it decides.

    The texts are in the order of their first entries. `names` has label names by the alternative names that
    entries may use, such as URIs.
    """
    names, texts = names or {}, dict[str, dict[str, bool]]()
    for entry in entries:
        labels = texts.setdefault(entry.text, {})
        labels |= {names.get(label, label): True for label in entry.accepted}
        labels |= {names.get(label, label): False for label in entry.rejected}
    return [
        TextFeedback(
            text, *(tuple(label for label in labels if labels[label] is wanted) for wanted in (True, False))
        )
        for text, labels in texts.items()
    ]


def apply_feedback(dataset: Dataset, feedback: Iterable[Entry | TextFeedback]) -> Dataset:
    """Add feedback to the training documents.

    Training documents with the same text gain the accepted labels and lose the rejected ones. Any other text
    becomes a new document with its accepted labels; a text with no accepted labels is skipped.

    Feedback may refer to a label by name or URI. New labels come last; their names are also their URIs.
    """
    train, names, uris = dataset.train, dataset.label_names, dataset.label_uris
    if train.texts is None or train.X is not None or names is None:
        raise DataError(
            f"{dataset.source or dataset.name}: found {dataset.format}; feedback needs texts with named labels"
        )
    texts = {each.text: each for each in merge_feedback(feedback, names_by_uri(names, uris))}
    columns = {name: column for column, name in enumerate(names)}
    for each in texts.values():
        for label in each.accepted:
            columns.setdefault(label, len(columns))
    places = [row for row, text in enumerate(train.texts) if text in texts]
    known = {train.texts[row] for row in places}
    new = [each for each in texts.values() if each.text not in known and each.accepted]
    Y = widen(train.Y, len(columns)).tolil() if places else widen(train.Y, len(columns))
    for row in places:
        each = texts[train.texts[row]]
        Y[row, [columns[label] for label in each.accepted]] = 1
        Y[row, [columns[label] for label in each.rejected if label in columns]] = 0
    places_of_new = [(row, columns[label]) for row, each in enumerate(new) for label in each.accepted]
    entries = (np.ones(len(places_of_new), np.float32), np.array(places_of_new, dtype=np.int64).reshape(-1, 2).T)
    added = sp.csr_matrix(entries, shape=(len(new), len(columns)))
    together = sp.vstack([sp.csr_matrix(Y, dtype=np.float32), added], format="csr")
    together.eliminate_zeros()
    together.sort_indices()
    test, ids = dataset.test, train.ids
    if ids is not None:
        ids = [*ids, *(f"feedback {number}" for number in range(len(new)))]
    return replace(
        dataset,
        train=Split(None, together, [*train.texts, *(each.text for each in new)], ids),
        test=None if test is None else Split(test.X, widen(test.Y, len(columns)), test.texts),
        label_names=list(columns),
        label_uris=None if uris is None else [*uris, *list(columns)[len(uris) :]],
    )


class FeedbackLog:
    """A log of feedback in one file; several threads and processes may append to it.

    Parameters
    ----------
    path : Path or str
        The file is created with the first entry.
    records : int, optional
        Read only the first `records` records; the log is then read-only.
    patience : float
        Seconds to wait for another process that is appending.
    """

    def __init__(self, path: Path | str, records: int | None = None, patience: float = 10.0) -> None:
        self.path, self._most, self._patience = Path(path), records, patience
        self._mutex = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._records, self._lines, self._read = 0, 0, 0
        self._refresh()

    def __len__(self) -> int:
        """Return the number of records, including undo records."""
        with self._mutex:
            self._refresh()
            return self._records

    def entries(self, active_only: bool = True) -> list[Entry]:
        """Return the entries in the order of arrival, with the undone ones only if `active_only` is False."""
        with self._mutex:
            self._refresh()
            return [entry for entry in self._entries.values() if not (active_only and entry.undone)]

    def snapshot(self) -> tuple[int, list[Entry]]:
        """Return the number of records, and the entries that are active after these records."""
        with self._mutex:
            self._refresh()
            return self._records, [entry for entry in self._entries.values() if not entry.undone]

    def add(self, text: str, accepted: Iterable[str], rejected: Iterable[str], version: str) -> Entry:
        """Append an entry and return it once it is on disk."""
        labels = {"accepted": list(accepted), "rejected": list(rejected)}
        record = {**_stamp(), "text": text, **labels, "version": version}
        if fault := next(_faults(record), None):
            raise ParameterError(f"feedback: found {fault[0]}; wanted {fault[1]}")
        with self._mutex:
            self._append(record)
            return self._entries[record["id"]]

    def undo(self, entry: str) -> Entry:
        """Undo the entry with this id: append a record and return the entry once the record is on disk."""
        with self._mutex:
            self._append({**_stamp(), "undo": entry})
            return self._entries[entry]

    def _append(self, record: dict[str, Any]) -> None:
        if self._most is not None:
            found = f"a log of which only the first {self._most} records are read"
            raise ParameterError(f"{self.path}: found {found}; wanted the whole log")
        line = json.dumps(record, ensure_ascii=False).encode() + b"\n"
        files.prepare_folder(self.path.parent)
        with self._locked() as file:
            self._refresh()
            if "undo" in record:
                known = self._entries.get(record["undo"])
                if known is None or known.undone:
                    state = "an entry that is undone already" if known else "no such entry"
                    raise ParameterError(
                        f"cannot undo {shown(str(record['undo']))}: found {state}; wanted an active entry"
                    )
            new = self._read == 0
            _write_at(file, self._read, (HEADER if new else b"") + line, self.path)
            if new and os.name != "nt":  # a new file's name must be synced too, except on Windows
                folder = os.open(self.path.parent, os.O_RDONLY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
        self._refresh()

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Open the file and lock it against other processes and threads."""
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
        except OSError as error:
            raise OutputError(f"cannot write {self.path}: {error.strerror}") from error
        deadline = time.monotonic() + self._patience
        try:
            while True:
                try:
                    files.lock(file)
                    break
                except (BlockingIOError, PermissionError) as error:
                    if time.monotonic() >= deadline:
                        raise OutputError(
                            f"cannot write {self.path}: another process has had it for {self._patience:g} s; "
                            "try again"
                        ) from error
                    time.sleep(0.005)
            yield file
        finally:
            os.close(file)

    def _refresh(self) -> None:
        """Read the records that were appended since the last read."""
        if not self.path.exists() and not self._read:
            return
        size = files.check_regular(self.path, "feedback log")
        if size < self._read:
            raise DataError(
                f"{self.path}: found {size:,} bytes; wanted at least the {self._read:,} that were there before: "
                "a feedback log only grows"
            )
        with self.path.open("rb") as stream:
            stream.seek(self._read)
            content = stream.read()
        for line in content.splitlines(keepends=True):
            # A line without an end is from a process that was killed or is still writing.
            if not line.endswith(b"\n") or self._records == self._most:
                return
            self._take(line)
            self._read, self._lines = self._read + len(line), self._lines + 1

    def _take(self, line: bytes) -> None:
        number = self._lines + 1
        if number == 1:
            if line != HEADER:
                raise bad(self.path, 1, shown(line), f"{HEADER.decode().strip()}, which starts a feedback log")
            return
        try:
            record = files.parse_json(line.decode())
        except (ValueError, RecursionError) as error:
            raise bad(self.path, number, f"no readable record ({error})", "a line of JSON") from error
        if fault := next(_faults(record), None):
            raise bad(self.path, number, *fault)
        if "undo" in record:
            known = self._entries.get(record["undo"])
            if known is None or known.undone:
                raise bad(self.path, number, f"an undo of {shown(record['undo'])}", "the id of an active entry")
            self._entries[known.id] = replace(known, undone=True)
        elif record["id"] in self._entries:
            raise bad(self.path, number, f"the id {shown(record['id'])} again", "a new one")
        else:
            labels = {name: tuple(dict.fromkeys(record[name])) for name in ("accepted", "rejected")}
            self._entries[record["id"]] = Entry(**{**record, **labels})
        self._records += 1


def _stamp() -> dict[str, Any]:
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    return {"id": uuid.uuid4().hex, "time": now}


def _faults(record: Any) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a record and what was wanted."""
    kinds = _UNDO if isinstance(record, dict) and "undo" in record else _ENTRY
    if not isinstance(record, dict) or record.keys() != kinds.keys():
        yield shown(json.dumps(record, ensure_ascii=False)), f"an object with {', '.join(kinds)}"
        return
    for name, kind in kinds.items():
        if not isinstance(record[name], kind):
            yield f"{shown(repr(record[name]))} as `{name}`", "a list" if kind is list else "text"
    if kinds is _UNDO:
        return
    if not record["text"].strip():
        yield "a text without a visible character", "at least one"
    if SURROGATE.search(record["text"]):
        yield "half of a surrogate pair in the text", "text that UTF-8 can hold"
    labels = [*record["accepted"], *record["rejected"]]
    if not labels:
        yield "neither an accepted nor a rejected label", "at least one"
    for label in labels:
        if not isinstance(label, str):
            yield f"the label {shown(repr(label))}", "text"
        elif fault := label_fault(label):
            yield fault
    if both := set(record["accepted"]) & set(record["rejected"]):
        yield f"{shown(min(both))} both accepted and rejected", "one of them"


def _write_at(file: int, place: int, content: bytes, path: Path) -> None:
    """Write `content` after the valid part of a file and sync it to disk; on failure, nothing is added."""
    try:
        os.ftruncate(file, place)  # removes the incomplete record of a killed process
        os.lseek(file, place, os.SEEK_SET)
        written = 0
        while written < len(content):
            written += os.write(file, content[written:])
        os.fsync(file)
    except OSError as error:
        with suppress(OSError):  # if this fails too: readers ignore a line without an end
            os.ftruncate(file, place)
        full = error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
        what = "the disk is full; nothing was recorded" if full else f"{error.strerror}; nothing was recorded"
        raise OutputError(f"cannot write {path}: {what}") from error
