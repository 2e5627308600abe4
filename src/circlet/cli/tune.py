"""`circlet tune`: settings that suit a dataset better than the defaults."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from circlet import files
from circlet.cli import options
from circlet.cli.console import err, out
from circlet.cli.help import complete_preset
from circlet.errors import ParameterError
from circlet.extras import require
from circlet.report import Table

if TYPE_CHECKING:
    from circlet.tuning import Study, Trial

#: Seconds of each unit of a budget.
_UNITS = {"s": 1, "m": 60, "h": 3600}


def tune(
    data: options.Data,
    budget: Annotated[str, typer.Option(help="How long to search, like 90s, 10m or 2h.")] = "10m",
    out_folder: Annotated[
        Path,
        typer.Option("--output", help="Folder for tuning.json and tuning.png; an earlier search there goes on."),
    ] = Path("tuning"),
    preset: Annotated[
        str,
        typer.Option(help="What to start from: fast, default or accurate.", autocompletion=complete_preset),
    ] = "default",
    text_column: options.TextColumn = "text",
    label_column: options.LabelColumn = "labels",
    label_separator: options.LabelSeparator = None,
    split: options.SplitColumn = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")] = 0,
    device: options.Device = "auto",
    threads: options.Threads = None,
    as_json: options.AsJson = False,
) -> None:
    """Search for better settings than the defaults, and print the command that trains with them.

    Models are trained on 85 % of the training rows (all but 10,000 at most) and judged by nDCG@5 on the others.
    Each trial changes the best settings so far. In the end, the defaults and the best are trained once more with
    other held-out rows, and the better mean wins. Test rows are never read.

    Every trial is kept: after Ctrl-C, run the same command again. To search longer, give it a larger --budget.
    """
    seconds = _seconds(budget)
    options.use_torch("tuning", threads)
    require("sklearn", extra="train", purpose="tuning")
    require("matplotlib", extra="plot", purpose="drawing the search")
    from circlet.data import load_dataset
    from circlet.devices import resolve_device
    from circlet.settings import EFFORTS
    from circlet.settings.run import FEWEST_TO_SPLIT
    from circlet.tuning import Study
    from circlet.tuning.picture import draw

    if preset not in EFFORTS:
        raise ParameterError(f"--preset: wanted one of {', '.join(EFFORTS)}, got {preset!r}")
    place = resolve_device(device)
    dataset = load_dataset(
        data, text_column=text_column, label_column=label_column, label_separator=label_separator, split=split
    )
    if dataset.train.n < 2 * FEWEST_TO_SPLIT:
        raise ParameterError(
            f"found {dataset.train.n} documents; wanted at least {2 * FEWEST_TO_SPLIT} to judge settings by"
        )
    files.prepare_folder(out_folder)
    study = Study(dataset, out_folder / "tuning.json", preset=preset, seed=seed, device=place)
    if study.trials:
        err.print(f"{study.path}: going on after {len(study.trials)} trials", highlight=False, soft_wrap=True)
    before = len(study.trials)
    try:
        best = _run(study, seconds)
    except KeyboardInterrupt:
        err.print(f"{len(study.trials)} trials are kept in {study.path}; the same command goes on", soft_wrap=True)
        raise
    with files.output(out_folder / "tuning.png") as stream:
        draw(study).savefig(stream, format="png", dpi=110)
    if before == len(study.trials):
        left = f"earlier trials took {study.spent:.0f} s, and --budget {budget} leaves no time for another one"
        err.print(f"{left}; a larger one searches longer", highlight=False, soft_wrap=True)
    read = {"text_column": text_column, "label_column": label_column, "label_separator": label_separator}
    usual = {"text_column": "text", "label_column": "labels", "label_separator": None, "split": 0, "seed": 0}
    given = {**read, "split": split, "seed": seed}
    _report(study, best, data, {name: value for name, value in given.items() if value != usual[name]}, as_json)


def _seconds(budget: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", budget.strip())
    if found is None or not float(found[1]):
        raise ParameterError(f"--budget: wanted a time like 90s, 10m or 2h, got {budget!r}")
    return float(found[1]) * _UNITS[found[2]]


def _run(study: Study, seconds: float) -> Trial:
    """Search, with a table on a terminal that grows as trials end."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    if not err.is_terminal:
        return study.run(seconds)

    with Live(console=err, transient=True) as live:

        def watch(study: Study, doing: str) -> None:
            left = max(0, seconds - study.spent)
            note = f"{left / 60:.0f} of {seconds / 60:.0f} minutes left; training: {doing}" if doing else ""
            live.update(Group(_table(study).rich(), Text(note)))

        return study.run(seconds, watch)


def _table(study: Study) -> Table:
    rows: list[tuple[Any, ...]] = []
    best = None
    for number, trial in enumerate(study.trials):
        better = trial.draw == 0 and trial.score is not None and (best is None or trial.score > best)
        best = trial.score if better else best
        settings = ", ".join(f"{name} {value}" for name, value in trial.given.items()) or "defaults"
        if trial.draw:
            settings += " (other held-out rows)"
        score = f"{trial.score:.2f}" if trial.score is not None else f"failed: {trial.failure}"
        rows.append((number, settings, score, "better" if better and number else "", f"{trial.seconds:.0f} s"))
    return Table("Trials", ("", "Settings", "nDCG@5, %", "", "Time"), rows)


def _report(study: Study, best: Trial, data: str, read: dict[str, Any], as_json: bool) -> None:
    from circlet.tuning.changes import as_options

    given = {**read, **({"preset": study.preset} if study.preset != "default" else {}), **best.given}
    command = shlex.join(["circlet", "train", data, "--model", "tuned", *as_options(given)])
    gain = study.mean_score(best.given) - study.mean_score({})
    if as_json:
        report = {
            "command": command,
            "settings": {k: list(v) if isinstance(v, tuple) else v for k, v in best.given.items()},
            "score": study.mean_score(best.given),
            "default_score": study.mean_score({}),
            "trials": len(study.trials),
            "seconds": round(study.spent, 1),
        }
        print(json.dumps(report, ensure_ascii=False, indent=1))
        return
    out.print(_table(study).rich())
    said = (
        f"{gain:+.2f} points of nDCG@5 on held-out rows" if best.given else "nothing was better than the defaults"
    )
    err.print(f"{said}; {study.path} and tuning.png written. To train with it:", highlight=False, soft_wrap=True)
    print(command)
