"""How long a user waits for `circlet --help` and for `circlet predict` on one line, and for importing torch.

    python benchmarks/startup.py --out benchmarks/results

The model is trained on `pydocs` with the default sizes for one epoch: loading it takes as long as after thirty.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from circlet import files
from circlet.provenance import provenance
from circlet.report import Table

COMMAND = Path(sys.executable).with_name("circlet")
GOALS = {"circlet --help": 0.3, "circlet predict MODEL -": 0.5, 'python -c "import torch"': None}
ROUNDS = 9
LINE = b"solve a sparse linear system\n"
#: Prints which of the heavy modules `--help` imports.
HEAVY = """
import sys
from circlet.cli import main
sys.argv = ["circlet", "--help"]
try:
    main()
finally:
    print(*(name for name in ("torch", "scipy", "sklearn", "numpy") if name in sys.modules), file=sys.stderr)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    files.prepare_folder(options.out)
    heavy = subprocess.run([sys.executable, "-c", HEAVY], check=True, capture_output=True, text=True)
    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder) / "model")
        train = [str(COMMAND), "train", "pydocs", "--model", model, "--epochs", "1"]
        subprocess.run(train, check=True, stderr=subprocess.DEVNULL)
        size = sum(path.stat().st_size for path in Path(model).iterdir())
        alone = [sys.executable, "-c", "import torch"]
        ours = ([str(COMMAND), *arguments] for arguments in (["--help"], ["predict", model, "-"]))
        commands = dict(zip(GOALS, (*ours, alone), strict=True))
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(ROUNDS):
            for name, command in commands.items():
                start = time.perf_counter()
                subprocess.run(command, check=True, input=LINE, capture_output=True)
                times[name].append(time.perf_counter() - start)
    result = {
        "benchmark": "startup",
        "provenance": {**provenance(), "rounds": ROUNDS},
        "imported_by_help": heavy.stderr.split(),
        "model_bytes": size,
        "seconds": {name: {"best": min(t), "median": statistics.median(t)} for name, t in times.items()},
    }
    files.write_json(options.out / "startup.json", result)
    page = table(result).markdown()
    files.write_text(options.out / "startup.md", page)
    print(page)


def table(result: dict[str, Any]) -> Table:
    rows = [
        (f"`{name}`", f"{found['best']:.2f}", f"{found['median']:.2f}", GOALS[name])
        for name, found in result["seconds"].items()
    ]
    heavy = ", ".join(result["imported_by_help"]) or "none of torch, scipy, sklearn and numpy"
    return Table(
        "Start-up, seconds",
        ("", f"best of {result['provenance']['rounds']}", "median", "goal"),
        rows,
        note=f"`--help` imports {heavy}. The model has {result['model_bytes'] / 1e6:.0f} MB.",
    )


if __name__ == "__main__":
    main()
