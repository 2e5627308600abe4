"""Standard output that is full, closed or no longer read: one line, whichever command prints to it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from circlet.cli.console import Stdout, check_stdout
from circlet.errors import OutputError

FULL = Path("/dev/full")
COMMAND = f"{sys.executable} -m circlet"


def run(words: str, buffered: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command in a shell, which can close and redirect streams."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"}
    return subprocess.run(
        words, shell=True, capture_output=True, text=True, check=False, timeout=60, env=environment
    )


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
class TestCommands:
    @pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
    @pytest.mark.parametrize("words", ["--version", "datasets list"])
    @pytest.mark.parametrize("buffered", [True, False])
    def test_full(self, words, buffered):
        finished = run(f"{COMMAND} {words} > /dev/full", buffered)
        assert finished.returncode == 2
        assert finished.stderr == "circlet: cannot write to standard output: No space left on device\n"
        assert FULL.is_char_device()

    def test_closed(self):
        finished = run(f"{COMMAND} datasets list >&-")
        assert finished.returncode == 2
        assert finished.stderr == "circlet: cannot write to standard output: it is closed\n"

    def test_no_file_takes_the_place_of_a_closed_stream(self):
        code = "import os; from circlet.cli.console import occupy_closed_streams as occupy; occupy(); "
        code += "number = os.open('/', os.O_RDONLY); assert number > 2, number"
        assert run(f'{sys.executable} -c "{code}" <&- >&- 2>&-').returncode == 0

    @pytest.mark.parametrize("words", ["datasets list"])
    @pytest.mark.parametrize("buffered", [True, False])
    def test_nobody_reads(self, words, buffered):
        finished = run(f"{{ sleep 0.1; {COMMAND} {words}; echo $? >&2; }} | true", buffered)
        assert finished.stderr == "0\n"

    @pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
    def test_an_error_that_nobody_can_read(self):
        assert run(f"{COMMAND} info no-such-model 2> /dev/full").returncode == 2
        assert run(f"{COMMAND} info no-such-model 2>&-").returncode == 2


def test_a_stream_that_is_closed(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Stdout(None))
    assert not sys.stdout.isatty()
    sys.stdout.flush()
    for call in (check_stdout, lambda: sys.stdout.write("text")):
        with pytest.raises(OutputError, match="cannot write to standard output: it is closed"):
            call()


def test_a_stream_that_works(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdout", Stdout(sys.stdout))
    sys.stdout.write("one\n")
    sys.stdout.writelines(["two\n", "three\n"])
    assert capsys.readouterr().out == "one\ntwo\nthree\n"
    assert sys.stdout.encoding
