"""Carries out a run of `circlet train`, with a live bar on a terminal, a line per epoch and a summary."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from circlet.cli.console import Bar, err
from circlet.data import Dataset
from circlet.model import Model
from circlet.model.session import Run, carry_out
from circlet.settings import Decision
from circlet.settings.run import FEWEST_TO_SPLIT
from circlet.storage.contents import kept_epochs, metrics_of
from circlet.storage.layout import read_config
from circlet.training import InterruptedRunError, Reporter, StepsTaken
from circlet.training.distributed import joined

__all__ = ["TrainingBar", "run_in"]


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
            measured = f"on held-out rows, before these were trained on: {values}"
            yield f"{member}kept the last epoch ({record['epoch']}); {measured}"
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


class TrainingBar(Reporter):
    """A progress bar, used as a context manager around training: one for all epochs of all members."""

    def __init__(self, name: str = "", *, quiet: bool = False) -> None:
        self.name, self.quiet = f"{name} " if name else "", quiet
        self.epochs, self.members, self.now = 0, 1, 0
        #: What has been done so far, stage by stage.
        self.stages: list[dict[str, Any]] = []
        self.calibrating = False
        self.bar = Bar()
        self.documents = 0

    def __enter__(self) -> TrainingBar:
        return self

    def __exit__(self, *ended: object) -> None:
        self.bar.__exit__(*ended)

    def begins(self, dataset: Dataset, labels: int, *, new: int | None = None, processes: int = 1) -> None:
        several, n = f", {processes} processes" if processes > 1 else "", dataset.train.n
        err.print(f"{dataset.name}: {dataset.format}; {n:,} documents, {labels:,} labels{several}", soft_wrap=True)
        if new is None and n < FEWEST_TO_SPLIT:
            err.print(
                f"{n} documents are very few: none are held out, so nothing shows how good the model is; "
                f"wanted at least {FEWEST_TO_SPLIT}, and better some hundred",
                style="yellow",
                soft_wrap=True,
            )
        if new is None and labels == 1:
            err.print("found only one label, which every document will get; wanted two or more", style="yellow")

    def stage(self, record: dict[str, Any]) -> None:
        self.stages.append(record)

    def decided(self, decisions: Sequence[Decision]) -> None:
        if decisions and not self.quiet:
            values = ", ".join(f"{each.name.replace('_', '-')} {each.shown}" for each in decisions)
            err.print(f"decided from the data: {values}", highlight=False, soft_wrap=True)
            for each in decisions:
                if each.tried:
                    err.print(f"{each.name.replace('_', '-')}: {each.why}", highlight=False, soft_wrap=True)

    def plan(self, epochs: int, members: int) -> None:
        self.epochs, self.members = epochs, members
        self.bar.start()

    def member(self, number: int) -> None:
        self.now = number

    def calibration_run(self, documents: int) -> None:
        self.calibrating = True
        if not self.quiet:
            text = f"{self._of(self.now + 1)}calibration run: {documents:,} documents, to calibrate on the others"
            err.print(text, highlight=False)

    def calibration_run_over(self, metrics: dict[str, float]) -> None:
        self.calibrating = False
        if not self.quiet:
            numbers = "".join(f"  {name} {100 * value:.2f}" for name, value in metrics.items())
            err.print(f"{self._of(self.now + 1)}calibrated{numbers}; now all documents", highlight=False)

    def epoch(self, number: int, n_steps: int, done: int) -> None:
        what = f"epoch {number + 1}/{self.epochs}" if number < self.epochs else "held-out rows join"
        self.bar.update(
            total=self.members * self.epochs * n_steps,
            completed=(self.now * self.epochs + number) * n_steps + done,
            description=f"{self._of(self.now + 1)}{'calibration run, ' if self.calibrating else ''}{what}",
        )

    def step(self, taken: StepsTaken) -> None:
        self.documents += taken.documents
        speed = f"{self.documents / max(self.bar.seconds, 1e-9):,.0f} documents/s"
        self.bar.update(advance=taken.steps, numbers=f"loss {taken.loss / taken.steps:.4g}  {speed}")

    def record(self, record: dict[str, Any]) -> None:
        if self.quiet or self.calibrating:
            return
        metrics = "".join(f"  {name} {100 * value:.2f}" for name, value in metrics_of(record).items())
        err.print(
            f"{self._of(record.get('member', 1))}epoch {record['epoch']:>3}/{self.epochs}  "
            f"loss {record['loss']:.4g}{metrics}  {record['documents_per_second']:,} documents/s",
            highlight=False,
        )

    def indexing(self, done: int, total: int) -> None:
        self.bar.update(total=total, completed=done, description="indexing documents", numbers="")

    def _of(self, member: int) -> str:
        """What is trained, in words before its epochs; members are numbered from 1."""
        return f"{self.name}member {member}/{self.members}, " if self.members > 1 else self.name
