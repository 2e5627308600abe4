"""Commands about data: `circlet datasets …`, `circlet embed` and `circlet feedback …`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from circlet.cli import Command, Group, options
from circlet.cli.console import Bar, out, print_json, say, track
from circlet.errors import DataError
from circlet.report import Cell, Table

if TYPE_CHECKING:
    from circlet.data.feedback import FeedbackLog
    from circlet.data.fetch import Progress

datasets = typer.Typer(name="datasets", help="List, fetch and describe datasets.", no_args_is_help=True, cls=Group)


@datasets.command("list", cls=Command)
def list_datasets(as_json: options.AsJson = False) -> None:
    """Show the datasets that circlet knows by name, with their published sizes."""
    from circlet.data import catalog

    def status(name: str) -> str:
        return "here" if catalog.is_local(name) else "fetch" if catalog.ENTRIES[name].sdist else "by hand"

    if as_json:
        print_json([{"name": name, "status": status(name), **asdict(it)} for name, it in catalog.ENTRIES.items()])
        return
    rows = [
        (name, it.train_points, it.test_points, it.features, it.labels, it.labels_per_point, status(name))
        for name, it in catalog.ENTRIES.items()
    ]
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
    say(f"{name} is in {folder}, {size / 1e6:,.1f} MB")


@contextmanager
def _fetch_bar(name: str, clock: Callable[[], float] = time.perf_counter) -> Iterator[Progress]:
    """One bar, which fills during the download and pulses while data is read and checked."""
    with Bar(f"reading {name}", counts="bytes") as bar:

        class Download:
            def update(self, increment: int, /) -> None:
                bar.update(advance=increment)

        @contextmanager
        def download(total: int | None) -> Iterator[Download]:
            started = clock()
            bar.begin(f"downloading {name}", total)
            yield Download()
            seconds, size = clock() - started, bar.now.completed / 1e6
            say(f"{name}: downloaded {size:,.1f} MB, {size / max(seconds, 1e-3):,.1f} MB/s")
            bar.begin(f"reading {name}")

        yield download


@datasets.command(cls=Command)
@options.reads_data()
def info(data: options.Data, read: options.Given = None, as_json: options.AsJson = False) -> None:
    """Show the size of a dataset, its first rows and its most frequent labels."""
    from circlet.data import load_dataset
    from circlet.data.dataset import first_rows, frequent_labels

    dataset = load_dataset(data, **(read or {}))
    found, frequent = dataset.statistics().as_dict(), frequent_labels(dataset)
    if as_json:
        about = {"name": dataset.name, "format": dataset.format, **found}
        print_json({**about, "samples": first_rows(dataset), "frequent_labels": frequent})
        return
    content = "text" if dataset.train.texts is not None else "features"
    numbers: list[tuple[str, Cell]] = [
        (key.replace("_", " "), f"{value:,.2f}" if isinstance(value, float) else value)
        for key, value in found.items()
    ]
    samples = [(each[content], _quoted(each["labels"])) for each in first_rows(dataset, width=44)]
    for table in (
        Table(dataset.name, ("", "found"), numbers, note=f"Format: {dataset.format}"),
        Table("First rows", (content, "labels"), samples),
        Table(
            "Most frequent labels",
            ("label", "training rows"),
            [(_quoted([each["label"]]), each["count"]) for each in frequent],
        ),
    ):
        out.print(table.rich())


def _quoted(labels: Sequence[str | int], most: int = 8) -> str | None:
    """Names of labels in quotes, which show where one ends and the next begins; ids without quotes."""
    from circlet.data.dataset import one_line

    words = [f'"{one_line(label, 44)}"' if isinstance(label, str) else str(label) for label in labels[:most]]
    if len(labels) > most:
        words.append(f"and {len(labels) - most:,} more")
    return ", ".join(words) or None


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
    as_json: Annotated[bool, typer.Option("--json", help="Print the content of embed.json.")] = False,
) -> None:
    """Turn the texts of a dataset into dense features with a pretrained model; nothing is downloaded.

    If the command is interrupted, run it again to continue with the part that is not finished.
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
    say(f"{dataset.name}: {dataset.format}")
    record = embed_dataset(
        dataset, model_path, out_folder, name=name, batch_size=batch_size, device=place, progress=track
    )
    if as_json:
        print_json(record)
        return
    for part, entry in record["parts"].items():
        numbers = f"{entry['rows']:,} texts, {entry['dims']} features, {entry['texts_per_second']:,} texts/s"
        say(f"{out_folder / f'X.{part}.npy'}: {numbers}")


feedback = typer.Typer(
    name="feedback", help="Show and export users' feedback on suggestions.", no_args_is_help=True, cls=Group
)

Log = Annotated[Path, typer.Argument(metavar="LOG", help="A log of feedback that `circlet serve` has written.")]


@feedback.command("list", cls=Command)
def list_feedback(
    log: Log,
    everything: Annotated[bool, typer.Option("--all", help="Include entries that were undone.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Show which labels users accepted and rejected, the oldest entry first."""
    from circlet.data.dataset import one_line

    entries = open_log(log).entries(active_only=not everything)
    if as_json:
        print_json([each.as_dict() for each in entries])
        return
    rows = [
        (
            each.time[:19].replace("T", " "),
            one_line(each.text, 44),
            ", ".join(f"+{label}" for label in each.accepted),
            ", ".join(f"−{label}" for label in each.rejected),
            "undone" if each.undone else each.version,
        )
        for each in entries
    ]
    columns = ("time, UTC", "text", "accepted", "rejected", "version")
    out.print(Table(log.name, columns, rows, f"{len(entries):,} entries").rich())


@feedback.command("export", cls=Command)
def export_feedback(
    log: Log, output: Annotated[Path, typer.Argument(metavar="OUT.jsonl", help="The file to write.")]
) -> None:
    """Write the texts with the labels that users accepted as JSONL, for `circlet train`.

    Each text is written once, with all labels that were accepted and not rejected later. The file also has the
    rejected labels, which training ignores. Undone entries and texts without an accepted label are left out.
    """
    from circlet import files
    from circlet.data.feedback import merge_feedback

    texts = [each for each in merge_feedback(open_log(log).entries()) if each.accepted]
    if not texts:
        raise DataError(f"{log}: found no text with an accepted label; wanted at least one to export")
    files.prepare_output(output)
    with files.output(output) as stream:
        for each in texts:
            line = {"text": each.text, "labels": list(each.accepted), "rejected": list(each.rejected)}
            stream.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
    say(f"{output}: {len(texts):,} texts")


def open_log(path: Path) -> FeedbackLog:
    """Open an existing log of feedback."""
    from circlet.data.feedback import FeedbackLog

    if not path.is_file():
        raise DataError(f"{path}: found no file; wanted a log of feedback")
    return FeedbackLog(path)
