"""What does favoring rare labels cost? P@k and PSP@k of trained models over the degree τ, on test rows.

    python benchmarks/rare.py DATA defaults=MODEL accurate=MODEL ... --out benchmarks/results

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
from circlet.runtime import Tagger

DEGREES = (0.0, 0.1, 0.25, 0.3, 0.5, 0.75, 1.0)
DEPTHS = (1, 3, 5)
#: Of the first model, of the second, …
COLORS = ("#1f5fbf", "#7aa6e0", "#0b2a5b")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL", type=lambda text: text.partition("=")[::2])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    dataset = load_dataset(options.data)
    if dataset.test is None:
        parser.error(f"found no test rows in {options.data}; wanted a dataset that has some")
    files.prepare_folder(options.out)
    known = provenance()
    # The result should not contain the paths of this machine.
    known["command"] = "python benchmarks/rare.py DATA " + " ".join(f"{name}=MODEL" for name, _ in options.models)
    result: dict[str, Any] = {
        "benchmark": "rare",
        "provenance": known,
        "data": dataset.name,
        "test_documents": dataset.test.n,
        "models": [curve(name, Model.load(folder), dataset) for name, folder in options.models],
    }
    files.write_json(options.out / "rare.json", result)
    with files.replacing(options.out / "rare.png") as temporary:
        draw(result).savefig(temporary, dpi=110, format="png", metadata={"Software": None})
    for each in result["models"]:
        for found in each["degrees"]:
            values = "  ".join(
                f"{name} {100 * found[name]:.2f}" for name in ("P@1", "P@5", "PSP@1", "PSP@3", "PSP@5")
            )
            print(f"{each['name']}, favor_rare {found['favor_rare']:<4g}  {values}")


def curve(name: str, model: Model, dataset: Dataset) -> dict[str, Any]:
    return {
        "name": name,
        "seed": model.networks[0].settings.seed,
        "network": model.networks[0].settings.as_dict(),
        "members": len(model.networks),
        "training": model.training,
        "n_labels": model.n_labels,
        "calibration": list(model.calibration),
        "degrees": [measured(model, dataset, degree) for degree in DEGREES],
    }


def measured(model: Model, dataset: Dataset, degree: float) -> dict[str, float]:
    found = evaluate_model(Tagger(model), dataset, DEPTHS, favor_rare=degree)
    return {"favor_rare": degree, **{name: round(value, 6) for name, value in found.values.items()}}


def draw(result: dict[str, Any]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4.2), layout="constrained")
    axis = figure.subplots()
    for number, (each, color) in enumerate(zip(result["models"], COLORS, strict=False)):
        points = 100 * np.array([[found["PSP@1"], found["P@1"]] for found in each["degrees"]])
        axis.plot(*points.T, marker="o", color=color)
        above = (0, -16 if number == 1 else 8)  # the second curve is just below the third
        axis.annotate(each["name"], points[0], above, textcoords="offset points", color=color, ha="center")
        for found, point in zip(each["degrees"], points, strict=True):
            if not number and found["favor_rare"]:  # those of the others are near
                axis.annotate(
                    f"{found['favor_rare']:g}", point, (-6, -6), textcoords="offset points", color=color,
                    ha="right", va="top",
                )  # fmt: skip
    axis.margins(x=0.15, y=0.12)
    axis.set_xlabel("PSP@1, % (right labels count more if they are rare)")
    axis.set_ylabel("P@1, %")
    axis.set_title(
        f"{result['data']}, {result['test_documents']:,} test documents, τ at each point", fontsize="medium"
    )
    axis.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    main()
