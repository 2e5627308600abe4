"""The README and the pages are correct: Python runs, formulas hold, and numbers are the committed ones."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circlet_paper
from circlet.annif.parameters import DEFAULTS
from circlet.network import Network, NetworkSettings
from circlet.settings import RunSettings

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(not (ROOT / "docs").exists(), reason="not a source checkout")


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def run_of(name: str) -> Any:
    """Committed results of a benchmark."""
    return json.loads(read(f"benchmarks/results/{name}.json"))


def cells_of(rows: Iterable[str]) -> list[list[str]]:
    return [list(map(str.strip, row.split("|"))) for row in rows]


@pytest.fixture(scope="module")
def scale_page(script):
    return script("benchmarks/scale_page.py")


class TestSeveralProcesses:
    """docs/distributed.md."""

    @pytest.fixture
    def module(self, script):
        return script("benchmarks/distributed.py")

    def test_its_tables_are_those_of_the_committed_run(self, module):
        result, page = run_of("distributed"), module.DOCS.read_text(encoding="utf-8")
        assert page == module.filled(page, result), "run python benchmarks/distributed.py"
        assert read("benchmarks/results/distributed.md") == module.page_of(result)
        for name, size in module.PLANNED.items():
            for each in result["planned"][name]:
                assert module.exchanged(size, each["processes"], each["documents"]).items() <= each.items()
        step = json.loads(module.STEP.read_text(encoding="utf-8"))["step"]
        size = module.MEASURED[module.ON_GPU]._asdict()
        assert {name: step[name] for name in ("features", "hidden", "dim", "labels")}.items() <= size.items()
        assert module.gained(step) == result["gained"]

    def test_what_a_step_exchanges_by_hand(self, module):
        size = module.Size(10, features=4, words=4, labels=7, hidden=3, first_layer="same", dim=5)
        assert size.dense == 3 + (3 * 10 + 10) + 7 + 1
        found = module.exchanged(size, 2, 3)  # every document has every word
        assert found == {"dense": 4 * 51, "first layer": 3 * (4 * 3 + 12 * 4), "rows": 4, "as rows": 4 * 12}
        assert module.exchanged(size, 2, 4)["first layer"] == 4 * 12
        # The sizes of gradients are those of a network.
        size = module.Size(10, features=50, words=4, labels=7, hidden=3, first_layer="same", dim=5)
        settings = NetworkSettings(hidden=(3,), dim=5, codebook="independent")
        network = Network(settings, 50, 7, sparse=True)
        assert network.parameter_counts()["total"] == 50 * 3 + size.dense

    def test_what_more_gpus_gain_by_hand(self, module):
        paths = [{"name": "first layer", "ms": 0.1}, {"name": "its gradient", "ms": 0.05}]
        step = {"batch": 1000, "ms": 0.5, "paths": paths, "beside": [{"ms": 0.2}, {"ms": 0.15}]}
        one, two, *_ = module.gained(step)
        assert (one["exchange_ms"], one["documents_per_second"], one["gain"]) == (0, 2e6, 1)
        dense, documents = 4 * (1024 + 1025 * 1600 + 4001), 1000 * (4 * 1024 + 12 * 200)
        assert two["exchange_ms"] == pytest.approx(1e3 * (dense + documents) / 50e9)
        assert two["compute_ms"] == pytest.approx(0.5 - 0.15 + 0.35)
        assert two["documents_per_second"] == pytest.approx(2e6 / (0.7 + two["exchange_ms"]))
        assert two["gain"] == pytest.approx(2 * 0.5 / (0.7 + two["exchange_ms"]))


@pytest.mark.parametrize(
    ("page", "count"), [("README.md", None), ("docs/scale.md", 2), ("docs/explain.md", 1), ("docs/ideas.md", 2)]
)
def test_python_runs(page, count, tmp_path, monkeypatch):
    """In order and in one folder, since one block loads what another one saves; each has its own names."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", read(page), re.DOTALL)
    assert count is None or len(blocks) == count
    for code in blocks:
        exec(compile(code, page, "exec"), {})


def test_numbers_are_the_committed_ones(scale_page):
    """A section is empty until benchmarks/scale_page.py is run; then it contains the numbers of the JSON files."""
    pattern, page = r"<!-- (\w+) -->\n(.*?)<!-- end -->", read("docs/scale.md")
    shown = dict(re.findall(pattern, page, re.DOTALL))
    made = dict(re.findall(pattern, scale_page.filled(page), re.DOTALL))
    assert set(shown) == {"capacity", "growth", "limits"}
    for name, section in shown.items():
        assert section in ("", made[name]), f"{name}: run python benchmarks/scale_page.py"


def test_capacities_are_rounded_like_those_of_their_own_page():
    """70.15 once was 70.2 here and 70.1 there, because two ways to take a mean differ in the last bit."""
    page = read("experiments/results/codebooks.md")
    known = {
        (row[2], row[3], *(cell.split(" ±")[0] for cell in row[4:7]))
        for row in cells_of(line for line in page.splitlines() if line.count("±") == 3)
    }
    (section,) = re.findall(r"<!-- capacity -->\n(.*?)<!-- end -->", read("docs/scale.md"), re.DOTALL)
    rows = cells_of(line for line in section.splitlines() if re.search(r"\d\.\d \|", line))
    assert len(rows) == 12
    for row in rows:
        for values in (row[5:8], row[8:11]):
            assert (row[2], row[3], *values) in known, row


@pytest.mark.parametrize(("length", "dim"), [(1000, 256), (1080, 100), (64, 31), (62, 30), (4000, 7)])
def test_similarities_have_the_moments_of_the_page(length, dim):
    frequencies = 1 + np.random.default_rng(0).permutation(length // 2 - 1)[:dim]
    kernel = np.cos(2 * np.pi * np.outer(np.arange(length), frequencies) / length).mean(axis=1)
    assert kernel[0] == 1
    assert math.isclose(kernel[1:].mean(), -1 / (length - 1))
    assert math.isclose((kernel[1:] ** 2).mean(), (length - 2 * dim) / (length - 1) / (2 * dim))
    if dim == length // 2 - 1:
        np.testing.assert_allclose(kernel[1::2], 0, atol=1e-12)
        np.testing.assert_allclose(kernel[2::2], -1 / dim, atol=1e-12)


def test_runs_of_slots_collapse_as_the_page_says():
    length, k, y = 1000, 50, 17
    f = np.arange(1, length // 2)

    def root(n):
        return np.exp(2j * np.pi * f * n / length)

    total = sum(root(y + m) for m in range(k))
    np.testing.assert_allclose(total, (root(y + k) - root(y)) / (root(1) - 1), atol=1e-9)
    kernel = np.abs(np.sin(np.pi * f * k / length) / np.sin(np.pi * f / length))
    np.testing.assert_allclose(np.abs(total), kernel, atol=1e-9)


def test_theory_quotes_the_committed_run():
    """Numbers of the prose are on the result's page, and so are the rows of its tables that have no deviation."""
    page, result = read("docs/theory.md"), read("experiments/results/theory.md")
    similarities = "0.31 0.207 0.251 0.093 0.118 0.142"
    scores = "2.36 2.43 2.09 2.72 5.9 62 0.14 0.76 0.37 1.68 0.49 2.35 1.15 4.11 0.35"
    for number in f"{similarities} {scores}".split():
        assert number in page, number
        assert number in result, number
    rows = [line for line in page.splitlines() if line.startswith(("| 1,000 |", "| 1,000,000 |"))]
    assert len(rows) == 8
    assert all(row in result for row in rows)


MACHINE = {"processor": "P", "threads": 2, "gpu": None}
MADE = {"command": "python benchmarks/growth.py", "versions": {"torch": "2"}, "machine": MACHINE}


def test_page_of_growth(scale_page, tmp_path):
    fast = {"batch": {"median_ms": 2.0}, "single": {"median_ms": 3.0}, "code_bytes": 8_000_000}
    slow = {"batch": {"median_ms": 50.0}, "single": {"median_ms": 15.0}, "code_bytes": 6_400_000_000}
    others = [way for way in scale_page.WAYS if way != "spectral"]
    missing, sizes = {"left_out": "its table would take 64 GB"}, {"cosine": 1, "cosine, names": 2, "bce": 3}
    step = {"median_ms": 20.0, "peak_bytes": 500_000_000}
    result = {
        "provenance": MADE,
        "settings": {"dim": 800, "features": 5, "batch": 256, "queries": 16},
        "seconds": 1,
        "training": {
            "bce": {"1000000": step},
            "cosine": {"1000000": step, "10000000": {**step, "median_ms": 23.0}},
        },
        "model_bytes": dict.fromkeys(("1000000", "10000000"), sizes),
        "scoring": {
            "1000000": {"spectral": fast, **dict.fromkeys(others, slow)},
            "10000000": {"spectral": fast, **dict.fromkeys(others, missing)},
        },
    }
    page = scale_page.growth_page(result)
    assert "| faiss IndexFlatIP, in batches: time ÷ spectral's | 25.0× | 10× | reached |" in page
    assert "| faiss IndexFlatIP, single queries: time ÷ spectral's | 5.0× | 10× | missed |" in page
    assert "| faiss IndexFlatIP: memory ÷ spectral's | 800× | 100× | reached |" in page
    assert "| slowest ÷ fastest cosine step | 1.15× | 1.10× | missed |" in page
    assert "torchhd dot_similarity at 10⁷ labels: its table would take 64 GB." in page
    assert "from 20.0 to 23.0 ms" in scale_page.growth_section(result)
    scale_page.draw_growth(result, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size > 10_000


def test_page_of_bulk(script):
    bulk = script("benchmarks/bulk.py")
    result = {
        "provenance": {**MADE, "machine": {"cores": 2}},
        "documents": [1000, 21_000],
        "bytes": 2_100_000,
        "seconds": {
            # Medians of 3 and 23: 1,000 documents per second, from 2 s on.
            bulk.ONE: {"1000": [3.0, 2.0, 9.0], "21000": [23.0, 23.0, 9.0]},
            bulk.PROCESSES: {"1000": [3.0] * 3, "21000": [13.0] * 3},
            bulk.RAY: {"1000": [9.0] * 3, "21000": [24.0] * 3},
        },
        "same_labels": {bulk.ONE: 1.0, bulk.PROCESSES: 0.99999},
    }
    page = bulk.page_of(result)
    assert "| one process, one thread | 2.0 | 1,000 | 1.00× | – | – |" in page
    assert "| `--engine processes`, 2 workers | 2.5 | 2,000 | 2.00× | 1.7× | reached |" in page
    assert "| `--engine ray`, 2 workers | 8.2 | 1,333 | 1.33× | 1.7× | missed |" in page
    assert "| 1,024 | 1,024,000 | 16.3 |" in page
    assert "At least 99.99% of the documents" in page
    assert bulk.page_of(run_of("bulk")) == read("benchmarks/results/bulk.md")


def test_page_of_limits(scale_page):
    path = {"name": "head", "bytes": 2e6, "flops": 3e9, "floor_ms": 2.0, "bound": "bandwidth", "ms": 3.0}
    step = dict.fromkeys(("batch", "features", "hidden", "dim", "labels"), 10)
    decoding = {"labels": 10**6, "dim": 800, "rows": 16, "rows_of_parts": 16}
    result = {
        "device": "cpu",
        "provenance": MADE,
        "ceilings": {"copy": {"what": "copy", "value": 2e10, "unit": "GB/s"}},
        "step": {**step, "ms": 26.0, "floor_ms": 20.0, "paths": [path], "beside": [{**path, "name": "bag"}]},
        "decoding": {**decoding, "ms": 30.0, "fft_floor_ms": 20.0, "paths": [path]},
    }
    page = scale_page.limits_page(result)
    assert "| head | 2 MB | 3 | 2 | bandwidth | 3 | 1.50× |" in page
    assert "| (bag) | 2 MB |" in page
    assert "1.30× the sum of the floors" in page
    assert "1.50× the bandwidth floor of its FFT" in page
    assert "On the CPU, decoding takes 1.88 ms" in scale_page.limits_section([result, None])
    assert scale_page.limits_section([None, None]) == ""


def test_annif_shows_the_committed_run_and_parameters_that_exist(script):
    benchmark, page, result = script("benchmarks/annif_backends.py"), read("docs/annif.md"), run_of("annif")
    assert [each["name"] for each in result["projects"]] == list(benchmark.PROJECTS)
    assert benchmark.table(result) in page
    assert benchmark.filled(page, result) == page
    assert read("benchmarks/results/annif.md") == benchmark.page(result)
    rows = re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", page, re.MULTILINE)
    named = {name: default.strip("` ") for names, default in rows for name in re.findall(r"`([\w-]+)`", names)}
    assert set(DEFAULTS) <= set(named)
    assert set(named) <= {*DEFAULTS, *RunSettings.names()}
    for name, default in named.items():
        found = DEFAULTS.get(name, "auto")
        assert default == (f"{found:g}" if isinstance(found, float) else str(found)), name


def test_readme_is_short():
    """Its first screen has to say what circlet is; all else has a page."""
    assert len(read("README.md").split()) <= 900
    assert len(read("benchmarks/README.md").split()) <= 1200


def test_labels_held_are_the_measured_ones():
    text, result = read("docs/reproduction.md"), json.loads(read("experiments/results/capacity.json"))
    capacity = circlet_paper.load("capacity")
    (table,) = capacity.tables(result)
    for row in table.rows:
        assert "| " + " | ".join(row) + " |" in text
    for number in ("99.1 %", "10.2 points"):
        assert number in text
        assert number in capacity.claims(result)[0].evidence


def test_ratios_of_the_benchmarks_are_the_committed_ones():
    section = read("docs/performance.md").split("## Training")[0]
    (row,) = (line for line in read("benchmarks/README.md").splitlines() if "`algebra.py`" in line)
    tasks = run_of("algebra")["tasks"]
    measured = {f"{a / b:.1f}×" for sides in tasks.values() for a in sides.values() for b in sides.values()}
    shown = set(re.findall(r"\d+\.\d×", section))
    assert len(shown) > 10
    assert shown | set(re.findall(r"\d+\.\d×", row)) <= measured


def peers() -> dict[str, dict[str, dict[str, float]]]:
    """Metrics of the comparison with other libraries, by dataset and tool."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for path in sorted((ROOT / "benchmarks/results/peers").glob("*.json")):
        cell = json.loads(path.read_text(encoding="utf-8"))
        if "metrics" in cell:
            found.setdefault(cell["dataset"], {})[cell["peer"]] = cell["metrics"]
    return found


def at_three_depths(metrics: dict[str, float], name: str) -> str:
    return "/".join(f"{100 * metrics[f'{name}@{k}']:.1f}" for k in (1, 3, 5))


def test_accuracies_are_the_committed_ones():
    """Accuracies at three depths, like 83.7/71.3/59.7, are those of a cell of the comparison with peers."""
    cells = [metrics for tools in peers().values() for metrics in tools.values()]
    known = {at_three_depths(metrics, name) for metrics in cells for name in ("P", "PSP")}
    section = read("docs/compare.md").split("## Accuracy and training time")[1].split("\n## ")[0]
    shown = re.findall(r"\d+\.\d/\d+\.\d/\d+\.\d", section.replace("goal", ""))
    assert len(shown) > 5
    assert set(shown) <= known


def test_the_table_of_results_is_that_of_the_committed_cells():
    sets = {"Bibtex": "bibtex", "Delicious": "delicious", "Python's documentation": "pydocs"}
    sets |= {"EURLex-4K": "eurlex-4k", "WordNet": "wordnet"}
    rows = [line for line in read("README.md").splitlines() if line.count("/") == 4 and "×" in line]
    shown = {cells[1]: cells[3:5] for cells in cells_of(rows)}
    assert set(shown) == set(sets)
    for name, (best, ours) in shown.items():
        tools = peers()[sets[name]]
        others = [metrics for tool, metrics in tools.items() if not tool.startswith("circlet")]
        assert best == at_three_depths({f"P@{k}": max(each[f"P@{k}"] for each in others) for k in (1, 3, 5)}, "P")
        assert ours.strip("*") == at_three_depths(tools["circlet"], "P")


@pytest.mark.parametrize("page", ["docs/reproduction.md", "docs/theory.md"])
def test_rows_of_results_are_those_of_their_pages(page):
    """A row with a deviation is an exact copy from a result's page."""
    pages = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "experiments/results").glob("*.md"))
    rows = [line for line in read(page).splitlines() if "±" in line]
    assert len(rows) >= 5
    for row in rows:
        assert row in pages, row


def test_growth_is_the_measured_one():
    """Ratios in the READMEs are those of the page, which is made from the JSON."""
    page, readme, performance = map(read, ("benchmarks/results/growth.md", "README.md", "docs/performance.md"))
    for text, start, least in ((readme, "With the paper's loss", 1), (performance, "## What grows", 6)):
        section = re.search(rf"{start}.*?(?=\n## )", text, re.DOTALL)
        assert section
        ratios = re.findall(r"\d+(?:\.\d+)?×", section[0])
        assert len(ratios) >= least
        assert all(ratio in page for ratio in ratios)
