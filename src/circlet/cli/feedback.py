"""`circlet feedback …`: what users said about suggestions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from circlet.cli import options
from circlet.cli.console import err, out
from circlet.cli.help import Command, Group
from circlet.errors import DataError

if TYPE_CHECKING:
    from circlet.data.feedback import FeedbackLog

app = typer.Typer(
    name="feedback", help="Show and export what users said about suggestions.", no_args_is_help=True, cls=Group
)

Log = Annotated[Path, typer.Argument(metavar="LOG", help="A log of feedback that `circlet serve` keeps.")]


@app.command("list", cls=Command)
def list_(
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


@app.command(cls=Command)
def export(
    log: Log,
    output: Annotated[Path, typer.Argument(metavar="OUT.jsonl", help="The file to write.")],
) -> None:
    """Write the texts with the labels that users accepted, in a form that `circlet train` reads.

    Each text is written once, with all labels that were accepted and not rejected later; the
    rejected ones are kept beside them, and training does not read these. Entries that were
    undone, and texts of which only rejected labels are known, are left out.
    """
    from circlet import files
    from circlet.data.feedback import judged

    texts = [each for each in judged(_open(log).entries()) if each.accepted]
    if not texts:
        raise DataError(f"{log}: found no text with an accepted label; wanted at least one to export")
    files.prepare_output(output)
    with files.output(output) as stream:
        for each in texts:
            line = {"text": each.text, "labels": list(each.accepted), "rejected": list(each.rejected)}
            stream.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
    err.print(f"{output}: {len(texts):,} texts", highlight=False, soft_wrap=True)


def described(log: Path) -> dict[str, Any]:
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
