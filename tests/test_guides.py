"""The tutorial and the guides keep their promises: their Python runs, and so do their commands."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="not a source checkout")

GUIDES = sorted(path.relative_to(DOCS).as_posix() for path in (DOCS / "guides").glob("*.md"))
#: Guides that train long or often; most do.
LONG = set(GUIDES) - {"guides/explain.md", "guides/files.md", "guides/names.md"}
#: Commands that do not end by themselves; test_commands.py parses their options.
ENDLESS = ("serve",)


def blocks(page: str, *languages: str) -> list[tuple[str, str]]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```({'|'.join(languages)})\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def run(page: str, circlet) -> str:
    """Run all blocks of a page, in order and in this folder; what its commands printed."""
    printed = ""
    for language, code in blocks(page, "python", "console"):
        if language == "python":
            exec(compile(code, page, "exec"), {})
            continue
        for line in code.splitlines():
            piped = re.fullmatch(r'echo "(.*)" \| (circlet .*)', line)
            name, *words = shlex.split(piped[2] if piped else line, comments=True)
            assert name == "circlet", line
            if words[0] in ENDLESS:
                continue
            finished = circlet(*words, stdin=f"{piped[1]}\n" if piped else "")
            assert finished.returncode == 0, (line, finished.stderr)
            printed += finished.stdout
    return printed


@pytest.fixture(scope="module")
def done(circlet, tmp_path_factory) -> tuple[Path, str]:
    """A folder in which somebody went through the tutorial, and what was printed there."""
    folder = tmp_path_factory.mktemp("tutorial")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return folder, run("tutorial.md", circlet)


@pytest.fixture
def after_tutorial(done, tmp_path, monkeypatch):
    """A copy of that folder."""
    shutil.copytree(done[0], tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


def test_tutorial_runs(done):
    folder, printed = done
    assert '"labels": ["cycling", "repair"]' in printed or '"labels": ["repair", "cycling"]' in printed
    assert {"mine", "tagged.csv", "thresholds.png", "labels.csv"} <= {path.name for path in folder.iterdir()}


@pytest.mark.usefixtures("after_tutorial")
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] if page in LONG else []) for page in GUIDES]
)
def test_guide_runs(page, circlet):
    assert run(page, circlet)
