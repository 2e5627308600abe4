"""Every command of circlet that a page shows exists, with its options: it is parsed, and nothing runs."""

from __future__ import annotations

import re
import shlex
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


def test_pages_have_commands():
    """The check above reads pages as they are written."""
    shown = {page: len(found_in(page)[0]) for page in PAGES}
    assert sum(shown.values()) > 80
    guides = [page for page in PAGES if page.startswith("docs/guides/") or page == "docs/tutorial.md"]
    wanted = [*guides, "README.md", "docs/bulk.md", "docs/distributed.md", "docs/explain.md", "docs/serve.md"]
    assert [page for page in wanted if not shown[page]] == []


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("$ circlet info mine  # a comment", ["info", "mine"]),
        ('echo "a | b" | circlet predict mine - -k 3', ["predict", "mine", "-", "-k", "3"]),
        ("circlet explain mine - < text.txt | less", ["explain", "mine", "-"]),
        ("circlet predict mine 'docs/*.jsonl' > out.jsonl", ["predict", "mine", "docs/*.jsonl"]),
        ("torchrun --nnodes 2 \\\n    -m circlet train DATA --model DIR", ["train", "DATA", "--model", "DIR"]),
        ("CIRCLET_DATA=/data python -m circlet datasets list", ["datasets", "list"]),
    ],
)
def test_words_of_a_command(script, words):
    assert list(commands(script)) == [words]


@pytest.mark.parametrize(
    "script", ["pip install circlet annif", "circlet-annif train p", "docker run circlet serve"]
)
def test_other_programs_are_passed_over(script):
    assert list(commands(script)) == []


@pytest.mark.parametrize(
    "line", ["circlet trian x", "circlet feedback show x", "circlet info mine --plots a.png", "circlet --instal"]
)
def test_mistakes_are_found(line):
    (words,) = commands(line)
    with pytest.raises(AssertionError, match=r"no (command|option) "):
        options_exist(words)
