"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from circlet.settings import DEFAULTS

ModelFolder = Annotated[Path, typer.Argument(help="A folder that `circlet train` wrote.")]
Data = Annotated[str, typer.Argument(help="A dataset's name, or a file or folder with data.")]
TextColumn = Annotated[str, typer.Option(help="Column or key of the text.")]
LabelColumn = Annotated[str, typer.Option(help="Column or key of the labels.")]
LabelSeparator = Annotated[
    str | None,
    typer.Option(help="What separates labels in CSV and TSV; \\[] for lists.  \\[default: guessed]"),
]
SplitColumn = Annotated[int, typer.Option("--split", min=0, help="Column of the Repository's split files.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads to use.  \\[default: one for each core]")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def setting(name: str, help_text: str) -> Any:
    """An option for a setting of a run; its help ends with the library's default."""
    value = DEFAULTS[name]
    shown = ",".join(map(str, value)) if isinstance(value, tuple) else "none" if value is None else value
    return typer.Option(help=f"{help_text}  \\[default: {shown}]")


def use_threads(threads: int | None) -> None:
    """Let torch use this many threads; None leaves the choice to it."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
