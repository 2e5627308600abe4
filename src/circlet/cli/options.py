"""Options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from circlet.cli.help import complete_data, complete_preset
from circlet.errors import ParameterError
from circlet.extras import require
from circlet.settings import DEFAULTS

ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder that `circlet train` wrote.")]
Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="A dataset's name, or a file or folder with data.", autocompletion=complete_data
    ),
]
SeveralData = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA...",
        help="A dataset's name, or a file or folder with data; or several files with texts.",
        autocompletion=complete_data,
    ),
]
_TEXT_COLUMN, _LABEL_COLUMN = "Column or JSON key of the text.", "Column or JSON key of the labels."
_SPLIT_COLUMN = "Which column of the Repository's split files to use."
TextColumn = Annotated[str, typer.Option(help=_TEXT_COLUMN)]
LabelColumn = Annotated[str, typer.Option(help=_LABEL_COLUMN)]
LabelSeparator = Annotated[
    str | None,
    typer.Option(help="What separates labels in CSV and TSV; \\[] for lists.", show_default="guessed"),
]
SplitColumn = Annotated[int, typer.Option("--split", min=0, help=_SPLIT_COLUMN)]
Names = Annotated[
    Path | None,
    typer.Option(
        help="Vocabulary with names for labels that are URIs: Annif's TSV of subjects, or SKOS (.ttl, .rdf).",
        show_default="none",
    ),
]
NamesLanguage = Annotated[
    str | None, typer.Option(help="Language of SKOS names, like en.", show_default="the one most names have")
]
# The same where it matters whether an option was given.
GivenTextColumn = Annotated[str | None, typer.Option("--text-column", help=_TEXT_COLUMN, show_default="text")]
GivenLabelColumn = Annotated[str | None, typer.Option("--label-column", help=_LABEL_COLUMN, show_default="labels")]
GivenSplitColumn = Annotated[int | None, typer.Option("--split", min=0, help=_SPLIT_COLUMN, show_default="0")]
Device = Annotated[str, typer.Option(help="Where to run: auto, cpu, cuda, cuda:1, …")]
Threads = Annotated[
    int | None, typer.Option(min=1, max=4096, help="CPU threads to use.", show_default="one per core")
]
FavorRare = Annotated[
    float,
    typer.Option(
        min=0,
        max=1,
        help="Rank rare labels higher: 0 is by probability alone, 1 by probability × inverse propensity.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


Preset = Annotated[
    str | None,
    typer.Option(
        help="How much to spend: fast, default or accurate; or paper, which follows the paper.",
        show_default="default",
        autocompletion=complete_preset,
    ),
]


def setting(name: str, help_text: str, *declarations: str) -> Any:
    """An option for a setting of a run; its help shows the library's default."""
    value = DEFAULTS[name]
    if isinstance(value, bool):
        value = declarations[0].split("/")[not value].removeprefix("--")
    shown = ",".join(map(str, value)) if isinstance(value, tuple) else "none" if value is None else value
    return typer.Option(*declarations, help=help_text, show_default=str(shown))


def use_torch(purpose: str, threads: int | None = None, *, extra: str = "train") -> None:
    """Refuse a command that needs torch if it is not installed; else let torch use this many threads.

    The first thing that such a command does: nothing is read or written in vain. None leaves the choice to torch.
    """
    require("torch", extra=extra, purpose=purpose)
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def check_processes(command: str | None) -> None:
    """Refuse a command that torchrun started several times, unless it can share its work."""
    number, rank = os.environ.get("WORLD_SIZE", "1"), os.environ.get("RANK")
    if number == "1" or rank is None or command in (None, "train"):
        return
    if rank != "0":
        raise typer.Exit(2)  # the first process says why
    raise ParameterError(f"found {number} processes of circlet {command}; only train shares its work: start one")
