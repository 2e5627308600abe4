"""Folders as dictionaries, which are cheap to damage, and their way to a disk."""

from __future__ import annotations

import os
import shutil
from enum import Enum
from pathlib import Path
from random import Random
from typing import TypeAlias


class Special(Enum):
    """What can stand in place of a file."""

    FIFO = "FIFO"
    FOLDER = "folder"
    ZERO = "link to /dev/zero"
    FULL = "link to /dev/full"
    RANDOM = "link to /dev/urandom"
    NULL = "link to /dev/null"
    TTY = "link to /dev/tty"
    LOOP = "link to itself"
    DANGLING = "link to nothing"
    PARENT = "link to its folder"


#: The content of each file by its path in the folder.
Tree: TypeAlias = dict[str, bytes | Special]


def read_tree(folder: Path) -> Tree:
    """All files of a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def write_tree(tree: Tree, folder: Path) -> None:
    """Write a folder, in place of any that is there."""
    _remove(folder)
    folder.mkdir(parents=True)
    for name, content in tree.items():
        path = folder / name
        if path.parent != folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Special):
            _make(content, path)
        else:
            path.write_bytes(content)


def replace_folder(folder: Path, random: Random) -> tuple[str, str]:
    """Put something else in place of a folder; returns what it was, and what is there now."""
    _remove(folder)
    special = random.choice([None, *Special])
    if special is None:
        folder.write_bytes(b"")
    else:
        _make(special, folder)
    return "folder", "is an empty file" if special is None else f"is a {special.value}"


def _remove(folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)
    else:
        folder.unlink(missing_ok=True)


def _make(special: Special, path: Path) -> None:
    if special is Special.FIFO:
        os.mkfifo(path)
    elif special is Special.FOLDER:
        path.mkdir()
    elif special is Special.LOOP:
        path.symlink_to(path.name)
    elif special is Special.DANGLING:
        path.symlink_to("nowhere")
    elif special is Special.PARENT:
        path.symlink_to(".")
    else:
        path.symlink_to(special.value.removeprefix("link to "))
