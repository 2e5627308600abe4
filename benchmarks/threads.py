"""How threads should wait: training on an idle machine, and beside a busy process.

torch's threads meet at the end of every parallel loop. By default OpenMP lets them spin while they wait. That
takes cores from other processes, and if one thread has lost its core, the others spin until it gets one again.
OpenMP reads its policy once, from the environment, so each measurement is a process of its own. Policies take
turns.

    python benchmarks/threads.py [--out benchmarks/results]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from circlet import files
from circlet.provenance import provenance
from circlet.report import Table

#: What each policy sets.
POLICIES: dict[str, dict[str, str]] = {
    "spin 300,000 times (OpenMP's default)": {"GOMP_SPINCOUNT": "300000"},
    "spin 10,000 times": {"GOMP_SPINCOUNT": "10000"},
    "spin 1,000 times (circlet's default)": {"GOMP_SPINCOUNT": "1000"},
    "sleep at once": {"OMP_WAIT_POLICY": "PASSIVE"},
}
REPETITIONS = 5
WORK = """
from circlet_paper.synthetic import make_multilabel
from circlet.features import Scaling
from circlet.network import Network, NetworkSettings
from circlet.settings import TrainingSettings
from circlet.training import train

split = make_multilabel(4000, 5000, 4000, seed=0, labels_per_row=5, words_per_row=200).train
X = Scaling("sqrt").fit(split.X).transform(split.X)
network = Network(NetworkSettings(), 5000, 4000, sparse=True)
print(train(network, X, split.Y, TrainingSettings(epochs=2))[-1]["documents_per_second"])
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    found: dict[str, dict[str, list[int]]] = {name: {"idle": [], "busy": []} for name in POLICIES}
    for _ in range(REPETITIONS):
        for name, policy in POLICIES.items():
            for state, speeds in found[name].items():
                speeds.append(documents_per_second(policy, busy=state == "busy"))
                print(f"{name}, {state}: {speeds[-1]:,} documents/s", flush=True)
    result: dict[str, Any] = {
        "benchmark": "threads",
        "provenance": {**provenance(), "seed": 0},
        "documents_per_second": found,
    }
    files.write_json(options.out / "threads.json", result)
    table = table_of(result)
    files.write_text(options.out / "threads.md", f"# How threads wait\n\n{table.markdown()}")
    print(table.markdown())


def documents_per_second(policy: dict[str, str], *, busy: bool) -> int:
    """Of the second epoch, in a process of its own, beside one that never rests if `busy`."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"])] if busy else []
    try:
        done = subprocess.run(
            [sys.executable, "-c", WORK],
            env={**os.environ, **policy},
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        for other in others:
            other.kill()
            other.wait()
    return int(done.stdout)


def table_of(result: dict[str, Any]) -> Table:
    """The median of each policy and its ratio to the first."""
    medians = {
        name: {state: statistics.median(speeds) for state, speeds in these.items()}
        for name, these in result["documents_per_second"].items()
    }
    first = next(iter(medians.values()))
    rows = [
        (name, *(f"{these[state] / first[state]:.2f}×" for state in ("idle", "busy")))
        for name, these in medians.items()
    ]
    note = (
        f"Documents per second in training, as a ratio to spinning: medians of {REPETITIONS} runs that took "
        f"turns, on {result['provenance']['machine']['cores']} cores, alone and beside one process that is "
        "always busy."
    )
    return Table("Training speed by how threads wait", ("", "idle machine", "busy machine"), rows, note)


if __name__ == "__main__":
    main()
