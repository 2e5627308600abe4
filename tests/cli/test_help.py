"""Every command's help is enough to get going."""

from __future__ import annotations

import re
import shlex
import sys

import pytest
import typer

from circlet.cli import EXAMPLES, app


def _commands(command, path=()):
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from _commands(command.get_command(None, name), (*path, name))
    else:
        yield " ".join(path), command


COMMANDS = dict(_commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
class TestEveryCommand:
    @pytest.fixture
    def shown(self, name, circlet) -> str:
        return circlet(*name.split(), "--help", COLUMNS="80").stdout

    def test_what_it_is_for_comes_first_and_examples_last(self, name, shown):
        lines = [line.strip() for line in shown.splitlines() if line.strip()]
        assert lines[0].startswith(f"Usage: circlet {name} ")
        assert max(map(len, lines[1 : lines.index("Examples:")])) <= 80
        assert all(line.startswith(("circlet ", "echo ")) for line in lines[lines.index("Examples:") + 1 :])
        assert f"circlet {name}" in shown.partition("Examples:")[2]

    def test_every_option_shows_a_word_for_its_value_and_its_default(self, name, shown):
        rows: list[str] = []
        for line in shown.splitlines():
            if line.startswith("│ -"):
                rows.append("")
            if line.startswith("│") and rows:
                rows[-1] += line.strip("│ ") + " "
        for option in COMMANDS[name].params:
            if option.param_type_name == "option" and not option.hidden:
                (row,) = [each for each in rows if re.match(rf"(-\w, )?{max(option.opts, key=len)}[ ,]", each)]
                assert bool(re.match(r"\S+( --\S+)? [A-Z,]+ ", row)) != option.is_flag, row
                assert option.is_flag or re.search(r"\[[^\]]+\] $", row), row


def test_the_first_panels_of_train_fit_on_a_screen(circlet):
    lines = circlet("train", "--help", COLUMNS="80").stdout.splitlines()
    panels = {line.strip("╭─╮ "): row for row, line in enumerate(lines) if line.startswith("╭")}
    assert list(panels) == ["Data", "What matters", "Network", "Optimization", "Output"]
    assert 24 <= panels["Network"] <= 40


@pytest.mark.parametrize("line", EXAMPLES)
def test_examples_have_only_options_that_exist(line):
    words = shlex.split(line.rpartition("| ")[2])[1:]
    name = next(" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in COMMANDS)
    command = COMMANDS[name]
    context = command.make_context(name, words[len(name.split()) :])  # parses, and runs nothing
    assert context.params


def test_help_names_every_command(works):
    finished = works("--help")
    assert all(name.split()[0] in finished.stdout for name in COMMANDS)


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
def test_a_shell_gets_them(process, words, expected):
    asked = {"_CIRCLET_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    assert process(sys.executable, "-m", "circlet", **asked).stdout.split() == [expected]


def test_without_a_command_the_help_is_all(circlet):
    finished = circlet()
    assert "Usage" in finished.stdout + finished.stderr
    assert "(see " not in finished.stderr


def test_a_shell_can_install_completion(works, monkeypatch):
    """The README names the option; the script that a shell gets is for this command."""
    options = {name for each in typer.main.get_command(app).params for name in each.opts}
    assert {"--install-completion", "--show-completion"} <= options
    shellingham = pytest.importorskip("shellingham")  # typer asks it which shell has started the command
    monkeypatch.setattr(shellingham, "detect_shell", lambda: ("bash", "/bin/bash"))
    finished = works("--show-completion")
    assert "_CIRCLET_COMPLETE=complete_bash" in finished.stdout
    assert finished.stdout.rstrip().endswith(" circlet")
