"""Standard output that is full, closed or no longer read: one line, whichever command prints to it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from circlet.cli.console import DocumentBar, Stdout, check_picture, check_stdout, write_picture
from circlet.errors import OutputError, ParameterError

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

    @pytest.mark.parametrize("buffered", [True, False])
    def test_nobody_reads(self, buffered):
        finished = run(f"{{ sleep 0.1; {COMMAND} datasets list; echo $? >&2; }} | true", buffered)
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


@pytest.fixture
def screen() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def terminal(screen) -> Console:
    """A terminal that shows on `screen`."""
    return Console(file=screen, force_terminal=True, width=100, _environ={"TERM": "xterm"})


class TestDocumentBar:
    def test_numbers_and_speed(self, screen, terminal):
        stdout, now = sys.stdout, [5.0]
        with DocumentBar(shown=True, console=terminal, clock=lambda: now[0]) as bar:
            bar.total = 4000
            bar.advance(1000)
            now[0] += 10
            bar.done(1024)
            assert (bar.now.completed, bar.now.total) == (1000, 4000)
            assert bar.now.fields["numbers"] == "1,024 documents  102 documents/s"
            assert sys.stdout is stdout, "results would be printed by the bar, on stderr"
            bar.done(1024)
            assert bar.now.fields["numbers"] == "2,048 documents  205 documents/s"
        assert "1,024 documents" in screen.getvalue()
        assert ":" in screen.getvalue()  # the time left

    def test_nothing_is_shown_for_a_moment(self, screen, terminal):
        now = [0.0]
        with DocumentBar(shown=True, console=terminal, clock=lambda: now[0]) as bar:
            now[0] = bar.after / 2
            bar.done(1)
        assert screen.getvalue() == ""

    @pytest.mark.parametrize("is_terminal", [True, False])
    def test_nothing_is_shown_where_it_is_not_wanted(self, screen, terminal, is_terminal):
        console = terminal if is_terminal else Console(file=screen)
        now = [0.0]
        with DocumentBar(shown=not is_terminal, console=console, clock=lambda: now[0]) as bar:
            now[0] = 2 * bar.after
            bar.done(1)
        assert screen.getvalue() == ""


class TestPictures:
    @pytest.fixture
    def figure(self):
        figures = pytest.importorskip("matplotlib.figure")
        return figures.Figure(figsize=(1, 1))

    @pytest.mark.parametrize(
        ("name", "start"), [("a.png", b"\x89PNG"), ("a.SVG", b"<?xml"), ("a.pdf", b"%PDF"), ("a", b"\x89PNG")]
    )
    def test_the_name_says_the_format(self, tmp_path, figure, name, start, capsys):
        check_picture(tmp_path / name)
        write_picture(tmp_path / name, figure)
        assert (tmp_path / name).read_bytes().startswith(start)
        assert f"{name} drawn" in capsys.readouterr().err.replace("\n", "")

    def test_places_that_are_refused(self, tmp_path):
        check_picture(None)
        with pytest.raises(
            ParameterError, match=r"--plot: found a\.jpeg; wanted a name that ends in \.png, \.svg, \.pdf"
        ):
            check_picture(tmp_path / "a.jpeg")
        with pytest.raises(OutputError, match="--plot: found no folder"):
            check_picture(tmp_path / "new" / "a.png")
