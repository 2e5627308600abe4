"""How accurate a model is in fewer and fewer bytes, beside the sizes of other libraries' models.

    python benchmarks/compression.py eurlex-4k=eurlex-model=eurlex-4k delicious=delicious-model=delicious

Each argument is a dataset's name in `results/peers`, the folder of a model that `circlet train` wrote, and the
data that it was trained on. The model is copied in each way of storing weights, and once as `circlet compress`
chooses, which measures only on the rows that training held out and kept with the model. The copies are then
evaluated on the test rows, which no choice has seen.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from peers_cells import NAMES, THEIRS, Cells, collect, is_measured

from circlet import files
from circlet.data import load_dataset
from circlet.folder.compress import compress, write_copy
from circlet.folder.config import read_config
from circlet.folder.deflated import DEFLATED
from circlet.folder.layout import SAMPLE
from circlet.folder.precision import STORES
from circlet.folder.sample import read_sample
from circlet.metrics.evaluation import evaluate_model
from circlet.provenance import provenance
from circlet.report import Table
from circlet.runtime import RuntimeModel
from circlet.runtime.smallest import smallest_within

RESULTS = Path(__file__).parent / "results"
#: Points of nDCG@5 that `circlet compress` may lose on held-out rows.
LOSS = 0.2
FOUND = f"loss {LOSS}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL=DATA")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    datasets = {}
    for words in options.models:
        name, model, data = words.split("=")
        datasets[name] = measured(Path(model), data)
        for step, cell in datasets[name].items():
            print(name, step, cell, flush=True)
    result = {"benchmark": "compression", "provenance": provenance(), "loss": LOSS, "datasets": datasets}
    files.prepare_folder(options.out)
    files.write_json(options.out / "compression.json", result)
    peers = collect(RESULTS / "peers")
    page = "\n".join(table_of(name, cells, peers.get(name, {})).markdown() for name, cells in datasets.items())
    title = "# Small models\n\n![P@1 against bytes](compression.png)\n\n"
    files.write_text(options.out / "compression.md", title + page)
    with files.replacing(options.out / "compression.png") as temporary:
        draw(datasets, peers).savefig(temporary, dpi=110, format="png")
    print(page)


def measured(folder: Path, data: str) -> dict[str, dict[str, Any]]:
    """Size and accuracy of a model in each way of storing its weights."""
    dataset = load_dataset(data)
    sample = read_sample(folder, read_config(folder))
    if sample is None or dataset.test is None:
        raise SystemExit(f"{folder}, {data}: wanted a model with {SAMPLE}, and data with test rows")
    out: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for step in (*STORES, FOUND):
            copy, about = Path(scratch) / step, {}
            started = time.perf_counter()
            if step == FOUND:
                found = smallest_within(folder, sample, LOSS)
                write_copy(folder, copy, found.weights, DEFLATED, found.config)
                about = {
                    "held_out_rows": int(sample.labels.shape[0]),
                    "held_out_loss": found.chosen.loss,
                    "coarseness": found.chosen.coarseness,
                    "tried": len(found.tried),
                }
            else:
                compress(folder, copy, step)
            took = time.perf_counter() - started
            started = time.perf_counter()
            model = RuntimeModel.load(copy)
            load_s = time.perf_counter() - started
            values = evaluate_model(model, dataset, (1, 5)).values
            out[step] = {
                "bytes": sum(path.stat().st_size for path in copy.iterdir()),
                "P@1": values["P@1"],
                "nDCG@5": values["nDCG@5"],
                "compress_s": took,
                "load_s": load_s,
                **about,
            }
    return out


def table_of(dataset: str, cells: dict[str, dict[str, Any]], peers: Cells) -> Table:
    whole = cells["float32"]
    rows = [
        (
            step,
            f"{cell['bytes'] / 1e6:.2f}",
            f"{100 * cell['P@1']:.2f}",
            f"{100 * cell['nDCG@5']:.2f}",
            f"{100 * (whole['nDCG@5'] - cell['nDCG@5']):+.2f}",
            f"{cell['load_s']:.2f}",
        )
        for step, cell in cells.items()
    ]
    for peer in THEIRS:
        if is_measured(peers, peer):
            size, first = peers[peer]["measured"]["model_bytes"], peers[peer]["metrics"]["P@1"]
            rows.append((NAMES[peer][0], f"{size / 1e6:.2f}", f"{100 * first:.2f}", "", "", ""))
    found = cells[FOUND]
    note = (
        f"Accuracies are of test rows. The last of circlet's was chosen on {found['held_out_rows']:,} rows that "
        f"training held out, where it loses {found['held_out_loss']:.2f} points."
    )
    return Table(dataset, ("", "MB", "P@1", "nDCG@5", "points lost", "load, s"), rows, note)


def draw(datasets: dict[str, dict[str, dict[str, Any]]], peers: dict[str, Cells]) -> Any:
    """P@1 against bytes, a panel for each dataset."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = Figure(figsize=(4.6 * len(datasets), 3.6), layout="constrained")
    for axis, (name, cells) in zip(
        figure.subplots(1, len(datasets), squeeze=False)[0], datasets.items(), strict=True
    ):
        points = [(step, cell["bytes"], cell["P@1"], "#1f5fbf") for step, cell in cells.items()]
        theirs = peers.get(name, {})
        points += [
            (NAMES[peer][1], theirs[peer]["measured"]["model_bytes"], theirs[peer]["metrics"]["P@1"], "#777777")
            for peer in THEIRS
            if is_measured(theirs, peer)
        ]
        # By size, so that names of neighbors are above and below their points in turn.
        for number, (text, size, first, color) in enumerate(sorted(points, key=lambda point: point[1])):
            axis.plot(size / 1e6, 100 * first, "o", ms=5, color=color)
            above = 6 if number % 2 else -11
            axis.annotate(text, (size / 1e6, 100 * first), (0, above), textcoords="offset points",
                          ha="center", fontsize=8, color=color)  # fmt: skip
        axis.set(xscale="log", xlabel="size of the model, MB", ylabel="P@1, %")
        axis.margins(0.15)
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set_title(name, fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    main()
