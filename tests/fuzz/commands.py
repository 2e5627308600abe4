"""Data files given to commands, which do more with them than read them."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from tests.fuzz.models import NAMES, QUICK, command, documents, targets
from tests.fuzz.subjects import FolderSubject

from circlet.data.records import Record, write_records
from circlet.data.xmc import write_xmc


def subjects(folder: Path) -> list[FolderSubject]:
    """All of them; the folder has the models that `models.subjects` saved."""
    rows, Y = documents("sparse", 4), targets(4)
    records = [
        Record(n, text, tuple(NAMES[label] for label in Y[n].indices), f"id {n}")
        for n, text in enumerate(documents("texts", 4))
    ]
    write_xmc(folder / "train.txt", rows, Y)
    found = []
    for file, model in (("train.txt", "matrix-0"), ("train.csv", "text-0"), ("train.jsonl", "text-0")):
        if model == "text-0":
            write_records(folder / file, records, file.partition(".")[2])
        tree = {file: (folder / file).read_bytes()}
        for name, ask in (("predicted", _predicted), ("evaluated", _evaluated)):
            answer = partial(ask, model=folder / model)
            found.append(FolderSubject(f"data in {file}, {name}", tree, [], answer, exact=False, weight=0.4))
        for name, alone in (("described", _described), ("trained on", _trained)):
            found.append(FolderSubject(f"data in {file}, {name}", tree, [], alone, exact=False, weight=0.2))
    return found


def _predicted(folder: Path, model: Path) -> Any:
    if folder.is_fifo():
        return None  # the command reads it as it comes, and nobody writes into it
    output = folder.with_name("answers.jsonl")
    output.unlink(missing_ok=True)
    command("predict", str(model), str(folder), "--output", str(output), "-k", "2")
    content = output.read_text(encoding="utf-8")
    for line in content.splitlines():
        assert all(0 <= score <= 1 for score in json.loads(line)["scores"])
    return content


def _evaluated(folder: Path, model: Path) -> Any:
    found = json.loads(command("evaluate", str(model), str(folder), "--json"))
    assert all(0 <= value <= 1 for name, value in found.items() if "@" in name), "a measure is out of range"
    return {name: value for name, value in found.items() if name not in ("model", "data")}


def _described(folder: Path) -> Any:
    return command("datasets", "info", str(folder))


def _trained(folder: Path) -> Any:
    model = folder.with_name("trained")
    shutil.rmtree(model, ignore_errors=True)
    command("train", str(folder), "--model", str(model), "--device", "cpu", *QUICK)
    return sorted(path.name for path in model.iterdir())
