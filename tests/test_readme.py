"""The README keeps its promises: its Python and its commands run, its numbers are committed."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import circlet_paper

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
pytestmark = pytest.mark.skipif(not README.exists(), reason="not a source checkout")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_python_runs(monkeypatch, tmp_path):
    """In order and in one folder, since one block loads what another one saves; each has its own names."""
    monkeypatch.chdir(tmp_path)
    for code in blocks("python"):
        exec(compile(code, "README.md", "exec"), {})


SCRIPTS = [block for block in blocks("console") if "circlet train" in block]


@pytest.fixture
def quick_start(tmp_path, monkeypatch):
    """Small datasets under the README's names, so that all its commands but the download run word for word."""
    texts = [("a red fox", ["animal", "red"]), ("the fast car", ["vehicle"]), ("a brown bear", ["animal"])] * 20
    lines = "".join(json.dumps({"text": text, "labels": labels}) + "\n" for text, labels in texts)
    for name in ("mine.jsonl", "held-out.jsonl", "data/eurlex-4k/train.jsonl", "data/eurlex-4k/test.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(lines, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CIRCLET_DATA", str(tmp_path / "data"))


def commands(script: str) -> list[str]:
    return [line for line in script.splitlines() if "datasets fetch" not in line]


@pytest.mark.usefixtures("quick_start")
@pytest.mark.parametrize("script", SCRIPTS)
def test_quick_start_runs(circlet, script):
    printed = ""
    for line in commands(script):
        piped = re.fullmatch(r'echo "(.*)" \| circlet (.*)', line)
        words = piped[2] if piped else line.removeprefix("circlet ")
        finished = circlet(*shlex.split(words), stdin=f"{piped[1]}\n" if piped else "")
        assert finished.returncode == 0, finished.stderr
        printed += finished.stdout
    assert "P " in printed  # each has an evaluation


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="the README's commands are for a POSIX shell")
@pytest.mark.usefixtures("quick_start")
@pytest.mark.parametrize("script", SCRIPTS)
def test_quick_start_runs_in_a_shell(script):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    finished = subprocess.run(
        ["sh", "-ec", "\n".join(commands(script))], env=environment, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert "P " in finished.stdout


def test_readme_is_short():
    """Its first screen has to say what circlet is; all else has a page."""
    assert len(README.read_text(encoding="utf-8").split()) <= 900
    assert len((ROOT / "benchmarks/README.md").read_text(encoding="utf-8").split()) <= 1200


def test_labels_held_are_the_measured_ones():
    text = (ROOT / "docs/reproduction.md").read_text(encoding="utf-8")
    result = json.loads((ROOT / "experiments/results/capacity.json").read_text(encoding="utf-8"))
    capacity = circlet_paper.load("capacity")
    (table,) = capacity.tables(result)
    for row in table.rows:
        assert "| " + " | ".join(row) + " |" in text
    for number in ("99.1 %", "10.2 points"):
        assert number in text
        assert number in capacity.claims(result)[0].evidence


def test_ratios_of_the_benchmarks_are_the_committed_ones():
    section = (ROOT / "docs/performance.md").read_text(encoding="utf-8").split("## Training")[0]
    index = (ROOT / "benchmarks/README.md").read_text(encoding="utf-8")
    (row,) = (line for line in index.splitlines() if "`algebra.py`" in line)
    tasks = json.loads((ROOT / "benchmarks/results/algebra.json").read_text(encoding="utf-8"))["tasks"]
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
    page = (ROOT / "docs/compare.md").read_text(encoding="utf-8")
    section = page.split("## Accuracy and training time")[1].split("\n## ")[0]
    shown = re.findall(r"\d+\.\d/\d+\.\d/\d+\.\d", section.replace("goal", ""))
    assert len(shown) > 5
    assert set(shown) <= known


def test_the_table_of_results_is_that_of_the_committed_cells():
    sets = {
        "Bibtex": "bibtex",
        "Delicious": "delicious",
        "Python's documentation": "pydocs",
        "EURLex-4K": "eurlex-4k",
        "WordNet": "wordnet",
    }
    lines = README.read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.count("/") == 4 and "×" in line]
    shown = {cells[1]: cells[3:5] for cells in (list(map(str.strip, row.split("|"))) for row in rows)}
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
    rows = [line for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if "±" in line]
    assert len(rows) >= 5
    for row in rows:
        assert row in pages, row


def test_growth_is_the_measured_one():
    """Ratios in the READMEs are those of the page, which is made from the JSON."""
    page = (ROOT / "benchmarks/results/growth.md").read_text(encoding="utf-8")
    performance = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    readme = README.read_text(encoding="utf-8")
    for text, start, least in ((readme, "With the paper's loss", 1), (performance, "## What grows", 6)):
        section = re.search(rf"{start}.*?(?=\n## )", text, re.DOTALL)
        assert section
        ratios = re.findall(r"\d+(?:\.\d+)?×", section[0])
        assert len(ratios) >= least
        assert all(ratio in page for ratio in ratios)
