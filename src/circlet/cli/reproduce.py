"""`circlet reproduce …`: the paper's experiments, one command each."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from circlet import experiments, files
from circlet.cli.console import err, out, track
from circlet.errors import CircletError, MissingExtraError, ParameterError

app = typer.Typer(
    name="reproduce",
    help="Reproduce the paper's experiments: numbers, tables and pictures.",
    no_args_is_help=True,
)

Quick = Annotated[bool, typer.Option("--quick", help="A smaller version that takes seconds.")]
Out = Annotated[Path, typer.Option("--out", help="Folder for the JSON, the Markdown and the picture.")]
Seed = Annotated[int, typer.Option(min=0, help="Every random number follows from it.")]
Repetitions = Annotated[int | None, typer.Option(min=2, help="Repetitions; more of them, smaller error bars.")]
Data = Annotated[
    Path | None,
    typer.Option("--data", help="Folder with a subfolder for each dataset; looked into before circlet's own."),
]
Features = Annotated[
    Path | None,
    typer.Option("--features", help="Folder with NAME/X.trn.npy and NAME/X.tst.npy for each dataset NAME."),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, …")]
Jobs = Annotated[int, typer.Option(min=1, help="Processes that measure at the same time.")]
Seeds = Annotated[int | None, typer.Option(min=1, help="Runs of each model.  [default: 3, or 2 with --quick]")]
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


#: Studies whose commands are alike: what each shows.
STUDIES = {
    "table": "FC, HRR, CHRR and our recipes on real datasets, beside the published numbers.",
    "dimension": "P@k and PSP@k over the dimension of the codes, for HRR and CHRR: the paper's figure.",
    "ablation": "How a network should put out angles: CHRR, CHRR-Half, CHRR-sin and CHRR-tanh.",
    "codebooks": "Which codes labels should have: spectral, independent, of four or two phases.",
}


def _add_study(name: str, shows: str) -> None:
    def command(
        quick: Quick = False,
        out_folder: Out = Path("results"),
        data: Data = None,
        device: Device = "auto",
        jobs: Jobs = 1,
        seeds: Seeds = None,
        as_json: AsJson = False,
    ) -> None:
        _study(name, quick, out_folder, data, device, jobs, seeds, as_json)

    command.__doc__ = f"""{shows}

    Every run has a JSON below OUT/cells, and what has one is not run again; experiments share runs. Without a GPU
    all of them take hours.

    Example: circlet reproduce {name} --quick --out results
    """
    app.command(name)(command)


for _name, _shows in STUDIES.items():
    _add_study(_name, _shows)


@app.command()
def features(
    features_folder: Features = None,
    quick: Quick = False,
    out_folder: Out = Path("results"),
    data: Data = None,
    device: Device = "auto",
    jobs: Jobs = 1,
    seeds: Seeds = None,
    as_json: AsJson = False,
) -> None:
    """Bags of words against dense, pre-trained features, and both together.

    Example: circlet reproduce features --features my/embeddings --out results
    """
    _study("features", quick, out_folder, data, device, jobs, seeds, as_json, features_folder)


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
                f"{option}: wanted a folder with a subfolder for each dataset, found none at {given}"
            )

    from circlet.cli.cell_bars import CellBars
    from circlet.experiments.cells import Workplace, collect, run_cells
    from circlet.training.loop import resolve_device

    resolve_device(device)  # complains now rather than in every cell
    experiment = experiments.load(name)
    assert experiments.is_study(experiment)
    settings = experiment.Settings.quick() if quick else experiment.Settings()
    if seeds is not None:
        settings = replace(settings, seeds=seeds)
    cells, started = experiment.cells(settings), time.perf_counter()
    try:
        with CellBars() as bars:
            failed = run_cells(cells, folder, Workplace(data, device, features), jobs=jobs, watcher=bars)
    except KeyboardInterrupt as error:
        result = collect(name, settings, cells, folder)
        err.print(
            f"interrupted: {len(result['cells'])} of {len(cells)} cells are measured; "
            "the same command goes on with the others",
            highlight=False,
        )
        raise typer.Exit(130) from error
    result = collect(name, settings, cells, folder)
    # A quick page must not take the place of a full one.
    stem = folder / (f"quick-{name}" if quick else name)
    experiments.render(name, result, stem)
    _show(experiment, result, as_json)
    seconds = time.perf_counter() - started
    err.print(f"{stem}.md and .png written in {seconds:.1f} s", highlight=False, soft_wrap=True)
    if failed:
        raise CircletError(f"{len(failed)} cells failed; the same command tries them again")


def _reproduce(name: str, quick: bool, folder: Path, seed: int, repetitions: int | None, as_json: bool) -> None:
    _check(folder)

    from circlet.provenance import provenance  # imports torch

    experiment = experiments.load(name)
    assert experiments.is_simulation(experiment)
    settings = experiment.Settings.quick(seed) if quick else experiment.Settings(seed=seed)
    if repetitions is not None:
        settings = replace(settings, repetitions=repetitions)
    started = time.perf_counter()
    measured = experiment.run(settings, partial(track, name))
    seconds = round(time.perf_counter() - started, 1)
    result = {"experiment": name, "provenance": {**provenance(), "seconds": seconds}, **measured}

    experiments.save(name, result, folder)
    _show(experiment, result, as_json)
    err.print(f"{folder / name}.json, .md and .png written in {seconds} s", highlight=False)


def _check(folder: Path) -> None:
    # Whatever can go wrong at the end is checked before the work starts.
    if find_spec("matplotlib") is None:
        raise MissingExtraError("matplotlib", extra="plot", purpose="drawing the picture")
    files.prepare_folder(folder)


def _show(experiment: experiments.Experiment, result: dict[str, Any], as_json: bool) -> None:
    tables = experiment.tables(result)
    if as_json:
        print(json.dumps({table.title: table.records() for table in tables}, ensure_ascii=False, indent=1))
        return
    for table in tables:
        out.print(table.rich())
    for claim in experiment.claims(result):
        out.print(f"{claim.text}: [bold]{claim.holds}[/bold] ({claim.evidence})\n", highlight=False)
