"""What does favoring rare labels cost? P@k and PSP@k of a trained model over the degree τ, on test rows.

    python benchmarks/rare.py MODEL DATA --out benchmarks/results

Nothing is trained or chosen here: labels are ranked by p · w^τ for some fixed τ, with the probabilities p and the
inverse propensities w that the model knows, and the test rows alone say how good each ranking is.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from circlet import files
from circlet.data import Dataset, load_dataset
from circlet.metrics.evaluation import evaluate_model
from circlet.model import Model
from circlet.provenance import provenance

DEGREES = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
DEPTHS = (1, 3, 5)
COLOR = "#1f5fbf"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("data")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    model, dataset = Model.load(options.model), load_dataset(options.data)
    if dataset.test is None:
        parser.error(f"found no test rows in {options.data}; wanted a dataset that has some")
    files.prepare_folder(options.out)
    result: dict[str, Any] = {
        "benchmark": "rare",
        "provenance": {**provenance(), "seed": model.network.settings.seed},
        "data": dataset.name,
        "test_documents": dataset.test.n,
        "model": {
            "network": model.network.settings.as_dict(),
            "training": model.training,
            "n_labels": model.n_labels,
            "calibration": list(model.calibration),
        },
        "degrees": [measured(model, dataset, degree) for degree in DEGREES],
    }
    files.write_json(options.out / "rare.json", result)
    with files.replacing(options.out / "rare.png") as temporary:
        draw(result).savefig(temporary, dpi=110, format="png", metadata={"Software": None})
    for found in result["degrees"]:
        values = "  ".join(f"{name} {100 * found[name]:.2f}" for name in ("P@1", "P@5", "PSP@1", "PSP@5"))
        print(f"favor_rare {found['favor_rare']:<4g}  {values}")


def measured(model: Model, dataset: Dataset, degree: float) -> dict[str, float]:
    found = evaluate_model(model, dataset, DEPTHS, favor_rare=degree)
    return {"favor_rare": degree, **{name: round(value, 6) for name, value in found.values.items()}}


def draw(result: dict[str, Any]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4.2), layout="constrained")
    axis = figure.subplots()
    points = 100 * np.array([[found["PSP@1"], found["P@1"]] for found in result["degrees"]])
    axis.plot(*points.T, marker="o", color=COLOR)
    # Each label is above its point, at a right angle to the curve.
    along = np.gradient(points / np.maximum(np.ptp(points, axis=0), 1e-9), axis=0)
    across = np.stack([-along[:, 1], along[:, 0]], axis=1) * np.where(along[:, :1] < 0, -1, 1)
    across *= 15 / np.maximum(np.linalg.norm(across, axis=1, keepdims=True), 1e-9)
    for found, point, offset in zip(result["degrees"], points, across, strict=True):
        label = f"{found['favor_rare']:g}" if found["favor_rare"] else "τ = 0"
        kept = {"xytext": offset, "textcoords": "offset points", "ha": "center", "va": "center"}
        axis.annotate(label, point, color=COLOR, **kept)
    axis.margins(x=0.15, y=0.12)
    axis.set_xlabel("PSP@1, % (right labels count more if they are rare)")
    axis.set_ylabel("P@1, %")
    axis.set_title(f"{result['data']}, {result['test_documents']:,} test documents", fontsize="medium")
    axis.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    main()
