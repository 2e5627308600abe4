"""`circlet datasets …`: list, fetch and describe datasets."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from circlet.cli import options
from circlet.cli.console import Bar, err, out
from circlet.cli.help import Command, Group
from circlet.report import Cell, Table

if TYPE_CHECKING:
    from circlet.data.dataset import Dataset
    from circlet.data.fetch import Progress

app = typer.Typer(
    name="datasets",
    help="List, fetch and describe datasets, by name or by path.",
    no_args_is_help=True,
    cls=Group,
)


@app.command("list", cls=Command)
def list_(as_json: options.AsJson = False) -> None:
    """Show the datasets that circlet knows by name, with their published sizes."""
    from circlet.data import catalog

    def how(name: str) -> str:
        if catalog.is_here(name):
            return "here"
        return "fetch" if catalog.ENTRIES[name].sdist else "by hand"

    names = list(catalog.ENTRIES)
    if as_json:
        described = [{"name": name, "status": how(name), **asdict(catalog.ENTRIES[name])} for name in names]
        print(json.dumps(described, indent=1))
        return
    rows: list[tuple[Cell, ...]] = []
    for name in names:
        known = catalog.ENTRIES[name]
        sizes = (known.train_points, known.test_points, known.features, known.labels)
        rows.append((name, *sizes, known.labels_per_point, how(name)))
    columns = ("name", "train", "test", "features", "labels", "per point", "status")
    note = f"`circlet datasets fetch NAME` fetches one, or says where to get it. Kept in {catalog.data_folder()}"
    out.print(Table("Datasets", columns, rows, note).rich())


@app.command(cls=Command)
def fetch(
    name: Annotated[
        str,
        typer.Argument(help="A name that `circlet datasets list` shows.", autocompletion=options.complete_data),
    ],
) -> None:
    """Download a dataset by its name, check it, and keep it for later."""
    from circlet.data import fetch as downloads

    with _fetch_bar(name) as progress:
        folder = downloads.fetch(name, progress)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    err.print(f"{name} is in {folder}, {size / 1e6:,.1f} MB", highlight=False, soft_wrap=True)


@app.command(cls=Command)
@options.reads_data()
def info(
    data: options.Data,
    read: options.Given = None,
    as_json: options.AsJson = False,
) -> None:
    """Show what a dataset holds: its numbers, its first rows and its most frequent labels."""
    from circlet.data import load_dataset
    from circlet.data.dataset import first_rows, frequent_labels

    dataset = load_dataset(data, **(read or {}))
    if as_json:
        described = {
            "name": dataset.name,
            "format": dataset.format,
            **dataset.statistics().as_dict(),
            "samples": first_rows(dataset),
            "frequent_labels": frequent_labels(dataset),
        }
        print(json.dumps(described, ensure_ascii=False, indent=1))
        return
    for table in (_statistics_table(dataset), _samples_table(dataset), _frequent_table(dataset)):
        out.print(table.rich())


def _statistics_table(dataset: Dataset) -> Table:
    def shown(value: int | float | None) -> Cell:
        return f"{value:,.2f}" if isinstance(value, float) else value

    rows = [(key.replace("_", " "), shown(value)) for key, value in dataset.statistics().as_dict().items()]
    return Table(dataset.name, ("", "found"), rows, note=f"Recognized: {dataset.format}")


def _samples_table(dataset: Dataset) -> Table:
    from circlet.data.dataset import first_rows

    samples = first_rows(dataset, width=44)
    content = "text" if dataset.train.texts is not None else "features"
    rows = [(sample[content], _quoted(sample["labels"])) for sample in samples]
    return Table("First rows", (content, "labels"), rows)


def _frequent_table(dataset: Dataset) -> Table:
    from circlet.data.dataset import frequent_labels

    rows = [(_quoted([one["label"]]), one["count"]) for one in frequent_labels(dataset)]
    return Table("Most frequent labels", ("label", "training rows"), rows)


def _quoted(labels: list[str | int], most: int = 8) -> str | None:
    """Labels in quotes, which show where one label ends and the next begins; ids without."""
    from circlet.data.dataset import one_line

    words = [f'"{one_line(label, 44)}"' if isinstance(label, str) else str(label) for label in labels[:most]]
    if len(labels) > most:
        words.append(f"and {len(labels) - most:,} more")
    return ", ".join(words) or None


@contextmanager
def _fetch_bar(name: str, clock: Callable[[], float] = time.perf_counter) -> Iterator[Progress]:
    """One bar, which fills during the download and pulses while data is read and checked."""
    with Bar(f"reading {name}", counts="bytes") as bar:

        class Download:
            size = 0

            def update(self, increment: int, /) -> None:
                self.size += increment
                bar.update(advance=increment)

        @contextmanager
        def download(total: int | None) -> Iterator[Download]:
            started, tracker = clock(), Download()
            bar.begin(f"downloading {name}", total)
            yield tracker
            seconds, size = clock() - started, tracker.size / 1e6
            err.print(f"{name}: downloaded {size:,.1f} MB, {size / max(seconds, 1e-3):,.1f} MB/s", highlight=False)
            bar.begin(f"reading {name}")

        yield download
