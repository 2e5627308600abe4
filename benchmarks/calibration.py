"""Does a probability of 0.8 come true in 80 of 100 cases? Reliability on test rows, for each loss.

    python benchmarks/calibration.py --out benchmarks/results

Trains on `pydocs`. The probabilities of the ten best labels of every test document are put into ten bins. A bin's
mean probability should equal the share of its labels that are correct.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from circlet import files
from circlet.data import load_dataset
from circlet.model import fit
from circlet.provenance import provenance
from circlet.settings import RunSettings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    files.prepare_folder(options.out)
    dataset = load_dataset("pydocs")
    result: dict[str, Any] = {
        "benchmark": "calibration",
        "provenance": {**provenance(packages=("scikit-learn",)), "seed": 0},
        "losses": {loss: trained(dataset, loss) for loss in ("bce", "cosine", "softmax")},
    }
    files.write_json(options.out / "calibration.json", result)
    with files.replacing(options.out / "calibration.png") as temporary:
        draw(result).savefig(temporary, dpi=110, format="png", metadata={"Software": None})
    for loss, found in result["losses"].items():
        print(f"{loss}: expected calibration error {100 * found['error']:.1f} %")


def trained(dataset: Any, loss: str) -> dict[str, Any]:
    """The reliability of a model that is trained with this loss."""
    settings = RunSettings.from_preset("default", {"loss": loss})
    model = fit(dataset.train, settings, label_names=dataset.label_names)
    ids, scores = model.top_k(dataset.test.texts, 10)
    return reliability(dataset.test.Y, ids, model.probabilities(scores))


def reliability(Y: Any, ids: np.ndarray, chances: np.ndarray) -> dict[str, Any]:
    """Ten bins of the probabilities `chances` of the labels `ids`, both `(n, k)`, of documents with labels `Y`."""
    chances = chances.ravel()
    rows = np.repeat(np.arange(len(ids)), ids.shape[1])
    right = np.asarray(Y[rows, ids.ravel()]).ravel() > 0
    bins = np.minimum((chances * 10).astype(int), 9)
    counts = np.bincount(bins, minlength=10)
    said = np.bincount(bins, weights=chances, minlength=10) / np.maximum(counts, 1)
    true = np.bincount(bins, weights=right, minlength=10) / np.maximum(counts, 1)
    return {
        "mean_probability": said.round(4).tolist(),
        "share_right": true.round(4).tolist(),
        "count": counts.tolist(),
        "error": round(float((counts * np.abs(said - true)).sum() / counts.sum()), 4),
    }


def draw(result: dict[str, Any]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4.6), layout="constrained")
    axis = figure.subplots()
    axis.plot([0, 1], [0, 1], color="black", lw=1, ls=":", label="perfect")
    for (loss, found), color in zip(result["losses"].items(), ("#1f5fbf", "#d1701f", "#999999"), strict=True):
        kept = np.array(found["count"]) >= 20
        points = np.array(found["mean_probability"])[kept], np.array(found["share_right"])[kept]
        axis.plot(
            *points, marker="o", color=color, label=f"{loss} (off by {100 * found['error']:.1f} % on average)"
        )
    axis.set_xlabel("probability said")
    axis.set_ylabel("share that was right")
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    main()
