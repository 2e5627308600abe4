"""What `circlet tune` gains: on held-out rows, by which it chooses, and on test rows, which it never reads.

    python benchmarks/tuning.py --data DIR [--budget 600] [--device auto]

The folder has a subfolder for each of `SETS`. For each, a search runs for some seconds; then the defaults and what
it found are trained on all training rows, with seeds that the search did not use, and measured on the test rows.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from circlet import files
from circlet.data import Dataset, load_dataset
from circlet.metrics.evaluation import evaluate_model
from circlet.model import fit
from circlet.provenance import provenance
from circlet.report import Table
from circlet.runtime import Tagger
from circlet.settings import RunSettings
from circlet.training import resolve_device
from circlet.tuning import Study
from circlet.tuning.changes import as_options

SETS = ("bibtex", "delicious", "eurlex-4k")
RESULTS = Path(__file__).parent / "results"
METRICS = ("P@1", "P@5", "nDCG@5")
#: Of the final models; the search has 0 to 4.
SEEDS = (10, 11, 12)


def tested(dataset: Dataset, given: dict[str, Any], device: Any) -> dict[str, Any]:
    """Metrics on the test rows in percent and training times, for each seed, and how large a model is."""
    known = {name: value for name, value in given.items() if value is not None}
    found: dict[str, Any] = {metric: [] for metric in METRICS}
    seconds, model = [], None
    for seed in SEEDS:
        settings = RunSettings.from_preset("default", known, seed=seed)
        settings = settings.with_values({name: None for name, value in given.items() if value is None})
        started = time.perf_counter()
        model = fit(dataset.train, settings, device=device)
        seconds.append(round(time.perf_counter() - started, 2))
        values = evaluate_model(Tagger(model), dataset, (1, 5)).values
        for metric in METRICS:
            found[metric].append(round(100 * values[metric], 2))
    assert model is not None
    return {**found, "seconds": seconds, "parameters": model.ranker.parameter_counts()["total"]}


def measured(name: str, data: Path, budget: float, device: Any) -> dict[str, Any]:
    dataset = load_dataset(data / name)
    with tempfile.TemporaryDirectory() as folder:
        study = Study(dataset, Path(folder) / "tuning.json", device=device)
        best = study.run(budget)
    return {
        "dataset": name,
        "trials": len(study.trials),
        "settings": len(study.tried),
        "draws": study.draws,
        "seconds": round(study.spent, 1),
        "options": " ".join(as_options(best)),
        "held_out": {
            "defaults": study.scores({}),
            "tuned": study.scores(best),
            "gain": round(study.gain(best), 3),
        },
        "test": {"defaults": tested(dataset, {}, device), "tuned": tested(dataset, best, device)},
        "tried": [{"options": " ".join(as_options(each)), "scores": study.scores(each)} for each in study.tried],
    }


def page(result: dict[str, Any]) -> str:
    rows: list[tuple[Any, ...]] = []
    for each in result["sets"]:
        tuned, usual = each["test"]["tuned"], each["test"]["defaults"]
        gains = (
            f"{np.mean(tuned[metric]) - np.mean(usual[metric]):+.1f} ({np.mean(tuned[metric]):.1f})"
            for metric in METRICS
        )
        row = each["dataset"], each["settings"], each["options"] or "the defaults"
        larger = f"{tuned['parameters'] / usual['parameters']:.1f} ×"
        longer = f"{np.mean(tuned['seconds']) / np.mean(usual['seconds']):.1f} ×"
        rows.append((*row, f"{each['held_out']['gain']:+.2f}", *gains, larger, longer))
    columns = ("", "Tried", "Found", "nDCG@5, held out", *(f"{metric}, test" for metric in METRICS))
    table = Table(
        "What a search gains over the defaults, points",
        (*columns, "Parameters", "Training"),
        rows,
        note=(
            "Held-out rows chose. Test rows were never read by the search; their columns show the gain, mean of "
            f"{len(SEEDS)} seeds, and in parentheses what the tuned models reach. Parameters and training time "
            "are those of a tuned model, divided by the defaults'."
        ),
    )
    about = result["provenance"]
    place = about["machine"].get("gpu") or about["machine"]["processor"]
    return (
        f"# Tuning\n\n{table.markdown()}\n\n`{about['command']}` on {place}, {result['budget']:.0f} s for each.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=600.0, help="seconds for each dataset")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    result: dict[str, Any] = {"budget": given.budget, "provenance": provenance(), "sets": []}
    for name in SETS:
        result["sets"].append(measured(name, given.data, given.budget, resolve_device(given.device)))
        print(name, result["sets"][-1]["options"], result["sets"][-1]["held_out"], result["sets"][-1]["test"])
        files.write_json(given.out / "tuning.json", result)
    files.write_text(given.out / "tuning.md", page(result))


if __name__ == "__main__":
    main()
