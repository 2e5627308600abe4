"""The commands as a person runs them: exit status, and what is printed where."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from circlet import __version__
from circlet.cli import reproduce

PNG = b"\x89PNG\r\n\x1a\n"


def process(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a new process, where the one of the tests would not do."""
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1", **environment},
    )


def assert_one_clear_line(finished, *words: str) -> None:
    assert finished.returncode == 2, finished.stderr
    assert finished.stdout == ""
    assert finished.stderr.count("\n") == 1, finished.stderr
    assert "Traceback" not in finished.stderr
    for word in words:
        assert word in finished.stderr


class TestProcesses:
    def test_module(self, tmp_path):
        options = ["reproduce", "stability", "--quick", "--json", "--repetitions", "2", "--out", str(tmp_path)]
        finished = process(sys.executable, "-m", "circlet", *options)
        assert finished.returncode == 0, finished.stderr
        tables = json.loads(finished.stdout)
        assert tables["Mean of the similarities"][0]["k = 1"] == "1.000"

    def test_console_script(self):
        script = shutil.which("circlet", path=Path(sys.executable).parent)
        if script is None:
            pytest.skip("circlet is not installed beside this Python")
        assert process(script, "--version").stdout == f"circlet {__version__}\n"
        assert_one_clear_line(process(script, "learn"), "learn", "(see circlet --help)")

    @pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["datasets", "list"]])
    def test_torch_is_not_imported_before_it_is_needed(self, words):
        code = "import sys; from circlet.cli import main\ntry: main()\nfinally: assert 'torch' not in sys.modules"
        finished = process(sys.executable, "-c", code, *words)
        assert (finished.returncode, finished.stderr) == (0, "")

    def test_missing_extra(self, tmp_path):
        # Hide matplotlib from the process before it imports anything else.
        (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['matplotlib'] = None\n")
        path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
        finished = process(
            *(sys.executable, "-m", "circlet", "reproduce", "stability", "--quick"),
            *("--out", str(tmp_path / "o")),
            PYTHONPATH=path,
        )
        assert_one_clear_line(finished, "matplotlib", "pip install 'circlet[plot]'")
        assert not (tmp_path / "o").exists()

    @pytest.mark.slow
    def test_demo(self):
        finished = process(sys.executable, "-m", "circlet", "demo", COLUMNS="120")
        assert finished.returncode == 0, finished.stderr
        rows = {
            line.split()[0]: line.split()[1:]
            for line in finished.stdout.splitlines()
            if "/" in line and line.strip()
        }
        for head in ("fc", "hrr", "chrr"):
            precision = [float(value) for value in rows[head][0].split("/")]
            assert precision[0] > 85
        assert "scipy.sparse.linalg" in finished.stdout


@pytest.mark.parametrize("experiment", ["capacity", "stability"])
def test_reproduce_quick_writes_numbers_page_and_picture(circlet, experiment, tmp_path):
    folder = tmp_path / "new" / "folder"
    finished = circlet("reproduce", experiment, "--quick", "--repetitions", "2", "--out", folder)
    assert finished.returncode == 0, finished.stderr
    assert "CHRR" in finished.stdout
    assert sorted(path.name for path in folder.iterdir()) == [
        f"{experiment}.{end}" for end in ("json", "md", "png")
    ]
    result = json.loads((folder / f"{experiment}.json").read_text(encoding="utf-8"))
    assert result["settings"]["repetitions"] == 2
    assert (folder / f"{experiment}.png").read_bytes().startswith(PNG)
    assert (folder / f"{experiment}.md").read_text(encoding="utf-8").startswith("# ")


def test_help_names_every_command(circlet):
    finished = circlet("--help")
    assert finished.returncode == 0
    for command in ("datasets", "demo", "reproduce"):
        assert command in finished.stdout


def test_no_command_shows_the_help(circlet):
    assert "Usage" in circlet().stdout


def test_version(circlet):
    assert circlet("--version") == (0, f"circlet {__version__}\n", "")


class TestDatasets:
    def test_list(self, circlet):
        assert "eurlex-4k" in circlet("datasets", "list").stdout
        known = {row["name"]: row for row in json.loads(circlet("datasets", "list", "--json").stdout)}
        assert known["amazon-670k"]["a"] == 0.6
        assert known["eurlex-4k"]["labels"] == 3993

    def test_info_of_a_file(self, circlet, tmp_path):
        path = tmp_path / "mine.jsonl"
        path.write_text('{"text": "a red fox", "labels": ["animal", "red"]}\n{"text": "a car", "labels": []}\n')
        described = json.loads(circlet("datasets", "info", path, "--json").stdout)
        assert described["train_points"] == 2
        assert described["labels"] == 2
        assert described["empty_rows_train"] == 1
        assert "JSONL" in described["format"]
        assert "labels per point" in circlet("datasets", "info", path).stdout

    @pytest.mark.usefixtures("real_pydocs")
    def test_info_of_pydocs_needs_no_network(self, circlet, monkeypatch):
        monkeypatch.setattr(socket, "socket", None)
        described = json.loads(circlet("datasets", "info", "pydocs", "--json").stdout)
        assert described["train_points"] > 5000
        assert described["labels"] > 800

    def test_mistakes(self, circlet, tmp_path):
        assert_one_clear_line(circlet("datasets", "info", "nowhere"), "'nowhere'", "circlet datasets list")
        assert_one_clear_line(circlet("datasets", "fetch", "nowhere"), "'nowhere'", "eurlex-4k")
        finished = circlet("datasets", "fetch", "wiki10-31k", CIRCLET_DATA=str(tmp_path))
        assert_one_clear_line(finished, "train.txt and test.txt", str(tmp_path / "wiki10-31k"))
        damaged = tmp_path / "damaged.jsonl"
        damaged.write_text('{"text": "a", "labels": ["b"]}\n{"text": \n')
        assert_one_clear_line(circlet("datasets", "info", damaged), "damaged.jsonl:2", "wanted")


class TestMistakes:
    def test_unknown_option(self, circlet):
        finished = circlet("reproduce", "capacity", "--fast")
        assert_one_clear_line(finished, "--fast", "(see circlet reproduce capacity --help)")

    def test_unknown_command(self, circlet):
        assert_one_clear_line(circlet("learn"), "learn", "(see circlet --help)")

    def test_bad_value(self, circlet):
        assert_one_clear_line(circlet("reproduce", "stability", "--repetitions", "0"), "--repetitions", "2")

    def test_out_is_a_file(self, circlet, tmp_path):
        occupied = tmp_path / "occupied"
        occupied.write_text("mine")
        finished = circlet("reproduce", "stability", "--quick", "--out", occupied / "deeper")
        assert_one_clear_line(finished, "cannot write", "occupied", "Not a directory")
        assert occupied.read_text() == "mine"

    @pytest.mark.skipif(sys.platform != "linux", reason="/proc is a folder nobody can write in on Linux only")
    def test_out_is_not_writable(self, circlet):
        finished = circlet("reproduce", "stability", "--quick", "--out", "/proc/circlet")
        assert_one_clear_line(finished, "cannot write", "/proc/circlet")


def test_interrupt_leaves_nothing_behind(circlet, tmp_path, monkeypatch):
    begun: list[int] = []

    def interrupted(_, steps):
        for step in steps:
            if len(begun) == 2:
                signal.raise_signal(signal.SIGINT)
            begun.append(step)
            yield step

    monkeypatch.setattr(reproduce, "track", interrupted)
    finished = circlet("reproduce", "capacity", "--quick", "--repetitions", "2", "--out", tmp_path)
    assert finished[:2] == (130, "")
    assert "Traceback" not in finished.stderr
    assert len(begun) == 2
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
