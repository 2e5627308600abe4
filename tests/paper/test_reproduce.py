"""`circlet reproduce`: its commands, and the studies on small datasets with quick settings."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import typer

import circlet_paper
from circlet.cli import app
from circlet.errors import CircletError, DataError, ParameterError
from circlet.training import InterruptedRunError
from circlet_paper import reproduce
from circlet_paper.cell_bars import CellBars

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    monkeypatch.setenv("CIRCLET_DATA", str(tmp_path / "nothing"))


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(0)
    for name in ("delicious", "eurlex-4k"):
        (folder / name).mkdir()
        for part, n in (("trn", 60), ("tst", 20)):
            Y = (random.random((n, 30)) < 0.1).astype(np.float32)
            X = Y @ random.random((30, 40)).astype(np.float32)
            sp.save_npz(folder / name / f"X.{part}.npz", sp.csr_matrix(X))
            sp.save_npz(folder / name / f"Y.{part}.npz", sp.csr_matrix(Y))
    for part, rows in (("tr", range(1, 61)), ("tst", range(61, 81))):
        (folder / "delicious" / f"delicious_{part}Split.txt").write_text("".join(f"{row} {row}\n" for row in rows))
    return folder


def table(*arguments: str) -> int | None:
    return app(["reproduce", "table", "--device", "cpu", *arguments], standalone_mode=False)


def test_every_experiment_has_a_command_with_its_description():
    commands = typer.main.get_group(reproduce.app).commands
    shown = {name: command.help.splitlines()[0] for name, command in commands.items()}
    assert shown == circlet_paper.EXPERIMENTS
    assert list(shown) == list(circlet_paper.EXPERIMENTS)


@pytest.mark.parametrize("experiment", ["capacity", "stability"])
def test_reproduce_quick_writes_numbers_page_and_picture(circlet, experiment, tmp_path):
    folder = tmp_path / "new" / "folder"
    finished = circlet("reproduce", experiment, "--quick", "--repetitions", "2", "--output", folder)
    assert finished.returncode == 0, finished.stderr
    assert "CHRR" in finished.stdout
    assert sorted(path.name for path in folder.iterdir()) == [
        f"{experiment}.{end}" for end in ("json", "md", "png")
    ]
    result = json.loads((folder / f"{experiment}.json").read_text(encoding="utf-8"))
    assert result["settings"]["repetitions"] == 2
    assert (folder / f"{experiment}.png").read_bytes().startswith(PNG)
    assert (folder / f"{experiment}.md").read_text(encoding="utf-8").startswith("# ")


def test_interrupt_leaves_nothing_behind(circlet, tmp_path, monkeypatch):
    begun: list[int] = []

    def interrupted(_, steps):
        for step in steps:
            if len(begun) == 2:
                signal.raise_signal(signal.SIGINT)
            begun.append(step)
            yield step

    monkeypatch.setattr(reproduce, "track", interrupted)
    finished = circlet("reproduce", "capacity", "--quick", "--repetitions", "2", "--output", tmp_path)
    assert finished[:2] == (130, "")
    assert "Traceback" not in finished.stderr
    assert len(begun) == 2
    assert list(tmp_path.iterdir()) == []


def test_table_quick(data, tmp_path, capsys):
    options = ["--quick", "--seeds", "1", "--data", str(data), "--output", str(tmp_path)]
    table(*options)
    printed = capsys.readouterr()
    assert "EURLex-4K: precision" in printed.out
    lines = printed.err.splitlines()
    assert [line.split(":")[0] for line in lines[:4]] == [
        "wiki10-31k",
        "delicious-200k",
        "wordnet",
        "yso-finna-en",
    ]
    assert len(lines) == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cells", "quick-table.md", "quick-table.png"]
    cells = sorted((tmp_path / "cells").rglob("*.json"))
    assert len(cells) == 8 + 2 + 8
    assert {path.parent.name for path in cells} == {"quick-delicious", "quick-eurlex-4k"}

    # When every cell is stored, nothing is measured, and the page and the picture are the same.
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    times = {path: path.stat().st_mtime_ns for path in cells}
    (tmp_path / "quick-table.md").unlink()
    table(*options, "--json")
    tables = json.loads(capsys.readouterr().out)
    assert tables["Delicious: precision, %"][0]["P@1"] == "69.6"
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert {path: path.stat().st_mtime_ns for path in cells} == times


def test_no_dataset_at_all(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    with pytest.raises(DataError, match="none of the datasets"):
        table("--quick", "--data", str(tmp_path / "data"), "--output", str(tmp_path / "out"))
    assert "circlet datasets fetch eurlex-4k" in capsys.readouterr().err


@pytest.mark.slow
def test_table_quick_where_nothing_is_fetched(tmp_path, capsys):
    table("--quick", "--seeds", "1", "--output", str(tmp_path))
    printed = capsys.readouterr()
    assert "found none of the datasets; a quick run takes pydocs instead" in printed.err
    assert "Python docs" in printed.out
    assert len(list((tmp_path / "cells" / "quick-pydocs").glob("*.json"))) == 5


class TestMistakes:
    def test_a_number_out_of_range(self, refused):
        line = refused("reproduce", "stability", "--repetitions", "0")
        assert "--repetitions" in line
        assert "2" in line

    def test_a_file_in_place_of_the_folder(self, refused, tmp_path):
        occupied = tmp_path / "occupied"
        occupied.write_text("mine")
        line = refused("reproduce", "stability", "--quick", "--output", occupied / "deeper")
        for word in ("cannot write", "occupied", "Not a directory"):
            assert word in line
        assert occupied.read_text() == "mine"

    @pytest.mark.skipif(sys.platform != "linux", reason="/proc is a folder nobody can write in on Linux only")
    def test_a_folder_that_cannot_be_written_to(self, refused):
        assert "cannot write /proc/circlet" in refused(
            "reproduce", "stability", "--quick", "--output", "/proc/circlet"
        )

    def test_missing_extra(self, process, one_clear_line, tmp_path):
        # Hide matplotlib from the process before it imports anything else.
        (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['matplotlib'] = None\n")
        path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
        finished = process(
            *(sys.executable, "-m", "circlet", "reproduce", "stability", "--quick"),
            *("--output", str(tmp_path / "o")),
            PYTHONPATH=path,
        )
        line = one_clear_line(finished)
        assert "matplotlib" in line
        assert line.endswith("pip install 'circlet[plot]'")
        assert not (tmp_path / "o").exists()

    def test_folders_and_devices(self, tmp_path):
        with pytest.raises(ParameterError, match="--data: wanted a folder"):
            table("--data", str(tmp_path / "no"), "--output", str(tmp_path))
        with pytest.raises(ParameterError, match="'abacus' is not available"):
            app(["reproduce", "table", "--device", "abacus", "--output", str(tmp_path)], standalone_mode=False)


def test_failures_are_reported_and_the_page_is_written(data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        "circlet_paper.training_cells.TrainingCell.measure",
        lambda *_: (_ for _ in ()).throw(DataError("no luck")),
    )
    with pytest.raises(CircletError, match="18 cells failed; run the same command"):
        table("--quick", "--seeds", "1", "--data", str(data), "--output", str(tmp_path))
    assert "quick-delicious/paper-fc-h512-seed0: no luck" in capsys.readouterr().err
    assert "Nothing has been measured yet." in (tmp_path / "quick-table.md").read_text(encoding="utf-8")


def test_an_interruption_says_how_to_continue(data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        "circlet_paper.training_cells.TrainingCell.measure",
        lambda *_: (_ for _ in ()).throw(InterruptedRunError("interrupted")),
    )
    assert table("--quick", "--data", str(data), "--output", str(tmp_path)) == 130
    assert "0 of" in (printed := capsys.readouterr().err)
    assert "the same command continues" in printed


def test_bars_follow_the_cells(capsys):
    with CellBars() as bars:
        bars.start(done=2, total=5)
        (every,) = bars.bars.tasks
        assert (every.description, every.completed, every.total) == ("cells", 2, 5)
        cell = SimpleNamespace(name="eurlex/fc")
        with bars.begin(cell) as reporter:
            _, own = bars.bars.tasks
            assert own.total is None
            reporter.plan(3, 1)
            assert (own.description, own.completed, own.total) == ("eurlex/fc", 0, 3)
            reporter.record({"epoch": 2})
            assert own.completed == 2
        bars.end(cell)
        assert bars.bars.tasks == [every]
        assert every.completed == 3
        bars.note("delicious: [not] there")
    assert capsys.readouterr() == ("", "delicious: [not] there\n")


def test_a_cell_without_epochs_has_a_bar_without_an_end():
    bars = CellBars()
    with bars.begin(SimpleNamespace(name="capacity")):
        assert bars.bars.tasks[1].total is None
