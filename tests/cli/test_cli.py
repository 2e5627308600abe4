"""The commands as a person runs them: exit status, what is printed where, help, and options that many share."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import Mock

import pytest
import torch
import typer
from threadpoolctl import threadpool_limits

from circlet import __version__
from circlet.cli import EXAMPLES, app, options
from circlet.errors import DataError, ParameterError
from circlet.model import Model
from circlet.runtime import RuntimeModel
from circlet.settings import DEFAULTS
from circlet.settings.network import shown
from circlet.settings.run import all_settings
from circlet.storage import layout
from circlet.threads import worker_count


class TestProcesses:
    def test_module(self, tmp_path, process):
        (tmp_path / "a.jsonl").write_text('{"text": "a red fox", "labels": ["animal"]}\n', encoding="utf-8")
        words = ("datasets", "info", str(tmp_path / "a.jsonl"), "--json")
        finished = process(sys.executable, "-m", "circlet", *words)
        assert finished.returncode == 0, finished.stderr
        assert json.loads(finished.stdout)["labels"] == 1

    def test_console_script(self, process, one_clear_line):
        script = shutil.which("circlet", path=Path(sys.executable).parent)
        if script is None:
            pytest.skip("circlet is not installed beside this Python")
        assert process(script, "--version").stdout == f"circlet {__version__}\n"
        line = one_clear_line(process(script, "learn"))
        assert "learn" in line
        assert line.endswith("(see circlet --help)")

    @pytest.mark.parametrize(
        ("words", "unneeded"),
        [
            ("--help", "torch circlet_paper"),
            ("train --help", "torch circlet_paper"),
            ("predict --help", "torch circlet_paper"),
            ("datasets list", "torch circlet_paper"),
            ("reproduce table --help", "torch circlet.training"),
        ],
    )
    def test_torch_and_the_paper_are_not_imported_before_they_are_needed(self, words, unneeded, process):
        code = (
            "import sys; from circlet.cli import main\ntry: main()\n"
            f"finally: assert not {set(unneeded.split())} & {{*sys.modules}}"
        )
        finished = process(sys.executable, "-c", code, *words.split())
        assert (finished.returncode, finished.stderr) == (0, "")


def test_version_and_no_command(circlet):
    assert circlet("--version") == (0, f"circlet {__version__}\n", "")
    finished = circlet()
    assert "Usage" in finished.stdout + finished.stderr
    assert "(see " not in finished.stderr


@pytest.mark.parametrize(
    ("words", "wrong", "command"),
    [("reproduce capacity --fast", "--fast", " reproduce capacity"), ("learn", "learn", "")],
)
def test_mistakes(refused, words, wrong, command):
    line = refused(*words.split())
    assert wrong in line
    assert line.endswith(f"(see circlet{command} --help)")


@pytest.mark.parametrize(
    "words",
    [
        *("predict . -", "evaluate . data", "info .", "explain . text", "compress ."),
        *("export . a.onnx", "serve . --port 0"),
    ],
)
def test_a_folder_without_a_model(refused, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "is not a circlet model" in refused(*words.split())
    assert list(tmp_path.iterdir()) == []


def test_folders_of_the_user_are_temporary(circlet):
    """Without this, the check of `home` at the end of the session would prove nothing."""
    import matplotlib
    import platformdirs

    scratch = Path(os.environ["CIRCLET_DATA"]).parent
    assert Path.home() == scratch / "home"
    assert Path(matplotlib.get_cachedir()).is_relative_to(scratch)
    listed = " ".join(circlet("datasets", "list", COLUMNS="200").stdout.split())
    assert f"Kept in {os.environ['CIRCLET_DATA']}" in listed
    if sys.platform != "win32":  # which does not go by environment variables
        assert platformdirs.user_cache_path("circlet").is_relative_to(scratch)


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
    def page(self, name, circlet) -> str:
        return circlet(*name.split(), "--help", COLUMNS="80").stdout

    def test_what_it_is_for_comes_first_and_examples_last(self, name, page):
        lines = [line.strip() for line in page.splitlines() if line.strip()]
        assert lines[0].startswith(f"Usage: circlet {name} ")
        assert max(map(len, lines[1 : lines.index("Examples:")])) <= 80
        assert all(line.startswith(("circlet ", "echo ")) for line in lines[lines.index("Examples:") + 1 :])
        assert f"circlet {name}" in page.partition("Examples:")[2]

    def test_every_option_shows_a_word_for_its_value_and_its_default(self, name, page):
        rows: list[str] = []
        for line in page.splitlines():
            if line.startswith("│ -"):
                rows.append("")
            if line.startswith("│") and rows:
                rows[-1] += line.strip("│ ") + " "
        for option in COMMANDS[name].params:
            if option.param_type_name == "option" and not option.hidden:
                (row,) = [each for each in rows if re.match(rf"(-\w, )?{max(option.opts, key=len)}[ ,]", each)]
                assert bool(re.match(r"\S+( --\S+)? [A-Z,]+ ", row)) != option.is_flag, row
                assert option.is_flag or re.search(r"\[[^\]]+\] $", row), row


def test_help_names_every_command_and_the_first_panels_of_train_fit_on_a_screen(circlet, works):
    text = works("--help").stdout
    assert all(name.split()[0] in text for name in COMMANDS)
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


def test_a_shell_can_install_completion(works, monkeypatch):
    """The README names the option; the script that a shell gets is for this command."""
    options = {name for each in typer.main.get_command(app).params for name in each.opts}
    assert {"--install-completion", "--show-completion"} <= options
    shellingham = pytest.importorskip("shellingham")  # typer asks it which shell has started the command
    monkeypatch.setattr(shellingham, "detect_shell", lambda: ("bash", "/bin/bash"))
    finished = works("--show-completion")
    assert "_CIRCLET_COMPLETE=complete_bash" in finished.stdout
    assert finished.stdout.rstrip().endswith(" circlet")


@pytest.fixture
def _threads(monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setattr("circlet.threads._chosen", None)
    with threadpool_limits():  # restores BLAS's threads afterwards
        yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_threads")
class TestThreads:
    def test_as_many_as_asked_for(self):
        options.use_torch("this test", 3)
        assert torch.get_num_threads() == 3
        options.use_torch("this test", None)
        assert torch.get_num_threads() == 3

    @pytest.mark.parametrize("command", ["train", "predict", "evaluate", "demo", "embed"])
    def test_every_command_that_computes_takes_them(self, circlet, command, model, data, tmp_path, monkeypatch):
        if command == "demo":  # whose data takes long to build
            monkeypatch.setattr("circlet.data.load_dataset", Mock(side_effect=DataError("found nothing")))
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")  # embed sets both for its process, which is that of the tests
        monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "0")
        words = {
            "train": [tmp_path / "nothing", "--model", tmp_path / "m"],
            "predict": [model, "-"],
            "evaluate": [model, data],
            "demo": [],
            "embed": [data, "--sentence-model", tmp_path / "nothing", "--output", tmp_path / "o"],
        }[command]
        circlet(command, *words, "--threads", "2", stdin="a fox\n")
        assert (worker_count() if command in ("predict", "evaluate") else torch.get_num_threads()) == 2

    @pytest.mark.parametrize("threads", ["0", "-1", "many"])
    def test_bad_numbers(self, refused, threads, model):
        assert "--threads" in refused("predict", model, "-", "--threads", threads)


@pytest.mark.usefixtures("_threads")
class TestLoadModel:
    @pytest.mark.parametrize("device", ["auto", "cpu"])
    def test_on_a_cpu_where_the_configuration_is_read_once(self, device, model, monkeypatch):
        read = []
        monkeypatch.setattr(layout, "sealed", lambda config, real=layout.sealed: read.append(1) or real(config))
        assert isinstance(options.load_tagger(model, device, None).model_, RuntimeModel)
        assert read == [1]

    @pytest.mark.parametrize("device", ["cuda", "gpu"])
    def test_on_other_devices(self, device, model):
        if device == "cuda" and torch.cuda.is_available():
            assert isinstance(options.load_tagger(model, device, None).model_, Model)
        else:
            with pytest.raises(ParameterError, match=f"`device` '{device}' is not available"):
                options.load_tagger(model, device, None)


class TestSettings:
    """`circlet train` has an option for each setting, made from its field."""

    @pytest.fixture
    def taken(self, monkeypatch) -> Callable[..., dict[str, Any]]:
        """The settings that a command gets."""

        panels = dict.fromkeys(["What matters", "Network", "Optimization", "Output"], ())

        @options.with_settings({"Data": ("data",), **panels})
        def command(data: Annotated[str, typer.Argument()], settings: dict[str, Any] | None = None) -> None:
            found.update(settings or {})

        found: dict[str, Any] = {}
        app = typer.Typer(add_completion=False)
        app.command()(command)

        def run(*words: str) -> dict[str, Any]:
            found.clear()
            typer.main.get_command(app).main(["mine", *words], standalone_mode=False)
            return {name: value for name, value in found.items() if value is not None}

        return run

    def test_there_is_one_for_each(self, taken):
        names = {name for name, each in all_settings().items() if each.panel}
        assert names == set(DEFAULTS) - {"word_ngrams"}
        assert taken() == {}

    def test_words_become_values(self, taken):
        words = "--hidden 768,384 --char-ngrams 3,5 --lr 0.5 --dim 8 --no-join --for precision=0.9 --validation 40"
        assert taken(*words.split()) == {
            "hidden": (768, 384), "char_ngrams": (3, 5), "lr": 0.5, "dim": 8, "join": False,
            "threshold_for": "precision=0.9", "validation": 40.0,
        }  # fmt: skip
        assert taken("--char-ngrams", "none", "--join") == {"char_ngrams": "none", "join": True}
        with pytest.raises(ParameterError, match="--char-ngrams: found '3-5'; wanted integers separated"):
            taken("--char-ngrams", "3-5")

    def test_the_help_shows_choices_and_defaults(self, circlet):
        text = circlet("train", "--help", COLUMNS="300").stdout
        lines = dict(re.findall(r"│ --([a-z-]+)[ ,].*?  +(.*?) +│", text))
        for name, each in all_settings().items():
            if each.panel:
                option = (each.option or name).removeprefix("--").partition("/")[0].replace("_", "-")
                usual = shown(each.usual)
                if each.kind.type is bool:  # a flag shows its own name
                    usual = each.option.split("/")[not each.usual].removeprefix("--")
                assert lines[option].startswith(each.help)
                assert lines[option].endswith(f"[{usual}]")
                assert all(choice in lines[option] for choice in each.kind.choices)
