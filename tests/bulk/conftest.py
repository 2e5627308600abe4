"""A small model of texts in a folder, and documents in files of every format."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

#: Texts that are hard to cut: line ends within quotes, quotes, other line ends, and other scripts.
HARD = ["label0 one", "two\nlines", 'a "quoted" label1', "label2,\r\n,three", "日本 label4", 'a"b', '",\n",']


@pytest.fixture(scope="session")
def model(shared, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "texts"
    shared("texts").save(folder)
    return folder


@pytest.fixture(scope="session")
def texts() -> Callable[[int], list[str]]:
    """Make texts of different lengths, no two alike."""

    def make(n: int) -> list[str]:
        return [f"{HARD[row % len(HARD)]} {'six ' * (row % 5)}{row}" for row in range(n)]

    return make


@pytest.fixture(scope="session")
def write() -> Callable[..., Path]:
    """Write texts to a file in the format that its name says, with ids if they are given."""

    def write(path: Path, texts: list[str], ids: list[Any] | None = None, **options: Any) -> Path:
        rows = [
            {"text": text} if ids is None else {"id": ids[row], "text": text} for row, text in enumerate(texts)
        ]
        if path.suffix == ".jsonl":
            lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
            path.write_bytes("".join(lines).encode())
        elif path.suffix in (".csv", ".tsv"):
            with path.open("w", encoding="utf-8", newline="") as stream:
                table = csv.DictWriter(stream, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
                table.writeheader()
                table.writerows(rows)
        else:
            pyarrow = pytest.importorskip("pyarrow")
            parquet = pytest.importorskip("pyarrow.parquet")
            schema = None if rows else pyarrow.schema({"text": pyarrow.string()})
            parquet.write_table(pyarrow.Table.from_pylist(rows, schema), path, **options)
        return path

    return write


def _read(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob("part-*")):
        if path.suffix == ".jsonl":
            rows += map(json.loads, path.read_text(encoding="utf-8").splitlines())
        elif path.suffix == ".parquet":
            rows += pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()
        else:
            with path.open(encoding="utf-8", newline="") as stream:
                for row in csv.DictReader(stream, delimiter="\t" if path.suffix == ".tsv" else ","):
                    lists = {name: json.loads(value) for name, value in row.items() if name != "id"}
                    rows.append({"id": row["id"], **lists})
    return rows


@pytest.fixture(scope="session")
def read() -> Callable[[Path], list[dict[str, Any]]]:
    """Read all parts of a run, in the order of their names."""
    return _read


@pytest.fixture
def at_home(tmp_path) -> dict[str, str]:
    """An environment with a folder of the user that may be written to: Ray keeps a token there."""
    (tmp_path / "home").mkdir()
    return {**os.environ, "HOME": str(tmp_path / "home"), "USERPROFILE": str(tmp_path / "home")}


@pytest.fixture
def started(at_home) -> Callable[..., subprocess.Popen[str]]:
    """Start `circlet predict` with these words in a process of its own."""

    def start(*words: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "circlet", "predict", *map(str, words)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, encoding="utf-8", env=at_home)

    return start
