"""Every command's help is enough to get going."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest
import typer

from circlet.cli import app
from circlet.cli.help import EXAMPLES, complete_data, complete_preset


def _commands(command, path=()):
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from _commands(command.get_command(None, name), (*path, name))
    else:
        yield " ".join(path), command


COMMANDS = dict(_commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_shows_its_default(name):
    for option in COMMANDS[name].params:
        if option.param_type_name != "option" or option.is_flag or option.required or option.hidden:
            continue
        known = isinstance(option.show_default, str) or option.default is not None
        assert known, f"{name} {option.opts}"


@pytest.mark.parametrize("name", COMMANDS)
def test_flags_show_no_type_and_examples_are_shown(name, circlet):
    shown = circlet(*name.split(), "--help").stdout
    assert "<bool>" not in shown
    assert "BOOLEAN" not in shown
    assert "Examples:" in shown
    assert f"circlet {name}" in shown.partition("Examples:")[2]


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_examples_have_only_options_that_exist(line):
    words = shlex.split(line.rpartition("| ")[2])[1:]
    name = next(" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in COMMANDS)
    command = COMMANDS[name]
    context = command.make_context(name, words[len(name.split()) :])  # parses, and runs nothing
    assert context.params


def test_every_command_has_examples():
    assert {name for name in COMMANDS if not name.startswith("reproduce")} == set(EXAMPLES)


def test_completions():
    assert complete_data("eur") == ["eurlex-4k"]
    assert "accurate" in complete_preset("a")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("circlet datasets fetch eur", "eurlex-4k"),
        ("circlet train x --preset acc", "accurate"),
        ("circlet tune x --preset acc", "accurate"),
        ("circlet train eur", "eurlex-4k"),
        ("circlet evaluate model eur", "eurlex-4k"),
        ("circlet eva", "evaluate"),
    ],
)
def test_a_shell_gets_them(words, expected):
    asked = {"_CIRCLET_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    finished = subprocess.run(
        [sys.executable, "-m", "circlet"], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert finished.stdout.split() == [expected]


def test_without_a_command_the_help_is_all(circlet):
    finished = circlet()
    assert "Usage" in finished.stdout + finished.stderr
    assert "(see " not in finished.stderr


def test_a_shell_can_install_completion(circlet, monkeypatch):
    """The README names the option; the script that a shell gets is for this command."""
    options = {name for each in typer.main.get_command(app).params for name in each.opts}
    assert {"--install-completion", "--show-completion"} <= options
    shellingham = pytest.importorskip("shellingham")  # typer asks it which shell has started the command
    monkeypatch.setattr(shellingham, "detect_shell", lambda: ("bash", "/bin/bash"))
    finished = circlet("--show-completion")
    assert finished.returncode == 0
    assert "_CIRCLET_COMPLETE=complete_bash" in finished.stdout
    assert finished.stdout.rstrip().endswith(" circlet")
