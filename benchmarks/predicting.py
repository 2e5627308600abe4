"""Training and predicting EURLex-4K with the defaults, compared with omikuji's Parabel-like default.

    python benchmarks/predicting.py DATA --out benchmarks/results

Each side predicts in its own process: start, load the model, read the test rows, write the top 5 of each. The
sides take turns. circlet's metrics measure the accuracy of both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from circlet import files
from circlet.data import load_dataset
from circlet.data.xmc import write_xmc
from circlet.metrics import evaluate, inverse_propensity
from circlet.provenance import provenance
from circlet.report import Table

OMIKUJI = """
import sys, json, omikuji
from pathlib import Path
model = omikuji.Model.load(sys.argv[1])
with open(sys.argv[3], "w") as out:
    for line in Path(sys.argv[2]).read_text().splitlines()[1:]:
        features = [(int(i), float(v)) for i, v in (pair.split(":") for pair in line.partition(" ")[2].split())]
        out.write(json.dumps([label for label, _ in model.predict(features, top_k=5)]) + "\\n")
"""
ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", default="eurlex-4k")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    files.prepare_folder(options.out)
    dataset = load_dataset(options.data)
    with tempfile.TemporaryDirectory() as folder:
        sides = measure(options.data, dataset, Path(folder))
    result = {
        "benchmark": "predicting",
        "provenance": {**provenance(packages=("omikuji",)), "seed": 0, "rounds": ROUNDS},
        "sides": sides,
    }
    files.write_json(options.out / "predicting.json", result)
    page = table(result)
    files.write_text(options.out / "predicting.md", page.markdown())
    print(page.markdown())


def measure(data: str, dataset: Any, folder: Path) -> dict[str, dict[str, Any]]:
    import omikuji

    train, test = folder / "train.txt", folder / "test.txt"
    write_xmc(train, dataset.train.X, dataset.train.Y)
    write_xmc(test, dataset.test.X, dataset.test.Y)
    sides: dict[str, dict[str, Any]] = {"circlet": {}, "omikuji": {}}

    start = time.perf_counter()
    circlet = [sys.executable, "-m", "circlet"]
    subprocess.run([*circlet, "train", data, "--model", str(folder / "c")], check=True, stderr=subprocess.DEVNULL)
    sides["circlet"]["train_s"] = time.perf_counter() - start
    start = time.perf_counter()
    omikuji.Model.train_on_data(str(train), omikuji.Model.default_hyper_param(), n_threads=2).save(
        str(folder / "o")
    )
    sides["omikuji"]["train_s"] = time.perf_counter() - start

    commands = {
        "circlet": [*circlet, "predict", str(folder / "c"), str(test), "--output", str(folder / "circlet.jsonl")],
        "omikuji": [sys.executable, "-c", OMIKUJI, str(folder / "o"), str(test), str(folder / "omikuji.jsonl")],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            start = time.perf_counter()
            subprocess.run(command, check=True)
            times[name].append(time.perf_counter() - start)

    weights = inverse_propensity(dataset.train.Y)
    for name, model in (("circlet", "c"), ("omikuji", "o")):
        rows = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        ranked = np.array([row["labels"] if isinstance(row, dict) else row for row in rows])
        values = evaluate(dataset.test.Y, ranked, weights, metrics=("P", "PSP"))
        size = sum(path.stat().st_size for path in (folder / model).rglob("*") if path.is_file())
        sides[name] |= {"predict_s": statistics.median(times[name]), "bytes": size, **values}
    return sides


def table(result: dict[str, Any]) -> Table:
    def row(name: str, side: dict[str, Any]) -> tuple[str, ...]:
        percents = ["/".join(f"{100 * side[f'{metric}@{k}']:.1f}" for k in (1, 3, 5)) for metric in ("P", "PSP")]
        seconds = (f"{side['train_s']:.0f}", f"{side['predict_s']:.1f}")
        return (name, *percents, *seconds, f"{side['bytes'] / 1e6:.1f}")

    return Table(
        "EURLex-4K with defaults, 2 cores",
        ("", "P@1/3/5", "PSP@1/3/5", "train, s", "predict 3,809, s", "model, MB"),
        [row(name, side) for name, side in result["sides"].items()],
        note=f"`{result['provenance']['command']}`, omikuji {result['provenance']['versions']['omikuji']}.",
    )


if __name__ == "__main__":
    main()
