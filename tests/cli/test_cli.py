"""The commands as a person runs them: real processes, exit status, what is printed where."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PNG = b"\x89PNG\r\n\x1a\n"


def circlet(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "circlet", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1", **environment},
    )


def assert_one_clear_line(finished: subprocess.CompletedProcess[str], *words: str) -> None:
    assert finished.returncode == 2, finished.stderr
    assert finished.stdout == ""
    assert finished.stderr.count("\n") == 1, finished.stderr
    assert "Traceback" not in finished.stderr
    for word in words:
        assert word in finished.stderr


@pytest.mark.parametrize("experiment", ["capacity", "stability"])
def test_reproduce_quick_writes_numbers_page_and_picture(experiment, tmp_path):
    folder = tmp_path / "new" / "folder"
    finished = circlet("reproduce", experiment, "--quick", "--repetitions", "2", "--out", str(folder))
    assert finished.returncode == 0, finished.stderr
    assert "CHRR" in finished.stdout
    assert sorted(path.name for path in folder.iterdir()) == [
        f"{experiment}.{end}" for end in ("json", "md", "png")
    ]
    result = json.loads((folder / f"{experiment}.json").read_text(encoding="utf-8"))
    assert result["settings"]["repetitions"] == 2
    assert (folder / f"{experiment}.png").read_bytes().startswith(PNG)
    assert (folder / f"{experiment}.md").read_text(encoding="utf-8").startswith("# ")


def test_json_on_stdout_is_json(tmp_path):
    finished = circlet("reproduce", "stability", "--quick", "--json", "--repetitions", "2", "--out", str(tmp_path))
    tables = json.loads(finished.stdout)
    assert tables["Mean of the similarities"][0]["k = 1"] == "1.000"


@pytest.mark.slow
def test_demo(tmp_path):
    finished = circlet("demo", CIRCLET_DATA=str(tmp_path), COLUMNS="120")
    assert finished.returncode == 0, finished.stderr
    rows = {
        line.split()[0]: line.split()[1:] for line in finished.stdout.splitlines() if "/" in line and line.strip()
    }
    for head in ("fc", "hrr", "chrr"):
        precision = [float(value) for value in rows[head][0].split("/")]
        assert precision[0] > 85
    assert "scipy.sparse.linalg" in finished.stdout


def test_help_names_every_command():
    finished = circlet("--help")
    assert finished.returncode == 0
    for command in ("datasets", "demo", "reproduce"):
        assert command in finished.stdout


def test_no_command_shows_the_help():
    assert "Usage" in circlet().stdout


def test_version():
    from circlet import __version__

    assert circlet("--version").stdout == f"circlet {__version__}\n"


class TestDatasets:
    def test_list(self):
        assert "eurlex-4k" in circlet("datasets", "list").stdout
        known = {row["name"]: row for row in json.loads(circlet("datasets", "list", "--json").stdout)}
        assert known["amazon-670k"]["a"] == 0.6
        assert known["eurlex-4k"]["labels"] == 3993

    def test_info_of_a_file(self, tmp_path):
        path = tmp_path / "mine.jsonl"
        path.write_text('{"text": "a red fox", "labels": ["animal", "red"]}\n{"text": "a car", "labels": []}\n')
        described = json.loads(circlet("datasets", "info", str(path), "--json").stdout)
        assert described["train_points"] == 2
        assert described["labels"] == 2
        assert described["empty_rows_train"] == 1
        assert "JSONL" in described["format"]
        assert "labels per point" in circlet("datasets", "info", str(path)).stdout

    def test_info_of_pydocs_needs_no_network(self, tmp_path):
        finished = circlet(
            "datasets", "info", "pydocs", "--json", CIRCLET_DATA=str(tmp_path), HTTPS_PROXY="http://127.0.0.1:9"
        )
        described = json.loads(finished.stdout)
        assert described["train_points"] > 5000
        assert described["labels"] > 800

    def test_mistakes(self, tmp_path):
        assert_one_clear_line(circlet("datasets", "info", "nowhere"), "'nowhere'", "circlet datasets list")
        assert_one_clear_line(circlet("datasets", "fetch", "nowhere"), "'nowhere'", "eurlex-4k")
        finished = circlet("datasets", "fetch", "wiki10-31k", CIRCLET_DATA=str(tmp_path))
        assert_one_clear_line(finished, "train.txt and test.txt", str(tmp_path / "wiki10-31k"))
        damaged = tmp_path / "damaged.jsonl"
        damaged.write_text('{"text": "a", "labels": ["b"]}\n{"text": \n')
        assert_one_clear_line(circlet("datasets", "info", str(damaged)), "damaged.jsonl:2", "wanted")


class TestMistakes:
    def test_unknown_option(self):
        assert_one_clear_line(circlet("reproduce", "capacity", "--fast"), "--fast", "reproduce capacity --help")

    def test_unknown_command(self):
        assert_one_clear_line(circlet("learn"), "learn", "--help")

    def test_bad_value(self):
        assert_one_clear_line(circlet("reproduce", "stability", "--repetitions", "0"), "--repetitions", "2")

    def test_out_is_a_file(self, tmp_path):
        occupied = tmp_path / "occupied"
        occupied.write_text("mine")
        finished = circlet("reproduce", "stability", "--quick", "--out", str(occupied / "deeper"))
        assert_one_clear_line(finished, "cannot write", "occupied", "Not a directory")
        assert occupied.read_text() == "mine"

    @pytest.mark.skipif(sys.platform != "linux", reason="/proc is a folder nobody can write in on Linux only")
    def test_out_is_not_writable(self):
        finished = circlet("reproduce", "stability", "--quick", "--out", "/proc/circlet")
        assert_one_clear_line(finished, "cannot write", "/proc/circlet")

    def test_missing_extra(self, tmp_path):
        # Hides matplotlib from the process before anything else is imported.
        (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['matplotlib'] = None\n")
        finished = circlet(
            "reproduce", "stability", "--quick", "--out", str(tmp_path / "o"), PYTHONPATH=str(tmp_path)
        )
        assert_one_clear_line(finished, "matplotlib", "pip install 'circlet[plot]'")
        assert not (tmp_path / "o").exists()


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_interrupt_leaves_nothing_behind(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "circlet", "reproduce", "capacity", "--out", str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(8)  # long enough to be in the middle of the grid, which takes minutes
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert list(Path(tmp_path).iterdir()) == []
