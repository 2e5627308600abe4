"""`circlet reproduce …`: the paper's experiments, one command each."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import circlet_paper
from circlet import files
from circlet.checks import require
from circlet.cli import Command, Group
from circlet.cli.console import err, out, track
from circlet.errors import CircletError, ParameterError

app = typer.Typer(
    name="reproduce",
    help="Reproduce the paper's experiments: numbers, tables and pictures.",
    no_args_is_help=True,
    cls=Group,
)

Quick = Annotated[bool, typer.Option("--quick", help="A smaller version that takes seconds.")]
Out = Annotated[Path, typer.Option("--output", help="Folder for the JSON, the Markdown and the picture.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of every random number.")]
Repetitions = Annotated[
    int | None,
    typer.Option(
        min=2,
        help="Number of repetitions; more of them make the error bars smaller.",
        show_default="the experiment's own",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="Folder with a subfolder for each dataset; searched before circlet's own.",
        show_default="circlet's own",
    ),
]
Features = Annotated[
    Path | None,
    typer.Option("--features", help="Folder with NAME/X.trn.npy and NAME/X.tst.npy for each dataset NAME."),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, …")]
Jobs = Annotated[int, typer.Option(min=1, help="Number of processes that run at the same time.")]
Seeds = Annotated[
    int | None, typer.Option(min=1, help="Number of runs of each model.", show_default="the experiment's own")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the tables as JSON.")]


STUDY_DETAILS = (
    "Each run is stored as a JSON file below OUTPUT/cells and is not repeated; experiments share runs. "
    "Without a GPU, all of them take hours."
)


def _about(name: str, details: str, words: str = "--quick") -> dict[str, Any]:
    """What the help of an experiment's command says."""
    example = f"circlet reproduce {name} {words} --output results"
    return {
        "cls": Command,
        "help": f"{circlet_paper.EXPERIMENTS[name]}\n\n{details}",
        "epilog": f"{example}\ncirclet reproduce {name} --json",
    }


def _add_simulation(name: str) -> None:
    @app.command(name, **_about(name, "A full run takes one to three minutes on two cores."))
    def command(
        quick: Quick = False,
        folder: Out = Path("results"),
        seed: Seed = 0,
        repetitions: Repetitions = None,
        as_json: AsJson = False,
    ) -> None:
        _check(folder)

        from circlet.provenance import provenance  # imports torch

        experiment = circlet_paper.load(name)
        assert circlet_paper.is_simulation(experiment)
        settings = experiment.Settings.quick(seed) if quick else experiment.Settings(seed=seed)
        if repetitions is not None:
            settings = replace(settings, repetitions=repetitions)
        started = time.perf_counter()
        measured = experiment.run(settings, partial(track, name))
        seconds = round(time.perf_counter() - started, 1)
        result = {"experiment": name, "provenance": {**provenance(), "seconds": seconds}, **measured}

        circlet_paper.save(name, result, folder)
        _show(experiment, result, as_json)
        err.print(f"{folder / name}.json, .md and .png written in {seconds} s", highlight=False)


def _add_study(name: str) -> None:
    @app.command(name, **_about(name, STUDY_DETAILS))
    def command(
        quick: Quick = False,
        folder: Out = Path("results"),
        data: Data = None,
        device: Device = "auto",
        jobs: Jobs = 1,
        seeds: Seeds = None,
        as_json: AsJson = False,
    ) -> None:
        _study(name, quick, folder, data, device, jobs, seeds, as_json)


for _name in circlet_paper.EXPERIMENTS:
    if _name in ("capacity", "stability", "theory"):
        _add_simulation(_name)
    elif _name != "features":
        _add_study(_name)


@app.command("features", **_about("features", STUDY_DETAILS, "--features my/embeddings"))
def _with_features(
    features: Features = None,
    quick: Quick = False,
    folder: Out = Path("results"),
    data: Data = None,
    device: Device = "auto",
    jobs: Jobs = 1,
    seeds: Seeds = None,
    as_json: AsJson = False,
) -> None:
    """Run the one study that also reads dense features."""
    _study("features", quick, folder, data, device, jobs, seeds, as_json, features)


def _study(
    name: str,
    quick: bool,
    folder: Path,
    data: Path | None,
    device: str,
    jobs: int,
    seeds: int | None,
    as_json: bool,
    features: Path | None = None,
) -> None:
    _check(folder)
    for option, given in (("--data", data), ("--features", features)):
        if given is not None and not given.is_dir():
            raise ParameterError(
                f"{option}: wanted a folder with a subfolder for each dataset, found no folder at {given}"
            )

    from circlet.training import resolve_device
    from circlet_paper.cell_bars import CellBars
    from circlet_paper.cells import Workplace, collect, run_cells

    resolve_device(device)  # an unknown device fails here, once, rather than in every cell
    experiment = circlet_paper.load(name)
    assert circlet_paper.is_study(experiment)
    settings = experiment.Settings.quick() if quick else experiment.Settings()
    if seeds is not None:
        settings = replace(settings, seeds=seeds)
    workplace = Workplace(data, device, features)
    cells, started = experiment.cells(settings), time.perf_counter()
    stand_ins = getattr(experiment, "stand_ins", None)
    if quick and data is None and stand_ins is not None and all(cell.missing(workplace) for cell in cells):
        err.print("found none of the datasets; a quick run takes pydocs instead", style="yellow")
        cells = stand_ins(settings)
    try:
        with CellBars() as bars:
            failed = run_cells(cells, folder, workplace, jobs=jobs, watcher=bars)
    except KeyboardInterrupt as error:
        result = collect(name, settings, cells, folder)
        err.print(
            f"interrupted: {len(result['cells'])} of {len(cells)} cells are measured; "
            "the same command continues with the others",
            highlight=False,
        )
        raise typer.Exit(130) from error
    result = collect(name, settings, cells, folder)
    # A quick page must not replace a full one.
    stem = folder / (f"quick-{name}" if quick else name)
    circlet_paper.render(name, result, stem)
    _show(experiment, result, as_json)
    seconds = time.perf_counter() - started
    err.print(f"{stem}.md and .png written in {seconds:.1f} s", highlight=False, soft_wrap=True)
    if failed:
        raise CircletError(f"{len(failed)} cells failed; run the same command to try them again")


def _check(folder: Path) -> None:
    # Check before the work starts what would otherwise fail at its end.
    require("torch", extra="train", purpose="an experiment")
    require("matplotlib", extra="plot", purpose="drawing the picture")
    files.prepare_folder(folder)


def _show(experiment: circlet_paper.Experiment, result: dict[str, Any], as_json: bool) -> None:
    tables = experiment.tables(result)
    if as_json:
        print(json.dumps({table.title: table.records() for table in tables}, ensure_ascii=False, indent=1))
        return
    for table in tables:
        out.print(table.rich())
    for claim in experiment.claims(result):
        out.print(f"{claim.text}: [bold]{claim.holds}[/bold] ({claim.evidence})\n", highlight=False)
