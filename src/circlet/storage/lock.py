"""One writer at a time: a process that writes into a model's folder holds a lock until it exits.

Readers need no lock, since `config.json` is replaced atomically and lists the files that belong to it.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from circlet import files
from circlet.errors import OutputError
from circlet.storage.layout import LOCK

__all__ = ["writing"]

log = logging.getLogger(__name__)

#: Seconds that a writer waits for another one.
PATIENCE = 5.0
#: Seconds between two attempts.
_PAUSE = 0.02
#: The folders that each thread has locked: training holds the lock when it saves the model in the end.
_held = threading.local()


@contextmanager
def writing(
    folder: Path, patience: float = PATIENCE, wait: Callable[[float], object] = time.sleep
) -> Iterator[None]:
    """Lock a folder against other writers, processes and threads; create it if needed.

    First, unfinished files of killed processes are removed. In the end, a new folder is removed if it is empty.

    Parameters
    ----------
    folder : Path
    patience : float
        Seconds to wait for another writer; then raise an `OutputError` that names it.
    wait : callable
        Waits for some seconds between two attempts.
    """
    held: set[Path] = _held.__dict__.setdefault("folders", set())
    place = Path(os.path.realpath(files.followed(folder)))  # `resolve` fails where a link leads to itself
    if place in held:
        yield
        return
    new = [path for path in (place, *place.parents) if not path.exists()]
    try:
        files.prepare_folder(folder)
        with _locked(folder, patience, wait):
            files.remove_leftovers(folder)
            held.add(place)
            try:
                yield
            finally:
                held.remove(place)
    finally:
        with suppress(OSError):  # stops at the first non-empty folder
            for path in new:
                path.rmdir()


@contextmanager
def _locked(folder: Path, patience: float, wait: Callable[[float], object]) -> Iterator[None]:
    path, deadline = folder / LOCK, time.monotonic() + patience
    while (file := _attempt(path)) is None:
        if time.monotonic() >= deadline:
            raise OutputError(
                f"cannot write {folder}: {_holder(path)} is writing into it; wait for it to end, or choose "
                "another folder"
            )
        wait(_PAUSE)
    try:
        yield
    finally:
        # Removed before unlocking, where possible, so that no other process locks a removed file.
        with suppress(OSError):
            path.unlink()
        os.close(file)
        if os.name == "nt":
            with suppress(OSError):
                path.unlink()


def _attempt(path: Path) -> int | None:
    """Return the locked file, or None if another process has it."""
    if path.exists() and not path.is_file():
        raise OutputError(f"cannot write {path}: found a folder, pipe or device; remove it to write here")
    try:
        # Never through a link, whose target would be overwritten.
        file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except FileNotFoundError:  # another process removed its new, empty folder
        files.prepare_folder(path.parent)
        return None
    except OSError as error:
        if os.name == "nt" and isinstance(error, PermissionError):
            return None  # the file is being removed
        raise OutputError(f"cannot write {path}: {error.strerror}; wanted to lock the folder") from error
    if not _is_locked(file, path):
        os.close(file)
        return None
    since = datetime.now().astimezone().isoformat(" ", "seconds")
    with suppress(OSError):  # on a full disk, the lock has no owner's name, and the next write reports the error
        os.ftruncate(file, 0)
        os.write(file, json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}).encode())
    return file


def _is_locked(file: int, path: Path) -> bool:
    """Try to lock an open file; return False if it is locked, or no longer the file at this path."""
    try:
        files.lock(file)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as error:
        log.warning("%s: the folder can't be locked here (%s); keep others from writing", path, error.strerror)
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _holder(path: Path) -> str:
    """Describe the process that holds the lock."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return f"process {found['pid']} on {found['host']}, since {found['since']},"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
