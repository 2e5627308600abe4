"""What `circlet tune` gains: on held-out rows, by which it chooses, and on test rows, which it never reads.

    python benchmarks/tuning.py --data DIR [--budget 60] [--device auto]

The folder has a subfolder for each of `SETS`. For each, a search runs for some seconds; then the defaults and what
it found are trained on all training rows, with a seed that the search did not use, and measured on the test rows.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from circlet import files
from circlet.data import Dataset, load_dataset
from circlet.devices import resolve_device
from circlet.metrics.evaluation import evaluate_model
from circlet.model import fit
from circlet.provenance import provenance
from circlet.report import Table
from circlet.settings import RunSettings
from circlet.tuning import Study
from circlet.tuning.changes import as_options

SETS = ("bibtex", "delicious", "eurlex-4k")
RESULTS = Path(__file__).parent / "results"
METRICS = ("P@1", "P@5", "nDCG@5")
#: Of the final models; the search has 0 and 1.
SEED = 10


def tested(dataset: Dataset, given: dict[str, Any], device: Any) -> dict[str, float]:
    """Metrics of a model on the test rows, in percent."""
    known = {name: value for name, value in given.items() if value is not None}
    settings = RunSettings.from_preset("default", known, seed=SEED)
    settings = settings.with_values({name: None for name, value in given.items() if value is None})
    found = evaluate_model(fit(dataset.train, settings, device=device), dataset, (1, 5)).values
    return {metric: round(100 * found[metric], 2) for metric in METRICS}


def measured(name: str, data: Path, budget: float, device: Any) -> dict[str, Any]:
    dataset = load_dataset(data / name)
    with tempfile.TemporaryDirectory() as folder:
        study = Study(dataset, Path(folder) / "tuning.json", device=device)
        best = study.run(budget)
    return {
        "dataset": name,
        "trials": len(study.trials),
        "seconds": round(study.spent, 1),
        "options": " ".join(as_options(best.given)),
        "held_out": {"defaults": study.mean_score({}), "tuned": study.mean_score(best.given)},
        "test": {"defaults": tested(dataset, {}, device), "tuned": tested(dataset, best.given, device)},
    }


def page(result: dict[str, Any]) -> str:
    rows: list[tuple[Any, ...]] = []
    for each in result["sets"]:
        held, test = each["held_out"], each["test"]
        gains = (f"{test['tuned'][m] - test['defaults'][m]:+.1f} ({test['tuned'][m]:.1f})" for m in METRICS)
        gain = f"{held['tuned'] - held['defaults']:+.2f}"
        rows.append((each["dataset"], each["trials"], each["options"] or "the defaults", gain, *gains))
    table = Table(
        "What a search gains over the defaults, points",
        ("", "Trials", "Found", "nDCG@5, held out", *(f"{m}, test" for m in METRICS)),
        rows,
        note="Held-out rows chose, with two draws of them; in parentheses what test rows then show, one seed.",
    )
    about = result["provenance"]
    place = about["machine"].get("gpu") or about["machine"]["processor"]
    return (
        f"# Tuning\n\n{table.markdown()}\n\n`{about['command']}` on {place}, {result['budget']:.0f} s for each.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for each dataset")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    result: dict[str, Any] = {"budget": given.budget, "provenance": provenance(), "sets": []}
    for name in SETS:
        result["sets"].append(measured(name, given.data, given.budget, resolve_device(given.device)))
        print(name, result["sets"][-1])
        files.write_json(given.out / "tuning.json", result)
    files.write_text(given.out / "tuning.md", page(result))


if __name__ == "__main__":
    main()
