"""`circlet reproduce …`: the paper's experiments, one command each."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from circlet import experiments, files
from circlet.cli.console import err, out, track
from circlet.errors import MissingExtraError

app = typer.Typer(
    name="reproduce",
    help="Reproduce the paper's experiments: numbers, tables and pictures.",
    no_args_is_help=True,
)

Quick = Annotated[bool, typer.Option("--quick", help="A smaller version that takes seconds.")]
Out = Annotated[Path, typer.Option("--out", help="Folder for the JSON, the Markdown and the picture.")]
Seed = Annotated[int, typer.Option(min=0, help="Every random number follows from it.")]
Repetitions = Annotated[int | None, typer.Option(min=2, help="Repetitions; more of them, smaller error bars.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the tables as JSON.")]


@app.command()
def capacity(
    quick: Quick = False,
    out_folder: Out = Path("results"),
    seed: Seed = 0,
    repetitions: Repetitions = None,
    as_json: AsJson = False,
) -> None:
    """How many labels one vector holds: the paper's retrieval-accuracy heat maps.

    A full run takes a few minutes on two cores.

    Example: circlet reproduce capacity --quick --out results
    """
    _reproduce("capacity", quick, out_folder, seed, repetitions, as_json)


@app.command()
def stability(
    quick: Quick = False,
    out_folder: Out = Path("results"),
    seed: Seed = 0,
    repetitions: Repetitions = None,
    as_json: AsJson = False,
) -> None:
    """Mean and variance of the similarities to the stored labels, with theory.

    Example: circlet reproduce stability --out results
    """
    _reproduce("stability", quick, out_folder, seed, repetitions, as_json)


def _reproduce(name: str, quick: bool, folder: Path, seed: int, repetitions: int | None, as_json: bool) -> None:
    # Whatever can go wrong at the end is checked before the work starts.
    if find_spec("matplotlib") is None:
        raise MissingExtraError("matplotlib", extra="plot", purpose="drawing the picture")
    files.prepare_folder(folder)

    from circlet.provenance import provenance  # imports torch

    experiment = experiments.load(name)
    settings = experiment.Settings.quick(seed) if quick else experiment.Settings(seed=seed)
    if repetitions is not None:
        settings = replace(settings, repetitions=repetitions)
    started = time.perf_counter()
    measured = experiment.run(settings, partial(track, name))
    seconds = round(time.perf_counter() - started, 1)
    result = {"experiment": name, "provenance": {**provenance(), "seconds": seconds}, **measured}

    experiments.save(name, result, folder)

    tables = experiment.tables(result)
    if as_json:
        print(json.dumps({table.title: table.records() for table in tables}, ensure_ascii=False, indent=1))
    else:
        for table in tables:
            out.print(table.rich())
        for claim in experiment.claims(result):
            out.print(f"{claim.text}: [bold]{claim.holds}[/bold] ({claim.evidence})\n", highlight=False)
    err.print(f"{folder / name}.json, .md and .png written in {seconds} s", highlight=False)
