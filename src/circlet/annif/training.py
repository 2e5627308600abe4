"""Train a project's model, and train it further; only this module of the backend imports torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from scipy.fft import next_fast_len

from circlet.data import Dataset, Split
from circlet.data.load import read_splits
from circlet.data.records import Record, iter_records
from circlet.model import Model
from circlet.model.plan import Decider
from circlet.model.session import begin, go_on, store_of
from circlet.settings import Decision, RunSettings
from circlet.storage.contents import metrics_of
from circlet.training import Reporter, resolve_device


class Log(Reporter):
    """Writes decisions and the results of each epoch to Annif's log."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self.say, self.epochs = say, 0

    def begins(self, dataset: Dataset, labels: int, *, new: int | None = None, processes: int = 1) -> None:
        self.say(f"learning from {dataset.train.n:,} documents, with {new or 0:,} new subjects")

    def decided(self, decisions: Sequence[Decision]) -> None:
        self.say("decided: " + ", ".join(f"{each.name} {each.shown}" for each in decisions))

    def plan(self, epochs: int, members: int) -> None:
        self.epochs = epochs

    def calibration_run(self, documents: int) -> None:
        self.say(f"training on {documents:,} documents first, to calibrate probabilities on the others")

    def calibration_run_over(self, metrics: dict[str, float]) -> None:
        self.say("without them: " + _shown(metrics))

    def record(self, record: dict[str, Any]) -> None:
        member = f"member {record['member']}, " if "member" in record else ""
        numbers = _shown({"loss": record["loss"], **metrics_of(record)})
        self.say(f"{member}epoch {record['epoch']} of {self.epochs}: {numbers}")


def _shown(numbers: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in numbers.items())


def fitted(
    path: Path, settings: RunSettings, device: str, say: Callable[[str], object], subjects: int = 0
) -> Model:
    """Train a model on the documents of a file, with room for so many subjects in all."""
    split, _, names = read_splits(iter_records(path, "jsonl"))
    if len(names) < subjects and settings.network.slots is None and settings.network.codebook_name == "spectral":
        settings = with_room(settings, split, subjects)
    return begin(split, settings, label_names=names, device=resolve_device(device), reporter=Log(say))


def with_room(settings: RunSettings, split: Split, subjects: int) -> RunSettings:
    """Return settings with a slot for each of so many subjects; the documents have only some of them."""
    dim = Decider(split, settings).by_rule().network.dim
    half = next_fast_len(max((subjects + 1) // 2, dim + 1), real=True)
    return settings.with_values({"slots": 2 * int(half)})


def learn(folder: Path, new: list[Record], *, epochs: int, device: str, say: Callable[[str], object]) -> None:
    """Train the model in a folder further, on new documents, and add their new subjects."""
    model = Model.load(folder, resolve_device(device))
    split, _, names = read_splits(new)
    go_on(model, Dataset("learn", split, label_names=names), reporter=Log(say), epochs=epochs)
    model.save(folder, store_of(folder))
