"""Commands that pages show: all are parsed, and those of the README, the tutorial and the guides run."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.test_site import PAGES

from circlet.cli import app

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(not (ROOT / "docs").exists(), reason="not a source checkout")

GUIDES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/guides").glob("*.md"))
#: Guides that train long or often; most do.
LONG = set(GUIDES) - {f"docs/guides/{name}.md" for name in ("explain", "files", "names")}
#: The languages of blocks with commands.
SHELL = r"console|text|bash|sh"
COMMANDS = typer.main.get_command(app)


def found_in(page: str) -> tuple[list[list[str]], list[list[str]]]:
    """The words of all commands in a page's blocks, and of those within its sentences, which may be incomplete."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(rf"^```(?:{SHELL})\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    quoted = [" ".join(each.split()) for each in re.findall(r"`([^`]+)`", prose)]
    return list(commands("\n".join(blocks))), list(commands("\n".join(quoted)))


def commands(script: str) -> Iterator[list[str]]:
    """The words of circlet's commands in a script; other programs, `circlet-annif` among them, are passed over."""
    for line in re.sub(r"\\\n", " ", script).splitlines():
        if not re.search(r"(?:^|[\s|&;])circlet\s", line):
            continue
        lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        for is_end, words in groupby(lexer, key=lambda word: set(word) <= set("|&;")):
            if not is_end and (found := _of_circlet(list(words))) is not None:
                yield found


def _of_circlet(words: list[str]) -> list[str] | None:
    """What follows `circlet`, or `-m circlet` of Python or torchrun, up to `<` or `>`; None for other programs."""
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    modules = [at for at in range(1, len(words)) if words[at - 1 : at + 1] == ["-m", "circlet"]]
    start = 0 if words[:1] == ["circlet"] else modules[0] if modules else None
    if start is None:
        return None
    end = next((at for at, word in enumerate(words) if word in ("<", ">", ">>")), len(words))
    return words[start + 1 : end]


def resolved(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words begin with, and the rest of them; a placeholder such as NAME is any command."""
    command: Any = COMMANDS
    while words and not words[0].startswith("-") and hasattr(command, "list_commands"):
        names = list(command.list_commands(None))
        name = names[0] if words[0].isupper() else words[0]
        assert name in names, f"no command {name}"
        command, words = command.get_command(None, name), words[1:]
    return command, words


def options_exist(words: list[str]) -> None:
    command, rest = resolved(words)
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help", "-h"}
    used = {word.partition("=")[0] for word in rest if re.match("--?[a-z]", word)}
    assert used <= known, f"no option {', '.join(sorted(used - known))} of circlet {' '.join(words)}"


def parses(words: list[str]) -> None:
    options_exist(words)
    command, rest = resolved(words)
    if not hasattr(command, "commands"):  # options of circlet itself would be carried out
        command.make_context("circlet", rest)


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist(page):
    """Also those that are only shown, because they need files or downloads that nobody has here."""
    shown, mentioned = found_in(page)
    for words in shown:
        parses(words)
    for words in mentioned:
        options_exist(words)


def test_commands_of_pages_are_found():
    """The check above reads pages as they are written."""
    shown = {page: len(found_in(page)[0]) for page in PAGES}
    assert sum(shown.values()) > 80
    guides = [page for page in PAGES if page.startswith("docs/guides/") or page == "docs/tutorial.md"]
    wanted = [*guides, "README.md", "docs/bulk.md", "docs/distributed.md", "docs/explain.md", "docs/serve.md"]
    assert [page for page in wanted if not shown[page]] == []
    for script, words in {
        "$ circlet info mine  # a comment": [["info", "mine"]],
        'echo "a | b" | circlet predict mine - -k 3': [["predict", "mine", "-", "-k", "3"]],
        "circlet explain mine - < text.txt | less": [["explain", "mine", "-"]],
        "circlet predict mine 'docs/*.jsonl' > out.jsonl": [["predict", "mine", "docs/*.jsonl"]],
        "torchrun --nnodes 2 \\\n    -m circlet train DATA --model DIR": [["train", "DATA", "--model", "DIR"]],
        "CIRCLET_DATA=/data python -m circlet datasets list": [["datasets", "list"]],
        "pip install circlet annif\ncirclet-annif train p\ndocker run circlet serve": [],
    }.items():
        assert list(commands(script)) == words
    for line in ("trian x", "feedback show x", "info mine --plots a.png", "--instal"):
        with pytest.raises(AssertionError, match=r"no (command|option) "):
            options_exist(shlex.split(line))


def run(commands: str, works) -> str:
    """Run lines of commands in this folder, and return what they print."""
    printed = ""
    for line in commands.splitlines():
        piped = re.fullmatch(r'echo "(.*)" \| (circlet .*)', line)
        name, *words = shlex.split(piped[2] if piped else line, comments=True)
        assert name == "circlet", line
        if words[0] == "serve":  # does not end by itself
            continue
        printed += works(*words, stdin=f"{piped[1]}\n" if piped else "").stdout
    return printed


def run_page(page: str, works) -> str:
    """Run all blocks of a page, in order, and return what its commands print."""
    printed = ""
    text = (ROOT / page).read_text(encoding="utf-8")
    for language, code in re.findall(r"^```(python|console)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        if language == "python":
            exec(compile(code, page, "exec"), {})
        else:
            printed += run(code, works)
    return printed


@pytest.fixture(scope="module")
def done(works, tmp_path_factory) -> tuple[Path, str]:
    """A folder in which somebody went through the tutorial, and what was printed there."""
    folder = tmp_path_factory.mktemp("tutorial")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return folder, run_page("docs/tutorial.md", works)


def test_tutorial_runs(done):
    folder, printed = done
    assert '"labels": ["cycling", "repair"]' in printed or '"labels": ["repair", "cycling"]' in printed
    assert {"mine", "tagged.csv", "thresholds.png", "labels.csv"} <= {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] if page in LONG else []) for page in GUIDES]
)
def test_guide_runs(page, works, done, tmp_path, monkeypatch):
    """In a copy of the tutorial's folder."""
    shutil.copytree(done[0], tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    assert run_page(page, works)


#: The README's blocks that train, without downloads.
QUICK_STARTS = [
    re.sub(r".*datasets fetch.*\n", "", block)
    for block in re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    if "circlet train" in block
]


@pytest.fixture
def quick_start(tmp_path, monkeypatch):
    """Small datasets under the README's names, so that its commands run word for word."""
    texts = [("a red fox", ["animal", "red"]), ("the fast car", ["vehicle"]), ("a brown bear", ["animal"])] * 20
    lines = "".join(json.dumps({"text": text, "labels": labels}) + "\n" for text, labels in texts)
    for name in ("mine.jsonl", "held-out.jsonl", "data/eurlex-4k/train.jsonl", "data/eurlex-4k/test.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(lines, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CIRCLET_DATA", str(tmp_path / "data"))


@pytest.mark.usefixtures("quick_start")
@pytest.mark.parametrize("script", QUICK_STARTS)
def test_quick_start_runs(works, script):
    assert "P " in run(script, works)  # each has an evaluation


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="the README's commands are for a POSIX shell")
@pytest.mark.usefixtures("quick_start")
@pytest.mark.parametrize("script", QUICK_STARTS)
def test_quick_start_runs_in_a_shell(script):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    finished = subprocess.run(["sh", "-ec", script], env=environment, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert "P " in finished.stdout
