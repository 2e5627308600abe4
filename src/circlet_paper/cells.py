"""Cells: the measurements that an experiment on real data consists of, each in its own JSON file.

The JSON files are below `OUTPUT/cells`. `run_cells` measures the cells that have none yet, so an interrupted run
continues where it stopped. `collect` reads them back; pages and pictures are made from them alone. Experiments may
share cells: a cell that one has measured is not measured again for another.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from circlet import files
from circlet.data import catalog
from circlet.errors import CircletError, DataError, ParameterError
from circlet.identity import Identity

if TYPE_CHECKING:
    from circlet.data import Dataset
    from circlet.training import Reporter

logger = logging.getLogger(__name__)

Result = dict[str, Any]


@dataclass(frozen=True)
class Workplace:
    """Where cells are measured.

    Parameters
    ----------
    data : Path or None
        A folder with a subfolder for each dataset, searched before the catalog's own.
    device : str
        A name that `circlet.training.resolve_device` accepts.
    features : Path or None
        A folder with a subfolder of dense features for each dataset that has some.
    """

    data: Path | None = None
    device: str = "auto"
    features: Path | None = None

    def places(self, dataset: str) -> list[Path]:
        """The folders in which a dataset is looked for."""
        return [folder / dataset for folder in (self.data, catalog.data_folder()) if folder is not None]

    def folder(self, dataset: str) -> Path | None:
        """The dataset's folder; None if there is none, and it is not built from what is installed."""
        found = next((place for place in self.places(dataset) if place.is_dir()), None)
        if found is None and dataset in catalog.ENTRIES and catalog.is_local(dataset):
            return catalog.locate(dataset)
        return found

    def missing(self, dataset: str) -> str | None:
        """Where a missing dataset was looked for and how to get it; None if it was found."""
        if self.folder(dataset) is not None or (dataset in catalog.ENTRIES and catalog.is_local(dataset)):
            return None
        looked = " or ".join(str(place) for place in self.places(dataset))
        known = catalog.ENTRIES.get(dataset)
        if known is None:
            how = "put its X.trn.npz, Y.trn.npz, X.tst.npz and Y.tst.npz there"
        else:
            how = f"circlet datasets fetch {dataset}" if known.sdist else catalog.where_to_get(dataset)
        return f"{dataset}: found no folder {looked}; {how}"

    def load(self, dataset: str) -> Dataset:
        """Read a dataset; the last one is cached."""
        if line := self.missing(dataset):
            raise DataError(line)
        return _load(self.folder(dataset) or catalog.locate(dataset))


@lru_cache(maxsize=1)
def _load(folder: Path) -> Dataset:
    from circlet.data import load_dataset

    return load_dataset(folder)


class Cell(Protocol):
    """One measurement."""

    @property
    def name(self) -> str:
        """Path of its JSON file below the folder of cells, without the suffix."""

    def about(self) -> Result:
        """Everything that determines its numbers, ready for JSON."""

    def missing(self, workplace: Workplace) -> str | None:
        """What it needs and the workplace lacks, as one line of text; None if it can be measured."""

    def measure(self, workplace: Workplace, reporter: Reporter | None) -> Result:
        """Measure it; the numbers are ready for JSON."""


class Watcher:
    """Receives the progress of a run of cells; the command line shows it."""

    def start(self, done: int, total: int) -> None:
        """The run starts; `done` of the `total` cells are stored already or can't be measured here."""

    def begin(self, cell: Cell) -> AbstractContextManager[Reporter | None]:
        """A cell starts; the context's reporter receives its epochs. Not called when several run at once."""
        return nullcontext()

    def end(self, cell: Cell) -> None:
        """A cell has ended, measured or failed."""

    def note(self, line: str) -> None:
        """Show a line to the user."""
        logger.warning("%s", line)


def path_of(cell: Cell, folder: Path) -> Path:
    """The path of a cell's JSON file."""
    return folder / "cells" / f"{cell.name}.json"


def read(cell: Cell, folder: Path) -> Result | None:
    """A cell's stored numbers; None if there are none or they were measured with other settings."""
    path = path_of(cell, folder)
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        logger.warning("%s: found no readable JSON (%s); the cell counts as not measured", path, error)
        return None
    about = stored.get("about") if isinstance(stored, dict) else None
    other = Identity(cell.about()).differences(about) if isinstance(about, dict) else ["no settings"]
    if other:
        logger.info("%s: found %s; the cell counts as not measured", path, ", ".join(map(str, other)))
        return None
    found: Result = stored
    return found


def collect(experiment: str, settings: Any, cells: Sequence[Cell], folder: Path) -> Result:
    """The result of an experiment: its stored cells, in order."""
    stored = (read(cell, folder) for cell in cells)
    return {
        "experiment": experiment,
        "settings": asdict(settings),
        "cells": [content for content in stored if content is not None],
    }


def run_cells(
    cells: Sequence[Cell],
    folder: Path,
    workplace: Workplace,
    *,
    jobs: int = 1,
    watcher: Watcher | None = None,
) -> list[str]:
    """Measure the cells that are not stored in `folder` yet.

    Parameters
    ----------
    cells : sequence of Cell
        Those of one dataset next to each other, so that it is read only once.
    folder : Path
    workplace : Workplace
        The watcher gets a note about what it lacks; the other cells are measured.
    jobs : int
        Number of processes.
    watcher : Watcher, optional

    Returns
    -------
    list of str
        Names of the cells that failed; the watcher got a note about each.

    Raises
    ------
    DataError
        If no cell is stored and none can be measured.
    """
    watcher = watcher or Watcher()
    if twice := [name for name, count in Counter(cell.name for cell in cells).items() if count > 1]:
        raise ParameterError(f"wanted cells with different names; found {twice[0]!r} more than once")
    pending = [cell for cell in cells if read(cell, folder) is None]
    lacking = {cell.name: cell.missing(workplace) for cell in pending}
    for line in dict.fromkeys(line for line in lacking.values() if line):
        watcher.note(line)
    ready = [cell for cell in pending if lacking[cell.name] is None]
    if pending and not ready and len(pending) == len(cells):
        raise DataError("found none of the datasets; wanted at least one in the folder given by --data")
    watcher.start(len(cells) - len(ready), len(cells))
    if jobs > 1 and len(ready) > 1:
        return _run_at_once(ready, folder, workplace, min(jobs, len(ready)), watcher)
    failed = []
    for cell in ready:
        try:
            with watcher.begin(cell) as reporter:
                _measure(cell, folder, workplace, reporter)
        except CircletError as error:
            failed.append(_failure(cell, error, watcher))
        watcher.end(cell)
    return failed


def _run_at_once(
    cells: Sequence[Cell], folder: Path, workplace: Workplace, jobs: int, watcher: Watcher
) -> list[str]:
    # Not fork: a process that has used a GPU or threads can't be forked safely.
    pool = ProcessPoolExecutor(
        jobs,
        mp_context=get_context("spawn"),
        initializer=_share_cores,
        initargs=(max(1, (os.cpu_count() or 1) // jobs),),
    )
    failed = []
    try:
        # Experiments list small datasets first. Start with the large ones, so that no process ends long after the
        # others.
        running: dict[Future[None], Cell] = {
            pool.submit(_measure, cell, folder, workplace, None): cell for cell in reversed(cells)
        }
        for future in as_completed(running):
            cell = running[future]
            try:
                future.result()
            except BrokenProcessPool as error:
                raise CircletError(
                    "a process was killed, perhaps because memory ran out; use fewer --jobs"
                ) from error
            except CircletError as error:
                failed.append(_failure(cell, error, watcher))
            watcher.end(cell)
    finally:
        pool.shutdown(cancel_futures=True)
    return failed


def _share_cores(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    # Ctrl-C reaches every process. Training installs its own handler; an idle process should print nothing.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _measure(cell: Cell, folder: Path, workplace: Workplace, reporter: Reporter | None) -> None:
    from circlet.provenance import provenance  # imports torch

    path, started = path_of(cell, folder), time.perf_counter()
    files.prepare_folder(path.parent)
    measured = cell.measure(workplace, reporter)
    seconds = round(time.perf_counter() - started, 2)
    content = {"cell": cell.name, "about": cell.about(), **measured, "seconds": seconds}
    files.write_json(path, {**content, "provenance": provenance()})


def _failure(cell: Cell, error: CircletError, watcher: Watcher) -> str:
    if isinstance(error, KeyboardInterrupt):  # raised by training, which stops between two steps
        raise error
    watcher.note(f"{cell.name}: {error}")
    return cell.name


def footer(result: Result) -> str:
    """How the numbers of a result were made: commands, seeds, machines, versions and time."""
    cells = result["cells"]
    if not cells:
        return "Nothing has been measured yet."
    origins = [cell["provenance"] for cell in cells]
    seeds = sorted({cell["about"]["seed"] for cell in cells})
    commands = sorted({f"`{origin['command']}`" for origin in origins})
    machines = sorted({_machine(cell) for cell in cells})
    versions = sorted({f"torch {origin['versions']['torch']}" for origin in origins})
    seconds = sum(cell["seconds"] for cell in cells)
    return (
        f"{', '.join(commands)}; {len(cells)} cells, seeds {', '.join(map(str, seeds))}, {seconds:,.0f} s in all "
        f"on {' and '.join(machines)}, {', '.join(versions)}."
    )


def _machine(cell: Result) -> str:
    machine = cell["provenance"]["machine"]
    if str(cell.get("device", "cpu")).startswith("cuda"):
        return str(machine["gpu"])
    threads = "1 thread" if machine["threads"] == 1 else f"{machine['threads']} threads"
    return f"{machine['processor']} ({threads})"
