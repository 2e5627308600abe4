"""The commands as a person runs them: exit status, and what is printed where."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from circlet import __version__


class TestProcesses:
    def test_module(self, tmp_path, process):
        (tmp_path / "a.jsonl").write_text('{"text": "a red fox", "labels": ["animal"]}\n', encoding="utf-8")
        finished = process(
            sys.executable, "-m", "circlet", "datasets", "info", str(tmp_path / "a.jsonl"), "--json"
        )
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
            (["--help"], "torch circlet_paper"),
            (["train", "--help"], "torch circlet_paper"),
            (["predict", "--help"], "torch circlet_paper"),
            (["datasets", "list"], "torch circlet_paper"),
            (["reproduce", "table", "--help"], "torch circlet.training"),
        ],
    )
    def test_torch_and_the_paper_are_not_imported_before_they_are_needed(self, words, unneeded, process):
        code = (
            "import sys; from circlet.cli import main\ntry: main()\n"
            f"finally: assert not {set(unneeded.split())} & {{*sys.modules}}"
        )
        finished = process(sys.executable, "-c", code, *words)
        assert (finished.returncode, finished.stderr) == (0, "")


def test_version(circlet):
    assert circlet("--version") == (0, f"circlet {__version__}\n", "")


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
        "predict . -",
        "evaluate . data",
        "info .",
        "explain . text",
        "compress .",
        "export . a.onnx",
        "serve . --port 0",
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
