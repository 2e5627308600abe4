"""Carries out a run of `circlet train`, and prints how it went."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from circlet.cli.console import err
from circlet.cli.progress import TrainingBar
from circlet.folder.history import kept_epochs, metrics_of
from circlet.folder.layout import read_config
from circlet.model import Model
from circlet.model.session import Run, carry_out
from circlet.training import InterruptedRunError, Reporter
from circlet.training.distributed import joined

__all__ = ["run_in"]


def run_in(
    folder: Path, run: dict[str, Any], *, device: str, as_json: bool, resume: bool, overwrite: bool
) -> None:
    """Train the model that `run` describes, see `Run`, in a folder, and print a summary."""
    with joined(device) as (world, place):
        own = Run(**run, processes=world.size)
        # Of several processes, only the first one has a bar and a summary.
        with TrainingBar() as bar:
            reporter = bar if world.is_first else Reporter()
            try:
                model = carry_out(
                    folder, own, resume=resume, overwrite=overwrite, device=place, world=world, reporter=reporter
                )
            except InterruptedRunError as error:
                if world.is_first:
                    again = f"to resume: circlet train {own.source} --model {folder} --resume"
                    err.print(f"{error}\n{again}", highlight=False, soft_wrap=True)
                raise typer.Exit(130) from error
    if model is None:
        return
    summary = _summary(folder, model, bar.stages)
    if as_json:
        print(json.dumps(summary, ensure_ascii=False, indent=1))
        return
    for line in _lines(folder, summary):
        err.print(line, highlight=False, soft_wrap=True)


def _summary(folder: Path, model: Model, stages: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "model": str(folder),
        "members": len(model.networks),
        "network": model.network.settings.as_dict(),
        "training": model.training,
        "n_features": model.n_features,
        "n_labels": model.n_labels,
        "threshold": model.threshold,
        "parameters": model.ranker.parameter_counts(),
        "store": read_config(folder)["store"],
        "bytes": sum(path.stat().st_size for path in folder.glob("[!.]*") if path.is_file()),
        "plan": stages,
        "history": model.history,
    }


def _lines(folder: Path, summary: dict[str, Any]) -> Iterator[str]:
    """What was done and how long it took, which weights were kept, the threshold, and what the model is."""
    for stage in summary["plan"]:
        member = f", member {stage['member']}" if "member" in stage else ""
        yield f"{stage['stage'] + member:<26}{stage['seconds']:>8.1f} s"
    chosen = kept_epochs(summary["history"])
    last = {record.get("member", 1): record for record in summary["history"]}
    for record in chosen or last.values():
        member = f"member {record['member']}, " if "member" in record else ""
        values = ", ".join(f"{name} {100 * value:.2f}" for name, value in metrics_of(record).items())
        if chosen:
            yield f"{member}kept epoch {record['epoch']}, the best on held-out rows: {values}"
        elif values:
            yield f"{member}kept epoch {record['epoch']}, the last; {values} on held-out rows, which then joined"
    aim = summary["training"].get("threshold_for", "f1")
    if summary["threshold"] is not None:
        best = "the best F1" if aim == "f1" else aim
        yield f"labels are given from a probability of {summary['threshold']:.3f} on: {best} on held-out rows"
    elif aim != "f1":
        yield f"no threshold was chosen for {aim}: no rows were held out; wanted more documents, or --validation"
    networks = f"{summary['members']} networks, " if summary["members"] > 1 else ""
    yield (
        f"{folder}: {networks}{summary['parameters']['total']:,} parameters, {summary['n_labels']:,} labels, "
        f"{summary['bytes'] / 1e6:.1f} MB"
    )
    yield f"to use it: circlet predict {folder} INPUT, or circlet evaluate {folder} DATA"
