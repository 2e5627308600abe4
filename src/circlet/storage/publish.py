"""Write a model into its folder atomically, one writer at a time.

**Publication.** Files are written under new names first, then `config.json`, which lists them. Until `config.json`
is replaced, the folder has the old model; from then on, the new one. Files that a killed process leaves behind are
not listed, and the next writer removes them.

**Lock.** A process that writes into a folder holds a lock until it exits. Readers need no lock.
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
from typing import Any

from circlet import files
from circlet.errors import DataError, OutputError
from circlet.storage.layout import (
    CARD,
    CONFIG,
    DECIDED,
    LOCK,
    RUN,
    described,
    is_checkpoint,
    located,
    model_files,
    name_in,
    read_config,
    sealed,
)

log = logging.getLogger(__name__)


class Publication:
    """A model being written; `generation` is its number among all models that the folder ever had, from 1."""

    def __init__(self, folder: Path, generation: int) -> None:
        self.folder, self.generation = folder, generation
        self.paths: dict[str, Path] = {}

    def path(self, name: str, *, zipped: bool = False) -> Path:
        """Return the path where the caller writes a file of the model."""
        self.paths[name] = self.folder / name_in(self.generation, name, zipped=zipped)
        return self.paths[name]

    def commit(self, config: dict[str, Any], card: str) -> None:
        """Replace the folder's model; `config` is complete except for the list of files.

        The card always has the same name, so it is not listed, and is replaced after the model.
        """
        listed = {name: described(path) for name, path in self.paths.items()}
        whole = {**config, "generation": self.generation, "files": listed}
        files.write_json(self.folder / CONFIG, sealed(whole))
        try:
            files.write_text(self.folder / CARD, card)
        except OutputError as error:  # the model itself is complete
            log.warning("%s", error)


@contextmanager
def publishing(folder: Path) -> Iterator[Publication]:
    """Write a model: the body writes the files and commits; if it fails, the old model stays."""
    with folder_lock(folder):
        new = Publication(folder, new_generation(folder))
        try:
            yield new
        finally:
            # Ask the folder: Ctrl-C may come just after `config.json` was replaced, before a flag could be set.
            if _generation(folder) == new.generation:
                _remove_others(folder, set(new.paths.values()))
                remove_run(folder)
            else:
                for path in new.paths.values():
                    _remove(path)


def new_generation(folder: Path) -> int:
    """Return a number for the next model in a folder that no file has yet; 1 if there is no model."""
    if not (folder / CONFIG).exists():
        return 1
    return 1 + max(_generation(folder), *(number for _, number in model_files(folder)), 1)


def settle(folder: Path) -> bool:
    """Clean up after a killed process; return whether its run had already saved the model.

    Files of models that were not committed, or were replaced, are removed.
    """
    try:
        config = read_config(folder)
    except DataError:
        return False
    _remove_others(folder, {located(folder, config, name) for name in config["files"]})
    try:
        run = files.read_json(folder / RUN)
    except DataError:
        return False  # there is no run, or resuming it will raise the error
    number = run.get("generation") if isinstance(run, dict) else None
    finished = type(number) is int and number <= config["generation"]
    if finished:
        remove_run(folder)
    return finished


def remove_run(folder: Path) -> None:
    """Remove the files of a finished run; its description last, because resuming needs it."""
    for path in folder.glob("checkpoint*.safetensors"):
        if is_checkpoint(path.name):
            _remove(path)
    for name in (DECIDED, RUN):
        _remove(folder / name)


def _generation(folder: Path) -> int:
    """Return the number of the model in a folder; 0 if its configuration has none."""
    try:
        config = files.read_json(folder / CONFIG)
    except DataError:
        return 0
    found = config.get("generation") if isinstance(config, dict) else None
    return found if type(found) is int and 0 < found < 10**17 else 0


def _remove_others(folder: Path, own: set[Path]) -> None:
    for path, _ in list(model_files(folder)):
        if path not in own:
            _remove(path)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:  # in use, on some systems; the next save tries again
        log.info("%s could not be removed (%s)", path, error.strerror)


# The lock

#: Seconds that a writer waits for another one.
PATIENCE = 5.0
#: The folders that each thread has locked: training holds the lock when it saves the model in the end.
_held = threading.local()


@contextmanager
def folder_lock(
    folder: Path, patience: float = PATIENCE, wait: Callable[[float], object] = time.sleep
) -> Iterator[None]:
    """Lock a folder against other writers, processes and threads; create it if needed.

    First, unfinished files of killed processes are removed. In the end, a new folder is removed if it is empty.
    After `patience` seconds of waiting for another writer, an `OutputError` names it.
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
            try:
                found = json.loads(path.read_text(encoding="utf-8"))
                holder = f"process {found['pid']} on {found['host']}, since {found['since']},"
            except (OSError, ValueError, KeyError, TypeError):
                holder = "another process"
            raise OutputError(
                f"cannot write {folder}: {holder} is writing into it; wait for it to end, or choose another folder"
            )
        wait(0.02)
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
