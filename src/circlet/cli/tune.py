"""`circlet tune`: settings that suit a dataset better than the defaults."""

from __future__ import annotations

import re
import shlex
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from circlet import files
from circlet.checks import require
from circlet.cli import options
from circlet.cli.console import err, out, print_json, say
from circlet.errors import ParameterError
from circlet.report import Table

if TYPE_CHECKING:
    from circlet.tuning import Study

#: Seconds of each unit of a budget.
_UNITS = {"s": 1, "m": 60, "h": 3600}
#: Rows of the table during a search, so that it fits a terminal.
_ROWS_SHOWN = 12


@options.reads_data(names=True)
def tune(
    data: options.SeveralData,
    budget: Annotated[str, typer.Option(help="Time of the search, such as 90s, 10m or 2h.")] = "10m",
    out_folder: Annotated[
        Path, typer.Option("--output", help="Folder for the results; an earlier search there is continued.")
    ] = Path("tuning"),
    preset: Annotated[
        str,
        typer.Option(
            help="Preset to start from: fast, default or accurate.", autocompletion=options.complete_preset
        ),
    ] = "default",
    read: options.Given = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")] = 0,
    device: options.Device = "auto",
    threads: options.Threads = None,
    as_json: options.AsJson = False,
) -> None:
    """Search for better settings than the defaults, and print the command that trains with them.

    Models are trained on 85 % of the training rows, and scored by nDCG@5 on the others, at most 10,000. The search
    changes the best settings so far, and keeps a change that is better on average over 2 to 5 draws of held-out
    rows; data with few documents need more draws. A change may make the model larger, for example by averaging
    several networks; the table shows by how much. Test rows are never read.

    The output folder gets every trial (tuning.json), a picture of them (tuning.png), and the command that trains
    with the best settings (train.sh). To continue after Ctrl-C, run the same command again; to search longer, run
    it with a larger --budget. Even the smallest budget trains the defaults once.
    """
    seconds = _seconds(budget)
    options.use_torch("tuning", threads)
    require("sklearn", extra="train", purpose="tuning")
    require("matplotlib", extra="plot", purpose="drawing the search")
    from circlet.data import load_dataset
    from circlet.settings import EFFORTS
    from circlet.settings.run import FEWEST_TO_SPLIT
    from circlet.training import resolve_device
    from circlet.tuning import Study
    from circlet.tuning.study import draw

    if preset not in EFFORTS:
        raise ParameterError(f"--preset: found {preset!r}; wanted one of {', '.join(EFFORTS)}")
    place = resolve_device(device)
    dataset = load_dataset(data if len(data) > 1 else data[0], **(read or {}))
    if dataset.train.n < 2 * FEWEST_TO_SPLIT:
        raise ParameterError(
            f"found {dataset.train.n} documents; wanted at least {2 * FEWEST_TO_SPLIT} to compare settings"
        )
    files.prepare_folder(out_folder)
    study = Study(dataset, out_folder / "tuning.json", preset=preset, seed=seed, device=place)
    if study.trials:
        say(f"{study.path}: continuing after {len(study.trials)} trials")
    try:
        best = _run(study, seconds)
    except KeyboardInterrupt:
        say(f"{study.path} has {len(study.trials)} trials; the same command continues")
        raise
    with files.output(out_folder / "tuning.png") as stream:
        draw(study).savefig(stream, format="png", dpi=110)
    if (wanted := study.wanted()) is not None:
        say(
            f"--budget {budget} is used up: {study.spent:.0f} s are spent, and the next change takes up to "
            f"{wanted:.0f} s; a larger budget searches longer"
        )
    command = _command(data, {**(read or {}), "seed": seed, "preset": preset}, best)
    files.write_text(out_folder / "train.sh", command + "\n")
    _report(study, best, command, as_json)


def _command(data: list[str], given: dict[str, Any], best: dict[str, Any]) -> str:
    """The command that trains with the best settings, without options that have their defaults."""
    from circlet.model.session import READ
    from circlet.tuning.changes import as_options

    usual = {**READ, "preset": "default", "seed": 0}
    named = {name: value for name, value in given.items() if value != usual[name]}
    return shlex.join(["circlet", "train", *data, "--model", "tuned", *as_options({**named, **best})])


def _seconds(budget: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", budget.strip())
    if found is None or not float(found[1]):
        raise ParameterError(f"--budget: found {budget!r}; wanted a time such as 90s, 10m or 2h")
    return float(found[1]) * _UNITS[found[2]]


def _run(study: Study, seconds: float, console: Console = err) -> dict[str, Any]:
    """Search; on a terminal, a table shows the trials so far."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    if not console.is_terminal:
        return study.run(seconds)

    with Live(console=console, transient=True) as live:

        def watch(study: Study, doing: str) -> None:
            left = _clock(max(0, seconds - study.spent))
            note = f"{left} of {_clock(seconds)} left; training: {doing}" if doing else ""
            live.update(Group(_table(study, _ROWS_SHOWN).rich(), Text(note)))

        return study.run(seconds, watch)


def _table(study: Study, most: int | None = None) -> Table:
    """The table of all settings tried, or of `most` of them: the winners and the latest."""
    from circlet.tuning.changes import described

    winners = study.winners
    rows: list[tuple[Any, ...]] = []
    shown = study.tried
    if most is not None and len(shown) > most:
        latest = shown[len(winners) - most :]
        shown = [given for given in shown if given in winners or given in latest]
    for given in shown:
        trials = study.trials_of(given)
        failures = [trial.failure for trial in trials if trial.failure]
        least = min(trial.seconds for trial in trials)
        gain = f"{study.standing(given):+.2f}" if given and study.scores(given) else None
        rows.append(
            (
                described(given) + "".join(f" (failed: {failure})" for failure in failures),
                gain,
                f"{len(trials)}/{study.draws}",
                "★" if given == study.best else "",
                f"{size / 1e6:.1f} M" if (size := trials[0].parameters) else None,
                f"{least:.1f} s" if least < 10 else f"{least:.0f} s",
            )
        )
    usual = f"{study.mean_score({}):.2f} %" if study.scores({}) else "not yet known"
    note = f"Gain: points above the nDCG@5 of the defaults on held-out rows, {usual}."
    return Table("Settings", ("", "Gain", "Draws", "", "Parameters", "Training"), rows, note)


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _report(study: Study, best: dict[str, Any], command: str, as_json: bool) -> None:
    if as_json:
        report = {
            "command": command,
            "settings": {k: list(v) if isinstance(v, tuple) else v for k, v in best.items()},
            "score": study.mean_score(best),
            "default_score": study.mean_score({}),
            "gain": study.gain(best),
            "trials": len(study.trials),
            "seconds": round(study.spent, 1),
        }
        print_json(report)
        return
    out.print(_table(study).rich())
    gain = f"{study.gain(best):+.2f} points of nDCG@5 on held-out rows"
    say(f"{gain if best else 'no gain'}; {study.path.parent} has all trials, a picture and this command:")
    print(command)
