"""Which is better when both have been trained to the end, CHRR or HRR.

CHRR learns more slowly than HRR, so a comparison after few epochs compares speeds. Here the paper's two models of
d = 800 and h = 768 are trained on EURLex-4K and wordnet for up to 100 epochs and on yso-finna-en for up to 40,
each with three learning rates, and every cell keeps its whole history. The rate of each model is chosen by its
best metric on held-out training rows in the mean over seeds, never on test rows.

What the paper leaves open, and what we chose: as in `circlet_paper.table` (the preset `paper`: Adadelta, the
best epoch on held-out rows, training ends after 20 epochs without a better one), with batches of 64 on EURLex-4K,
256 on wordnet and 1,024 on yso-finna-en, whose 571,157 documents would take four times as long with 256. Five
seeds, one on yso-finna-en. The figure is about nDCG@5 on held-out rows after each epoch, of the first seed; the
verdict is about P@k on test rows, by a bootstrap over documents and seeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING

import numpy as np

from circlet.report import Cell, Table
from circlet_paper import Claim, training_cells
from circlet_paper.cells import Result
from circlet_paper.drawing import STYLES, finished, panels
from circlet_paper.runs import Difference, Runs, compare, counted, runs, shown, verdict
from circlet_paper.training_cells import Recipe, TrainingCell, title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "CHRR against HRR, trained to the end"
#: The most epochs on each dataset, and documents in a batch.
EPOCHS = {"eurlex-4k": 100, "wordnet": 100, "yso-finna-en": 40}
BATCHES = {"eurlex-4k": 64, "wordnet": 256, "yso-finna-en": 1024}
RATES = (0.3, 1.0, 3.0)
#: The rate of the preset, the only one of a quick run.
USUAL = 1.0
#: Fewer seeds where a run takes long.
FEWER = {"yso-finna-en": 1}
MODELS = {"HRR": "hrr", "CHRR": "chrr"}
DEPTHS = (1, 3, 5, 10, 20)
METRIC = "nDCG@5"
#: Points of the metric; training whose last fifth gained less has come to its end.
FLAT = 0.5


@dataclass(frozen=True)
class Settings(training_cells.Settings):
    """Size of the experiment; five seeds instead of three."""

    seeds: int = 5


def _recipe(model: str, dataset: str, rate: float) -> Recipe:
    length = {"epochs": EPOCHS[dataset], "batch_size": BATCHES[dataset]}
    return Recipe(model, "paper", {"head": MODELS[model], "dim": 800, "hidden": (768, 768), "lr": rate, **length})


def _cells(model: str, dataset: str, rate: float, settings: Settings) -> list[TrainingCell]:
    made = _recipe(model, dataset, rate).cells(dataset, settings)
    return made[: FEWER.get(dataset, len(made))]


def cells(settings: Settings) -> list[TrainingCell]:
    """Both models with every rate on every dataset."""
    return [
        cell
        for dataset in EPOCHS
        for rate in ((USUAL, *(r for r in RATES if r != USUAL)) if settings.rows is None else (USUAL,))
        for model in MODELS
        for cell in _cells(model, dataset, rate, settings)
    ]


def _runs(result: Result, model: str, dataset: str, rate: float) -> Runs | None:
    return runs(result, _cells(model, dataset, rate, Settings.of(result)))


def _chosen(result: Result, model: str, dataset: str) -> tuple[float, Runs] | None:
    """The rate that is best on held-out rows, in the mean over seeds, and its runs."""
    found = {rate: these for rate in RATES if (these := _runs(result, model, dataset, rate))}
    if not found:
        return None
    best = max(found, key=lambda rate: fmean(_held_out(found[rate])))
    return best, found[best]


def _held_out(these: Runs) -> list[float]:
    """The best metric on held-out rows of each seed, in percent."""
    return [100 * max(cell["history"][METRIC]) for cell in these.cells]


def tables(result: Result) -> list[Table]:
    """Every rate on held-out and on test rows, and the comparison at the chosen rates."""
    rows: list[tuple[Cell, ...]] = []
    for dataset in EPOCHS:
        for model in MODELS:
            for rate in RATES:
                if these := _runs(result, model, dataset, rate):
                    rows.append((title_of(dataset), model, f"{rate:g}", *_row(these)))
    note = Settings.of(result).note
    return [
        Table(
            "Every learning rate: held-out rows decide, %",
            ("", "Model", "Rate", "Epochs", "Last fifth", f"{METRIC}, held out", "P@1", "P@5", "P@20", "PSP@5"),
            rows,
            note="Mean and deviation of the seeds, P@k and PSP@k on test rows. Epochs: their median. "
            f"Last fifth: points of {METRIC} on held-out rows that these epochs gained; a curve is flat below "
            f"{FLAT:g}.{note}",
        ),
        _compared(result),
    ]


def _row(these: Runs) -> tuple[Cell, ...]:
    epochs = median(len(cell["history"][METRIC]) for cell in these.cells)
    best = _held_out(these)
    numbers = (these.show(metric) for metric in ("P@1", "P@5", "P@20", "PSP@5"))
    held_out = shown(fmean(best), stdev(best) if len(best) > 1 else None)
    return f"{epochs:g}", f"{_still_gained(these):+.2f}", held_out, *numbers


def _still_gained(these: Runs) -> float:
    """Points of the metric on held-out rows that the last fifth of the epochs gained, in the mean over seeds."""
    gains = []
    for cell in these.cells:
        best = np.maximum.accumulate(cell["history"][METRIC])
        gains.append(100 * float(best[-1] - best[max(0, int(0.8 * len(best)) - 1)]))
    return fmean(gains)


def _flat(result: Result, dataset: str) -> bool:
    """Whether both models, at their chosen rates, had stopped improving."""
    chosen = (_chosen(result, model, dataset) for model in MODELS)
    return all(each is None or _still_gained(each[1]) < FLAT for each in chosen)


def _gaps(result: Result) -> dict[str, dict[int, Difference]]:
    """By how much CHRR is ahead of HRR at the rate that is best for each, by dataset."""
    found = {}
    for dataset in EPOCHS:
        ours, theirs = _chosen(result, "CHRR", dataset), _chosen(result, "HRR", dataset)
        if ours and theirs and (gaps := compare(ours[1].cells, theirs[1].cells, DEPTHS)):
            found[dataset] = gaps
    return found


def _compared(result: Result) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for dataset, gaps in _gaps(result).items():
        rates = [chosen[0] for model in MODELS if (chosen := _chosen(result, model, dataset))]
        rows.append((title_of(dataset), *(f"{rate:g}" for rate in rates), *(str(gaps[k]) for k in DEPTHS)))
    return Table(
        "CHRR against HRR, each at its best rate: points of P@k",
        ("", "HRR's rate", "CHRR's rate", *(f"P@{k}" for k in DEPTHS)),
        rows,
        note="Positive where CHRR is ahead; 95 % interval from a bootstrap over test documents and, where there "
        "are several, over seeds.",
    )


def claims(result: Result) -> list[Claim]:
    """Judge CHRR against HRR at the end of training, and whether the gap grows with k."""
    gaps = _gaps(result)
    if not gaps:
        return []
    ahead, behind, total = counted(gaps.values())
    unfinished = [title_of(dataset) for dataset in gaps if not _flat(result, dataset)]
    grown = [by_depth[20].low > max(by_depth[1].high, 0) for by_depth in gaps.values()]
    return [
        Claim(
            "Trained to the end, CHRR is at least as good as HRR",
            verdict(total - behind, total),
            f"by the bootstrap ahead in {ahead} of {total} comparisons of P@k, behind in {behind}; "
            + "; ".join(f"{title_of(d)}: P@1 {g[1]}, P@20 {g[20]}" for d, g in gaps.items())
            + (f"; not converged: {' and '.join(unfinished)}" if unfinished else ""),
        ),
        Claim(
            "Trained to the end, CHRR is further ahead the larger k",
            verdict(sum(grown), len(grown)),
            f"the interval at k = 20 lies above that at k = 1 and above 0 on {sum(grown)} of {len(grown)} "
            "datasets",
        ),
    ]


def draw(result: Result) -> Figure:
    """Draw the metric on held-out rows over training steps, and below it how far CHRR is ahead."""
    figure, axes = panels(2, len(EPOCHS), (12, 6), sharex="col", height_ratios=(3, 2))
    for (above, below), dataset in zip(axes.T, EPOCHS, strict=True):
        for model in MODELS:
            _draw_model(above, result, model, dataset, STYLES[model][0])
        _draw_gap(below, result, dataset)
        above.set_title(title_of(dataset))
        below.set_xlabel("training steps")
    axes[0, 0].set_ylabel(f"{METRIC} on held-out rows, %")
    axes[1, 0].set_ylabel("CHRR − HRR, points")
    return finished(figure)


def _curve(cell: Result) -> tuple[list[int], list[float]]:
    """Training steps after each epoch, and the metric on held-out rows in percent."""
    values = [100 * value for value in cell["history"][METRIC]]
    batches = -(-cell["shapes"]["train"] // cell["about"]["settings"]["batch_size"])
    return [batches * (i + 1) for i in range(len(values))], values


def _draw_model(axis: Axes, result: Result, model: str, dataset: str, color: str) -> None:
    chosen = _chosen(result, model, dataset)
    for rate in RATES:
        these = _runs(result, model, dataset, rate)
        if these is None or chosen is None:
            continue
        (steps, values), best = _curve(these.cells[0]), rate == chosen[0]
        axis.plot(steps, values, color=color, lw=2 if best else 0.8, alpha=1 if best else 0.5)
        if best:
            axis.annotate(
                f"{model}, rate {rate:g}", (steps[-1], values[-1]), xytext=(0, 5 if model == "HRR" else -12),
                textcoords="offset points", ha="right", color=color,
            )  # fmt: skip


def _draw_gap(axis: Axes, result: Result, dataset: str) -> None:
    """Compare the best so far of both models, each at its best rate; one that has ended keeps its best."""
    found = [chosen[1].cells[0] for model in ("CHRR", "HRR") if (chosen := _chosen(result, model, dataset))]
    if len(found) < 2:
        return
    steps = max((_curve(cell)[0] for cell in found), key=len)
    best = []
    for cell in found:
        values = np.maximum.accumulate(_curve(cell)[1])
        best.append(np.pad(values, (0, len(steps) - len(values)), mode="edge"))
    axis.plot(steps, best[0] - best[1], color=STYLES["CHRR"][0], lw=2)
    axis.axhline(0, color="#666666", lw=1)
