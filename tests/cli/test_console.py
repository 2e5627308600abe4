"""Standard output that is full, closed or no longer read: one line, whichever command prints to it. Also bars."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from circlet.cli.console import DocumentBar, Stdout, check_picture, check_stdout, write_picture
from circlet.cli.progress import TrainingBar
from circlet.errors import OutputError, ParameterError
from circlet.training import StepsTaken

FULL = Path("/dev/full")
full = pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
COMMAND = f"{sys.executable} -m circlet"


def run(words: str, buffered: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command in a shell, which can close and redirect streams."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"}
    return subprocess.run(
        words, shell=True, capture_output=True, text=True, check=False, timeout=60, env=environment
    )


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
class TestCommands:
    @pytest.mark.parametrize(
        ("words", "buffered", "why"),
        [
            *(
                pytest.param(f"{words} > /dev/full", buffered, "No space left on device", marks=full)
                for words, buffered in [("--version", True), ("datasets list", True), ("datasets list", False)]
            ),
            ("datasets list >&-", True, "it is closed"),
        ],
    )
    def test_full_or_closed(self, words, buffered, why):
        finished = run(f"{COMMAND} {words}", buffered)
        assert finished.returncode == 2
        assert finished.stderr == f"circlet: cannot write to standard output: {why}\n"
        assert FULL.is_char_device() == FULL.exists()

    def test_no_file_takes_the_place_of_a_closed_stream(self):
        code = "import os; from circlet.cli.console import occupy_closed_streams as occupy; occupy(); "
        code += "number = os.open('/', os.O_RDONLY); assert number > 2, number"
        assert run(f'{sys.executable} -c "{code}" <&- >&- 2>&-').returncode == 0

    @pytest.mark.parametrize("buffered", [True, False])
    def test_nobody_reads(self, buffered):
        finished = run(f"{{ sleep 0.1; {COMMAND} datasets list; echo $? >&2; }} | true", buffered)
        assert finished.stderr == "0\n"

    @full
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

    @pytest.mark.parametrize(
        ("wanted", "is_terminal", "wait"),
        [(True, True, 0.5), (False, True, 2), (True, False, 2)],
        ids=["for a moment", "not wanted", "no terminal"],
    )
    def test_nothing_is_shown(self, screen, terminal, wanted, is_terminal, wait):
        now = [0.0]
        console = terminal if is_terminal else Console(file=screen)
        with DocumentBar(shown=wanted, console=console, clock=lambda: now[0]) as bar:
            now[0] = wait * bar.after
            bar.done(1)
        assert screen.getvalue() == ""


def steps(n: int) -> StepsTaken:
    return StepsTaken(steps=n, loss=0.5 * n, documents=16 * n)


def planned(epochs, members, **options):
    bar = TrainingBar(**options)
    bar.plan(epochs, members)
    return bar


class TestTrainingBar:
    def test_a_run_that_goes_on_inside_an_epoch(self):
        bar = planned(3, 1)
        bar.epoch(0, 12, 0)
        assert (bar.bar.now.total, bar.bar.now.completed, bar.bar.now.description) == (36, 0, "epoch 1/3")
        bar = planned(3, 1, name="fc")
        task = bar.bar.now
        bar.epoch(1, 12, 5)  # 12 steps of the first epoch and 5 of the second were taken before
        assert (task.total, task.completed, task.description) == (36, 17, "fc epoch 2/3")
        bar.step(steps(4))
        assert task.completed == 21
        assert task.fields["numbers"].startswith("loss 0.5 ")
        bar.step(steps(3))
        bar.epoch(2, 12, 0)
        assert (task.total, task.completed) == (36, 24)
        assert bar.documents == 7 * 16  # only these count for the speed

    def test_all_members_share_a_bar(self):
        bar = planned(3, 2)
        task = bar.bar.now
        for member, taken, completed, description in [
            (0, (0, 12, 0), 0, "member 1/2, epoch 1/3"),
            (0, (2, 12, 0), 24, "member 1/2, epoch 3/3"),
            (1, (1, 12, 5), 53, "member 2/2, epoch 2/3"),
        ]:
            bar.member(member)
            bar.epoch(*taken)
            assert (task.total, task.completed, task.description) == (72, completed, description)

    @pytest.mark.parametrize("quiet", [False, True])
    def test_a_line_per_epoch(self, capsys, quiet):
        record = {"epoch": 2, "loss": 0.123456, "lr": 0.1, "seconds": 3, "documents_per_second": 4321, "P@1": 0.5}
        planned(10, 1, quiet=quiet).record(record)
        line = "epoch   2/10  loss 0.1235  P@1 50.00  4,321 documents/s\n"
        assert capsys.readouterr() == ("", "" if quiet else line)


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
