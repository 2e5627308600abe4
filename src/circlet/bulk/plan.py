"""The plan of a run: all its blocks, and the options that decide what is written for them.

It is kept as `_plan.json` in the output folder, written once before any block is tagged and never changed. A
block is done if the file with its labels is there, under a name that only this block has: so a run that was killed
goes on with the blocks whose files are missing. The underscore keeps programs that read a folder of Parquet files
from taking the plan for one of them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

from circlet import files
from circlet.bulk.cutting import Block, File, unchanged
from circlet.errors import DataError, OutputError
from circlet.version import __version__

__all__ = ["PLAN", "Options", "Plan", "Task", "check_folder", "load_plan"]

PLAN = "_plan.json"
_FORMAT = "circlet plan 1"


@dataclass(frozen=True)
class Options:
    """What decides which labels are written, and where; the names are those of the command's options.

    Attributes
    ----------
    model : str
        The digest of the model, not its folder, which may be moved.
    """

    model: str
    k: int
    threshold: float | None
    favor_rare: float
    text_column: str
    format: str
    block_size: int


@dataclass(frozen=True)
class Task:
    """A block to tag: where its documents are, what they are called, and the file for their labels.

    Attributes
    ----------
    name : str
        What a document without an id is called, together with its line.
    part : str
        The name of the file to write.
    """

    file: File
    block: Block
    name: str
    part: str


@dataclass(frozen=True)
class Plan:
    """The options of a run, and its files with their blocks, in the order of the input."""

    options: Options
    files: Sequence[tuple[File, Sequence[Block]]]

    @property
    def integer_ids(self) -> bool:
        """Whether all documents have integers as ids, so that all Parquet files can have such a column."""
        return all(file.integer_ids or not blocks for file, blocks in self.files)

    def tasks(self) -> Iterator[Task]:
        """All blocks; the names of their parts sort in the order of the input."""
        names = _names([file.path for file, _ in self.files])
        for number, ((file, blocks), name) in enumerate(zip(self.files, names, strict=True)):
            identity = f"{name}\n{file.size}\n{file.changed}"
            digest = hashlib.sha256(identity.encode()).hexdigest()[:8]
            for position, block in enumerate(blocks):
                part = f"part-{number:05d}-{digest}-{position:05d}.{self.options.format}"
                yield Task(file, block, name, part)

    def save(self, folder: Path) -> None:
        """Write the plan into the output folder."""
        content = {
            "format": _FORMAT,
            "circlet": __version__,
            "options": asdict(self.options),
            "files": [{**asdict(file), "blocks": [*map(astuple, blocks)]} for file, blocks in self.files],
        }
        files.write_json(folder / PLAN, content)

    def check(self, folder: Path, options: Options, paths: Sequence[Path]) -> None:
        """Refuse to go on in `folder` with other options or other files than those of the plan.

        Raises
        ------
        DataError
            It names the first difference.
        """
        wanted = "wanted the same, to go on with that run, or another folder for the output"
        for name, now in asdict(options).items():
            if (then := getattr(self.options, name)) != now:
                values = "another model" if name == "model" else f"{_option(name)} {then}, and now {now}"
                raise DataError(f"{folder}: found a run with {values}; {wanted}")
        then, now = [file.path for file, _ in self.files], [str(path) for path in paths]
        if gone := next((path for path in then if path not in set(now)), None):
            raise DataError(f"{folder}: found a run with {gone}, which is not in the input now; {wanted}")
        if new := next((path for path in now if path not in set(then)), None):
            raise DataError(f"{folder}: found a run without {new}, which is in the input now; {wanted}")
        if then != now:
            raise DataError(f"{folder}: found a run with the same files in another order; {wanted}")
        for file, _ in self.files:
            unchanged(file)


def _option(name: str) -> str:
    return "-k" if name == "k" else f"--{name.replace('_', '-')}"


def _names(paths: Sequence[str]) -> list[str]:
    """Short names of files that are all different: their paths below the folder that all of them are in."""
    try:
        top = os.path.commonpath([os.path.dirname(path) for path in paths]) if paths else ""  # noqa: PTH120
    except ValueError:  # on several drives of Windows
        return [Path(path).as_posix() for path in paths]
    return [Path(path).relative_to(top).as_posix() for path in paths]


def check_folder(folder: Path) -> None:
    """Refuse an output folder with anything in it but a run."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(
            f"cannot write {folder}: found a file; wanted a folder, which gets a file for each block"
        )
    if folder.is_dir() and not (folder / PLAN).exists():
        others = (path.name for path in folder.iterdir() if not path.name.startswith("."))
        if other := next(others, None):
            raise OutputError(
                f"cannot write {folder}: found {other!r} and no {PLAN}; wanted an empty folder, or that of an "
                "earlier run"
            )


def load_plan(folder: Path) -> Plan | None:
    """The plan of the run whose output is in a folder; None if there is none.

    Raises
    ------
    DataError
        If it is damaged.
    """
    path = folder / PLAN
    if not path.exists():
        return None
    content: Any = files.read_json(path)
    try:
        if content["format"] != _FORMAT:
            raise ValueError(f"the format {content['format']!r}")
        options = Options(**content["options"])
        planned = []
        for about in content["files"]:
            blocks = [Block(*map(int, block)) for block in about.pop("blocks")]
            planned.append((File(**about), blocks))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"{path}: found no plan of this version ({error!r}); wanted another output folder"
        ) from error
    return Plan(options, planned)
