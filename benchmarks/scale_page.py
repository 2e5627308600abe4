"""Pages and pictures of `growth.py` and `limits.py`, and the numbers in docs/scale.md, from JSON files alone.

    python benchmarks/scale_page.py

writes them again without measuring. In docs/scale.md the numbers are between comments such as `<!-- growth -->`
and `<!-- end -->`; if a JSON file is missing, there is nothing between them.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from circlet import files
from circlet.report import Table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
CELLS = ROOT / "experiments" / "results" / "cells" / "codebooks"
GUIDE = ROOT / "docs" / "scale.md"
WAYS = {
    "spectral": "spectral codes, one FFT",
    "cached": "independent codes, table",
    "generated": "independent codes, generated",
    "product": "matrix product and topk",
    "faiss": "faiss IndexFlatIP",
    "torchhd": "torchhd dot_similarity",
}
RIVALS = ("product", "faiss")
MILLION = str(10**6)
#: A training step divided by the sum of its floors, by device.
GOALS = {"cpu": 1.3, "cuda": 2.5}
#: Seeds and dimensions of the codebooks' capacity cells; their mean is shown if all of them exist.
SEEDS, DIMS = (0, 1, 2), (128, 256, 512)
BOOKS = {
    "independent": "independent angles",
    "spectral": "spectral, least M",
    "spectral-4n": "spectral, M = 4,000",
    "in-order": "spectral, least M, slots in order",
}


def main() -> None:
    growth = read(RESULTS / "growth.json")
    if growth is not None:
        files.write_text(RESULTS / "growth.md", growth_page(growth))
        draw_growth(growth, RESULTS / "growth.png")
    for device in ("cpu", "cuda"):
        limits = read(RESULTS / f"limits-{device}.json")
        if limits is not None:
            files.write_text(RESULTS / f"limits-{device}.md", limits_page(limits))
    files.write_text(GUIDE, filled(GUIDE.read_text(encoding="utf-8")))


def read(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def filled(text: str) -> str:
    """A page with the text between its comments made again."""
    makers: dict[str, Callable[[], str]] = {
        "capacity": capacity_section,
        "growth": lambda: growth_section(read(RESULTS / "growth.json")),
        "limits": lambda: limits_section([read(RESULTS / f"limits-{device}.json") for device in ("cpu", "cuda")]),
    }

    def replaced(match: re.Match[str]) -> str:
        return f"<!-- {match[1]} -->\n{makers[match[1]]()}<!-- end -->"

    return re.sub(rf"<!-- ({'|'.join(makers)}) -->\n(.*?)<!-- end -->", replaced, text, flags=re.DOTALL)


def power(size: str) -> str:
    """10⁶ for "1000000"."""
    return "10" + str(len(size) - 1).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def amount(n_bytes: float) -> str:
    """Bytes in a readable unit."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if n_bytes >= factor:
            return f"{n_bytes / factor:.3g} {unit}"
    return f"{n_bytes:.0f} B"


def where(result: dict[str, Any]) -> str:
    made = result["provenance"]
    machine = made["machine"]
    device = (
        machine["gpu"]
        if result.get("device") == "cuda"
        else f"{machine['processor']}, {machine['threads']} threads"
    )
    return f"`{made['command']}`, {device}, torch {made['versions']['torch']}"


# Growth


def growth_page(result: dict[str, Any]) -> str:
    left_out = [
        f"- {WAYS[way]} at {power(size)} labels: {found['left_out']}."
        for size, ways in result["scoring"].items()
        for way, found in ways.items()
        if "left_out" in found
    ]
    parts = [
        "# What grows with the labels\n",
        f"{where(result)}; d = {result['settings']['dim']}, {result['seconds']} s in all.\n",
        "Medians; all sides of a size take turns in one process. [Raw numbers](growth.json).\n",
        "![Time and memory over the number of labels](growth.png)\n",
        "\n".join(table.markdown() for table in (*scoring_tables(result), *training_tables(result))),
        goals(result),
    ]
    if left_out:
        parts.append("**Left out**\n\n" + "\n".join(left_out) + "\n")
    return "\n".join(parts)


def scoring_tables(result: dict[str, Any]) -> list[Table]:
    sizes = list(result["scoring"])
    columns = ("labels", *WAYS.values())

    def rows(show: Any) -> list[tuple[Any, ...]]:
        return [(power(size), *(show(result["scoring"][size][way]) for way in WAYS)) for size in sizes]

    def clock(how: str) -> Any:
        return lambda found: f"{found[how]['median_ms']:.3g}" if how in found else None

    n = result["settings"]["queries"]
    return [
        Table(
            f"Ten best labels, ms per query in batches of {n}",
            columns,
            rows(clock("batch")),
            note="faiss is set to use matrix products here, which is faster; by default it does so for larger "
            "batches only.",
        ),
        Table("Ten best labels, ms for a single query", columns, rows(clock("single"))),
        Table(
            "Memory for codes",
            columns,
            rows(lambda found: amount(found["code_bytes"]) if "code_bytes" in found else None),
            note="For spectral codes: all tables that decoding keeps, with the label of each slot. For generated "
            "codes: the one block that exists at a time.",
        ),
    ]


def training_tables(result: dict[str, Any]) -> list[Table]:
    training, settings = result["training"], result["settings"]
    sizes = list(training["cosine"])

    def both(show: Callable[[Any], str | None]) -> list[str | None]:
        return [show(training[loss].get(size)) for size in sizes for loss in ("cosine", "bce")]

    steps = both(lambda found: None if found is None else f"{found['median_ms']:.4g}")
    peaks = both(lambda found: None if found is None else amount(found["peak_bytes"]))
    return [
        Table(
            f"A training step, batch {settings['batch']}, {settings['features']:,} features",
            ("labels", "cosine, ms", "bce, ms", "cosine, peak memory", "bce, peak memory"),
            [(power(s), *steps[2 * i : 2 * i + 2], *peaks[2 * i : 2 * i + 2]) for i, s in enumerate(sizes)],
            note="Peak memory is that of the whole process, with Python and torch. bce scores all labels in every "
            "step.",
        ),
        Table(
            "A model's folder",
            ("labels", "cosine", "cosine, with names of 16 letters", "bce, with a bias per slot"),
            [(power(s), *(amount(n) for n in kinds.values())) for s, kinds in result["model_bytes"].items()],
        ),
    ]


def ratios(result: dict[str, Any]) -> dict[str, dict[str, float]]:
    """What each rival takes at a million labels, divided by what spectral codes take."""
    ways = result["scoring"].get(MILLION, {})
    return {
        way: {
            "batch": ways[way]["batch"]["median_ms"] / ways["spectral"]["batch"]["median_ms"],
            "single": ways[way]["single"]["median_ms"] / ways["spectral"]["single"]["median_ms"],
            "memory": ways[way]["code_bytes"] / ways["spectral"]["code_bytes"],
        }
        for way in (*RIVALS, "cached", "torchhd")
        if "batch" in ways.get(way, {})
    }


def flatness(result: dict[str, Any], value: str) -> float:
    """The largest value of a cosine step over sizes, divided by the smallest."""
    values: list[float] = [found[value] for found in result["training"]["cosine"].values()]
    return max(values) / min(values)


def goals(result: dict[str, Any]) -> str:
    def verdict(measured: float, goal: float, more: bool = True) -> str:
        return "reached" if (measured >= goal if more else measured <= goal) else "missed"

    found, rows = ratios(result), []
    for way in (way for way in RIVALS if way in found):
        for how, text in (("batch", "in batches"), ("single", "single queries")):
            factor = found[way][how]
            rows.append((f"{WAYS[way]}, {text}: time ÷ spectral's", f"{factor:.1f}×", "10×", verdict(factor, 10)))
        factor = found[way]["memory"]
        rows.append((f"{WAYS[way]}: memory ÷ spectral's", f"{factor:.0f}×", "100×", verdict(factor, 100)))
    flat = flatness(result, "median_ms")
    rows.append(("slowest ÷ fastest cosine step", f"{flat:.2f}×", "1.10×", verdict(flat, 1.1, more=False)))
    return Table("Goals, at a million labels", ("", "measured", "goal", "verdict"), rows).markdown()


def growth_section(result: dict[str, Any] | None) -> str:
    if result is None:
        return ""
    text = "\n".join(table.markdown() for table in scoring_tables(result))
    steps = result["training"]["cosine"]
    first, *_, last = steps
    folders = [amount(result["model_bytes"][size]["cosine"]) for size in (first, last)]
    grown = (
        f"From {power(first)} to {power(last)} labels, a training step with the cosine loss goes from "
        f"{steps[first]['median_ms']:.1f} to {steps[last]['median_ms']:.1f} ms, its process's peak memory from "
        f"{amount(steps[first]['peak_bytes'])} to {amount(steps[last]['peak_bytes'])}, and the model's folder "
        f"without names from {folders[0]} to {folders[1]}."
    )
    sentences = [grown]
    for way, found in ratios(result).items():
        if way in RIVALS:
            sentences.append(
                f"At a million labels {WAYS[way]} takes {found['batch']:.1f}× the time of spectral codes in "
                f"batches, {found['single']:.1f}× for a single query, and {found['memory']:.0f}× the memory."
            )
    more = "[every number](../benchmarks/results/growth.md)"
    picture = "![Time and memory over the number of labels](../benchmarks/results/growth.png)"
    return f"{text}\n{' '.join(sentences)} {where(result)}; {more}.\n\n{picture}\n"


def draw_growth(result: dict[str, Any], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, ((clock, memory), (step, size)) = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
    for color, (way, label) in enumerate(WAYS.items()):
        found = {int(s): ways[way] for s, ways in result["scoring"].items()}
        for how, style in (("batch", "o-"), ("single", "x:")):
            points = [(s, f[how]["median_ms"]) for s, f in found.items() if how in f]
            clock.plot(
                *zip(*points, strict=True), style, color=f"C{color}", label=label if how == "batch" else None
            )
        if way not in ("cached", "faiss", "torchhd"):  # their tables are as large as the product's
            points = [(s, f["code_bytes"]) for s, f in found.items() if "code_bytes" in f]
            what = "a table, for any of the others" if way == "product" else label
            memory.plot(*zip(*points, strict=True), "o-", color=f"C{color}", label=what)
    for color, (loss, found) in enumerate(result["training"].items()):
        sizes = [int(s) for s in found]
        step.plot(sizes, [f["median_ms"] for f in found.values()], "o-", color=f"C{color}", label=loss)
        label = f"{loss}, peak of the process"
        size.plot(sizes, [f["peak_bytes"] for f in found.values()], "o-", color=f"C{color}", label=label)
    for color, kind in enumerate(next(iter(result["model_bytes"].values())), start=2):
        points = [(int(s), kinds[kind]) for s, kinds in result["model_bytes"].items()]
        size.plot(*zip(*points, strict=True), "s--", color=f"C{color}", label=f"model, {kind}")
    titles = {
        clock: "Ten best labels: ms per query (dotted: one at a time)",
        memory: "Memory for codes, bytes",
        step: f"A training step of {result['settings']['batch']}, ms",
        size: "Memory of training and model size, bytes",
    }
    for axes, title in titles.items():
        axes.set(xscale="log", yscale="log", xlabel="labels", title=title)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    low, high = step.get_ylim()
    step.set_ylim(low / 2, high * 2)  # what is flat should look flat
    with files.replacing(path) as temporary:
        figure.savefig(temporary, dpi=110, format="png", metadata={"Software": None})
    plt.close(figure)


# Limits


def limits_page(result: dict[str, Any]) -> str:
    parts = [
        f"# How far from the limit: {result['device']}\n",
        f"{where(result)}. Medians. [Raw numbers](limits-{result['device']}.json).\n",
        "\n".join(table.markdown() for table in limits_tables(result)),
    ]
    return "\n".join(parts)


def limits_tables(result: dict[str, Any]) -> list[Table]:
    ceilings = [(c["what"], f"{c['value'] / 1e9:,.4g} {c['unit']}") for c in result["ceilings"].values()]
    step, decoding = result["step"], result["decoding"]

    def row(path: dict[str, Any]) -> tuple[Any, ...]:
        return (
            path["name"],
            amount(path["bytes"]),
            f"{path['flops'] / 1e9:,.3g}",
            f"{path['floor_ms']:.3g}",
            path["bound"],
            f"{path['ms']:.3g}",
            f"{path['ms'] / path['floor_ms']:.2f}×",
        )

    columns = ("", "bytes", "GFLOP", "floor, ms", "bound by", "measured, ms", "÷ floor")
    return [
        Table("Ceilings, measured in the same run", ("", "ceiling"), ceilings),
        Table(
            f"Parts of a training step, batch {step['batch']}, {step['features']:,} features, hidden "
            f"{step['hidden']:,}, d = {step['dim']}, {step['labels']:,} labels, loss bce",
            columns,
            [row(path) for path in (*step["paths"], *({**p, "name": f"({p['name']})"} for p in step["beside"]))],
            note=f"The whole step: {step['ms']:.3g} ms, {step['ms'] / step['floor_ms']:.2f}× the sum of the "
            f"floors, {step['floor_ms']:.3g} ms (goal: {GOALS[result['device']]}×)."
            + (" In parentheses: what predictions do instead of the dense first layer." if step["beside"] else ""),
        ),
        Table(
            f"Decoding {decoding['rows_of_parts']} queries, {decoding['labels']:,} labels, d = {decoding['dim']}",
            columns,
            [row(path) for path in decoding["paths"]],
            note=f"In all, from {decoding['rows']} predictions to their ten best labels: {decoding['ms']:.3g} ms, "
            f"{decoding['ms'] / decoding['fft_floor_ms']:.2f}× the bandwidth floor of its FFT, "
            f"{decoding['fft_floor_ms']:.3g} ms (goal on a GPU: 2×).",
        ),
    ]


def limits_section(results: list[dict[str, Any] | None]) -> str:
    sentences = []
    for result in results:
        if result is None:
            continue
        step, decoding, device = result["step"], result["decoding"], result["device"]
        name = {"cpu": "On the CPU", "cuda": "On the GPU"}[device]
        sentences.append(
            f"{name}, decoding takes {decoding['ms'] / decoding['rows']:.3g} ms per query at "
            f"{power(str(decoding['labels']))} labels, {decoding['ms'] / decoding['fft_floor_ms']:.1f}× the time "
            "that memory needs to carry the coefficients of the transform in and its values out once, and a "
            f"training step at batch {step['batch']:,} takes {step['ms'] / step['floor_ms']:.1f}× the sum of the "
            f"floors of its parts ([page](../benchmarks/results/limits-{device}.md); {where(result)}).\n"
        )
    return "\n".join(sentences)


# Capacity


def capacity_section() -> str:
    cells = {dim: [read(CELLS / f"capacity-d{dim}-seed{seed}.json") for seed in SEEDS] for dim in DIMS}
    if any(cell is None for group in cells.values() for cell in group):
        return ""
    rows = []
    for dim, group in cells.items():
        for book, name in BOOKS.items():
            values = [
                statistics.fmean(cell["retrieved"][book][ids][k] for cell in group if cell)
                for ids in ("random ids", "consecutive ids")
                for k in ("10", "25", "50")
            ]
            length = group[0]["M"].get(book) if group[0] else None
            share = None if length is None else f"{(length - 2 * dim) / (length - 1):.2f}"
            rows.append((name, dim, length, share, *(f"{value:.1f}" for value in values)))
    columns = (
        "",
        "d",
        "M",
        "(M − 2d)/(M − 1)",
        *(f"{n} {ids}" for ids in ("random", "neighbors") for n in (10, 25, 50)),
    )
    table = Table(
        "Percentage of k stored labels among the k best of 1,000",
        columns,
        rows,
        note="Sets of k = 10, 25 and 50 labels: random ones, and neighbors by id. Mean of three seeds, each with "
        "20 codebooks and 20 sets for each ([all codebooks](../experiments/results/codebooks.md)).",
    )
    return table.markdown()


if __name__ == "__main__":
    main()
