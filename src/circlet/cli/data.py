"""Commands about data: `circlet datasets …`, `circlet embed` and `circlet feedback …`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from circlet.cli import Command, Group, options
from circlet.cli.console import Bar, err, out, track
from circlet.errors import DataError
from circlet.report import Cell, Table

if TYPE_CHECKING:
    from circlet.data.dataset import Dataset
    from circlet.data.feedback import FeedbackLog
    from circlet.data.fetch import Progress

datasets = typer.Typer(
    name="datasets",
    help="List, fetch and describe datasets, by name or by path.",
    no_args_is_help=True,
    cls=Group,
)


@datasets.command("list", cls=Command)
def list_datasets(as_json: options.AsJson = False) -> None:
    """Show the datasets that circlet knows by name, with their published sizes."""
    from circlet.data import catalog

    def how(name: str) -> str:
        if catalog.is_local(name):
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


@datasets.command(cls=Command)
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


@datasets.command(cls=Command)
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


@options.reads_data()
def embed(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A dataset's name, or a file or folder with texts.")],
    model_path: Annotated[Path, typer.Option("--sentence-model", help="Folder of a sentence-transformers model.")],
    out_folder: Annotated[Path, typer.Option("--output", help="Folder for X.trn.npy, X.tst.npy and embed.json.")],
    name: Annotated[
        str | None, typer.Option(help="The model's name in embed.json.", show_default="the name of its folder")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts per step.")] = 64,
    read: options.Given = None,
    device: options.Device = "auto",
    threads: options.Threads = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what embed.json holds.")] = False,
) -> None:
    """Turn a dataset's raw texts into dense features with a pre-trained model; nothing is downloaded.

    If it is interrupted, the same command continues with the part that is not finished.

    """
    # Set before anything imports the hub's client, which reads them only once.
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    options.use_torch("embedding texts", threads, extra="embed")
    from circlet.data import load_dataset
    from circlet.features.embed import check_model_folder, embed_dataset
    from circlet.training import resolve_device

    check_model_folder(model_path)
    place = str(resolve_device(device))
    dataset = load_dataset(data, **(read or {}))
    err.print(f"{dataset.name}: {dataset.format}", highlight=False, soft_wrap=True)
    record = embed_dataset(
        dataset, model_path, out_folder, name=name, batch_size=batch_size, device=place, progress=track
    )
    if as_json:
        print(json.dumps(record, ensure_ascii=False, indent=1))
        return
    for part, entry in record["parts"].items():
        err.print(
            f"{out_folder / f'X.{part}.npy'}: {entry['rows']:,} texts, {entry['dims']} features, "
            f"{entry['texts_per_second']:,} texts/s",
            highlight=False,
            soft_wrap=True,
        )


feedback = typer.Typer(
    name="feedback", help="Show and export what users said about suggestions.", no_args_is_help=True, cls=Group
)

Log = Annotated[Path, typer.Argument(metavar="LOG", help="A log of feedback that `circlet serve` keeps.")]


@feedback.command("list", cls=Command)
def list_feedback(
    log: Log,
    everything: Annotated[bool, typer.Option("--all", help="Entries that were undone too.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Show what users accepted and rejected, the oldest first."""
    from circlet.report import Table

    entries = _open(log).entries(active_only=not everything)
    if as_json:
        print(json.dumps([each.as_dict() for each in entries], ensure_ascii=False, indent=1))
        return
    rows = [
        (
            each.time[:19].replace("T", " "),
            _short(each.text),
            _signed(each.accepted, "+"),
            _signed(each.rejected, "−"),
            "undone" if each.undone else each.version,
        )
        for each in entries
    ]
    columns = ("time, UTC", "text", "accepted", "rejected", "version")
    out.print(Table(log.name, columns, rows, f"{len(entries):,} entries").rich())


@feedback.command("export", cls=Command)
def export_feedback(
    log: Log,
    output: Annotated[Path, typer.Argument(metavar="OUT.jsonl", help="The file to write.")],
) -> None:
    """Write the texts with the labels that users accepted, in a form that `circlet train` reads.

    Each text is written once, with all labels that were accepted and not rejected later; the
    rejected ones are kept beside them, and training does not read these. Entries that were
    undone, and texts of which only rejected labels are known, are left out.
    """
    from circlet import files
    from circlet.data.feedback import merge_feedback

    texts = [each for each in merge_feedback(_open(log).entries()) if each.accepted]
    if not texts:
        raise DataError(f"{log}: found no text with an accepted label; wanted at least one to export")
    files.prepare_output(output)
    with files.output(output) as stream:
        for each in texts:
            line = {"text": each.text, "labels": list(each.accepted), "rejected": list(each.rejected)}
            stream.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
    err.print(f"{output}: {len(texts):,} texts", highlight=False, soft_wrap=True)


def described_feedback(log: Path) -> dict[str, Any]:
    """What the description of a run says about feedback: the log, and how much of it there is."""
    return {"file": str(log), "records": len(_open(log))}


def _open(path: Path) -> FeedbackLog:
    from circlet.data.feedback import FeedbackLog

    if not path.is_file():
        raise DataError(f"{path}: found no file; wanted a log of feedback")
    return FeedbackLog(path)


def _short(text: str, most: int = 44) -> str:
    from circlet.data.dataset import one_line

    return one_line(text, most)


def _signed(labels: tuple[str, ...], sign: str) -> str:
    return ", ".join(f"{sign}{label}" for label in labels)
