"""The README keeps its promises: its Python runs, its links lead somewhere, its numbers are committed."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from circlet import experiments

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


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        "experiments/README.md",
        "benchmarks/README.md",
        "docs/reproduction.md",
        "docs/theory.md",
    ],
)
def test_links_lead_somewhere(page):
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
        assert target.startswith("http") or (path.parent / target).exists(), target


def test_numbers_are_the_committed_ones():
    text = README.read_text(encoding="utf-8")
    result = json.loads((ROOT / "experiments/results/capacity.json").read_text(encoding="utf-8"))
    capacity = experiments.load("capacity")
    (table,) = capacity.tables(result)
    shown = {row.replace("*", "") for row in text.splitlines()}
    for name, *cells in table.rows:
        readme_name = name.replace(" (w/Proj)", " with projection")
        assert "| " + " | ".join([readme_name, *cells]) + " |" in shown
    for number in ("99.1 %", "10.2 points"):
        assert number in text
        assert number in capacity.claims(result)[0].evidence


def test_ratios_of_the_benchmarks_are_the_committed_ones():
    section = (ROOT / "benchmarks/README.md").read_text(encoding="utf-8").split("## Training")[0]
    tasks = json.loads((ROOT / "benchmarks/results/algebra.json").read_text(encoding="utf-8"))["tasks"]
    measured = {f"{a / b:.1f}×" for sides in tasks.values() for a in sides.values() for b in sides.values()}
    shown = set(re.findall(r"\d+\.\d×", section))
    assert len(shown) > 10
    assert shown <= measured


def test_accuracies_are_the_committed_ones():
    """Accuracies at three depths, like 83.7/71.3/59.7, are those of a cell of the comparison with peers."""
    known = set()
    for path in (ROOT / "benchmarks/results/peers").glob("*.json"):
        metrics = json.loads(path.read_text(encoding="utf-8")).get("metrics", {})
        known |= {
            "/".join(f"{100 * metrics[f'{name}@{k}']:.1f}" for k in (1, 3, 5)) for name in ("P", "PSP") if metrics
        }
    section = (ROOT / "benchmarks/README.md").read_text(encoding="utf-8").split("## Peers")[1].split("\n## ")[0]
    shown = re.findall(r"\d+\.\d/\d+\.\d/\d+\.\d", section.replace("goal", ""))
    assert len(shown) > 5
    assert set(shown) <= known


@pytest.mark.parametrize("page", ["README.md", "docs/reproduction.md", "docs/theory.md"])
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
    for name, least in (("README.md", 3), ("benchmarks/README.md", 6)):
        text = (ROOT / name).read_text(encoding="utf-8")
        section = re.search(r"(## Fast|## What grows).*?(?=\n## )", text, re.DOTALL)
        assert section
        ratios = re.findall(r"\d+(?:\.\d+)?×", section[0])
        assert len(ratios) >= least
        assert all(ratio in page for ratio in ratios)
