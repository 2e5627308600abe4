"""The notebooks of the documentation run, and what is committed of their output is small and theirs."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
pytestmark = pytest.mark.skipif(not NOTEBOOKS, reason="not a source checkout")
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path: Path, kind: str) -> list:
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


@each_notebook
def test_what_is_committed(path):
    """It was run from top to bottom without errors, is small, names no machine, and its links lead somewhere."""
    code = cells(path, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    for cell in code:
        ast.parse("".join(cell["source"]))
        kinds = {(output["output_type"], output.get("name", "stdout")) for output in cell["outputs"]}
        assert kinds <= {("stream", "stdout"), ("execute_result", "stdout"), ("display_data", "stdout")}, kinds
    assert path.stat().st_size < 200_000
    assert not re.search(r"/(home|root|tmp|work|Users)/|site-packages", path.read_text(encoding="utf-8"))
    text = "".join("".join(cell["source"]) for cell in cells(path, "markdown"))
    links = re.findall(r"\]\(([^)#]+)", text)
    assert links
    for target in links:
        assert target.startswith("http") or (path.parent / target).exists(), target


@pytest.mark.slow
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("nbclient", "ipykernel")),
    reason="needs the extra notebooks",
)
@each_notebook
def test_it_runs(path, tmp_path, real_pydocs):
    """In a process of its own: what Jupyter warns about is not ours."""
    shutil.copy(path, tmp_path)
    finished = subprocess.run(
        [sys.executable, "-c", "from nbclient.cli import main; main()", path.name, "--inplace"],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "USERPROFILE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    shown = [
        sum(map(len, (cell["outputs"] for cell in cells(each, "code")))) for each in (path, tmp_path / path.name)
    ]
    assert shown[0] == shown[1]
