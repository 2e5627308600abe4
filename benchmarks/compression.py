"""How accurate a model is in fewer and fewer bytes, beside the sizes of other libraries' models.

    python benchmarks/compression.py eurlex-4k=eurlex-model=eurlex-4k pydocs=pydocs-model=pydocs

Each argument is a dataset's name in `results/peers`, the folder of a model that `circlet train` wrote, and the
data that it was trained on. The model is copied in each way of storing weights, and as `circlet compress` chooses
for several losses and for a size. For that it uses only what training kept with the model: held-out rows or, of a
model of few documents, what its calibration run lost. The copies are then evaluated on the test rows, which no
choice has seen.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter
from matplotlib.transforms import Bbox
from peers_cells import NAMES, THEIRS, Cells, collect, is_measured

from circlet import files
from circlet.data import load_dataset
from circlet.errors import ParameterError
from circlet.metrics.evaluation import evaluate_model
from circlet.provenance import provenance
from circlet.report import Table
from circlet.runtime import RuntimeModel, Tagger
from circlet.runtime.compression import Curve, best_that_fits, compress, known_losses, smallest_within
from circlet.storage.layout import read_config
from circlet.storage.tensors import STORES

RESULTS = Path(__file__).parent / "results"
#: Points of nDCG@5 that `circlet compress` may lose on held-out rows, and a number of bytes that it may take.
LOSSES, SIZE = (0.1, 0.2, 0.5, 1.0), 5_000_000
FITTING = f"{SIZE // 10**6} MB"
#: What is measured on test rows, and which of it the picture shows.
METRICS = ("P@1", "P@5", "nDCG@5")
SHOWN = "nDCG@5"
#: Steps that are named in the picture; the others would overlap.
NAMED = ("float32", "int8", "int4", "loss 0.2", "loss 1")
OUR_COLOR, THEIR_COLOR = "#1f5fbf", "#777777"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="NAME=MODEL=DATA", help="none to make the page again")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    datasets, seeds = {}, {}
    for words in options.models:
        name, model, data = words.split("=")
        seeds[name] = read_config(Path(model))["network"]["seed"]
        datasets[name] = measured(Path(model), data)
        for step, cell in datasets[name].items():
            print(name, step, cell, flush=True)
    files.prepare_folder(options.out)
    path = options.out / "compression.json"
    if datasets:
        about = {"benchmark": "compression", "provenance": provenance(), "seeds": seeds}
        files.write_json(path, {**about, "datasets": datasets})
    datasets, peers = files.read_json(path)["datasets"], collect(RESULTS / "peers")
    page = "\n".join(table_of(name, cells, peers.get(name, {})).markdown() for name, cells in datasets.items())
    files.write_text(
        options.out / "compression.md", f"# Small models\n\n![nDCG@5 against bytes](compression.png)\n\n{page}"
    )
    with files.replacing(options.out / "compression.png") as temporary:
        draw(datasets, peers).savefig(temporary, dpi=110, format="png")


def measured(folder: Path, data: str) -> dict[str, dict[str, Any]]:
    """Size and accuracy of a model in each way of storing its weights."""
    dataset, known = load_dataset(data), known_losses(folder)
    if known is None or dataset.test is None:
        raise SystemExit(f"{folder}, {data}: wanted a model that knows what it loses, and data with test rows")
    out: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        steps: list[str | float] = [*STORES, FITTING, *LOSSES]
        for step in steps:
            copy, about = Path(scratch) / str(step), {}
            started = time.perf_counter()
            if step in STORES:
                compress(folder, copy, str(step))
            else:
                try:
                    if isinstance(step, float):
                        found = smallest_within(folder, known, step)
                    else:
                        found = best_that_fits(folder, known, SIZE)
                except ParameterError as error:  # the model is much larger, or every step loses more
                    print(f"{folder}, {step}: {error}")
                    continue
                found.write(copy)
                about = {
                    "by": "rehearsal" if isinstance(known, Curve) else f"{known.labels.shape[0]} rows",
                    "held_out_loss": found.chosen.loss,
                    "coarseness": found.chosen.coarseness,
                }
            took = time.perf_counter() - started
            started = time.perf_counter()
            model = RuntimeModel.load(copy)
            load_s = time.perf_counter() - started
            values = evaluate_model(Tagger(model), dataset, (1, 5)).values
            out[step if isinstance(step, str) else f"loss {step:g}"] = {
                "bytes": sum(path.stat().st_size for path in copy.iterdir()),
                **{name: values[name] for name in METRICS},
                "compress_s": took,
                "load_s": load_s,
                **about,
            }
            shutil.rmtree(copy)
    return out


def table_of(dataset: str, cells: dict[str, dict[str, Any]], peers: Cells) -> Table:
    whole = cells["float32"]
    rows = [
        (
            step,
            f"{cell['bytes'] / 1e6:.2f}",
            *(f"{100 * cell[name]:.2f}" for name in METRICS),
            f"{100 * (whole['nDCG@5'] - cell['nDCG@5']):+.2f}",
            f"{cell['held_out_loss']:+.2f}" if "held_out_loss" in cell else "",
        )
        for step, cell in cells.items()
    ]
    for peer in THEIRS:
        if is_measured(peers, peer):
            size, metrics = peers[peer]["measured"]["model_bytes"], peers[peer]["metrics"]
            shown = (f"{100 * metrics[name]:.2f}" if name in metrics else "" for name in METRICS)
            rows.append((NAMES[peer][0], f"{size / 1e6:.2f}", *shown, "", ""))
    by = next(cell["by"] for cell in cells.values() if "by" in cell)
    note = "Accuracies, and points lost, are of test rows. What was expected to be lost was known from " + (
        "a rehearsal without some of the rows." if by == "rehearsal" else f"{by} that training held out."
    )
    return Table(dataset, ("", "MB", *METRICS, "points lost", "expected"), rows, note)


def draw(datasets: dict[str, dict[str, dict[str, Any]]], peers: dict[str, Cells]) -> Figure:
    """nDCG@5 against bytes, a panel for each dataset."""
    figure = Figure(figsize=(12.6, 7.6), layout="constrained")
    panels, names = figure.subplots(2, 3).ravel(), []
    for axis, (name, cells) in zip(panels, datasets.items(), strict=False):
        ours = sorted((cell["bytes"] / 1e6, 100 * cell[SHOWN], step) for step, cell in cells.items())
        axis.plot(
            *zip(*((size, value) for size, value, _ in ours), strict=True), "o-", ms=4, lw=1, color=OUR_COLOR
        )
        known = [(size, value, step) for size, value, step in ours if step in NAMED]
        theirs = [
            (cell["measured"]["model_bytes"] / 1e6, 100 * cell["metrics"][SHOWN], NAMES[peer][1])
            for peer, cell in peers.get(name, {}).items()
            if peer in THEIRS and is_measured(peers[name], peer)
        ]
        axis.plot(*zip(*((size, value) for size, value, _ in theirs), strict=True), "o", ms=4, color=THEIR_COLOR)
        axis.set(xscale="log", xlabel="size of the model, MB", ylabel=f"{SHOWN}, %")
        axis.margins(0.18, 0.12)
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set_title(name, fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
        names.append(
            (axis, [(*point, OUR_COLOR) for point in known] + [(*point, THEIR_COLOR) for point in theirs])
        )
    for axis in panels[len(datasets) :]:
        axis.set_axis_off()
    figure.draw_without_rendering()  # only now is known where points are
    for axis, points in names:
        annotate(axis, points)
    return figure


def annotate(axis: Any, points: list[tuple[float, float, str, str]]) -> None:
    """Write each point's name beside it, on the first side where it covers neither a point nor another name."""
    sides = (((0, 6), "center"), ((0, -12), "center"), ((6, -3), "left"), ((-6, -3), "right"))
    taken = [
        Bbox.from_bounds(x - 3, y - 3, 6, 6) for x, y in axis.transData.transform([point[:2] for point in points])
    ]
    for size, value, text, color in points:
        for shift, align in sides:
            name = axis.annotate(text, (size, value), shift, textcoords="offset points", ha=align, fontsize=8,
                                 color=color)  # fmt: skip
            box = name.get_window_extent()
            if not any(box.overlaps(other) for other in taken):
                break
            name.remove()
        else:
            axis.add_artist(name)
        taken.append(box)


if __name__ == "__main__":
    main()
