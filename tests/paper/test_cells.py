"""Running cells: resuming, missing datasets, failures, several processes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from circlet.errors import DataError, ParameterError
from circlet.training import InterruptedRunError
from circlet_paper.cells import Watcher, Workplace, collect, footer, read, run_cells
from circlet_paper.training_cells import Settings, TrainingCell

MEASURED: list[str] = []


@dataclass(frozen=True)
class Counting:
    """A cell that records that it was measured."""

    name: str
    settings: dict = field(default_factory=dict)
    lacks: str | None = None
    error: Exception | None = None

    def about(self):
        return {"seed": 0, **self.settings}

    def missing(self, workplace):
        return self.lacks

    def measure(self, workplace, reporter):
        MEASURED.append(self.name)
        if self.error:
            raise self.error
        return {"value": 1}


class Notes(Watcher):
    def __init__(self):
        self.lines, self.started, self.ended = [], None, []

    def start(self, done, total):
        self.started = (done, total)

    def end(self, cell):
        self.ended.append(cell.name)

    def note(self, line):
        self.lines.append(line)


@pytest.fixture(autouse=True)
def _forget():
    MEASURED.clear()


def cells(n: int = 3) -> list[Counting]:
    return [Counting(f"set/model-seed{i}", {"widths": (4, 2)}) for i in range(n)]


def test_only_cells_without_a_json_are_measured(tmp_path):
    notes = Notes()
    assert run_cells(cells(), tmp_path, Workplace(), watcher=notes) == []
    assert MEASURED == notes.ended == [cell.name for cell in cells()]
    assert notes.started == (0, 3)
    stored = json.loads((tmp_path / "cells/set/model-seed1.json").read_text(encoding="utf-8"))
    assert stored["cell"] == "set/model-seed1"
    assert stored["about"] == {"seed": 0, "widths": [4, 2]}
    assert stored["value"] == 1
    assert stored["seconds"] >= 0
    assert {"command", "versions", "machine"} <= set(stored["provenance"])
    MEASURED.clear()
    (tmp_path / "cells/set/model-seed1.json").unlink()
    run_cells(cells(), tmp_path, Workplace(), watcher=notes)
    assert MEASURED == ["set/model-seed1"]
    assert notes.started == (2, 3)


def test_other_settings_are_measured_again(tmp_path):
    run_cells(cells(), tmp_path, Workplace())
    changed = [replace(cell, settings={"widths": (4, 3)}) if cell.name[-1] == "2" else cell for cell in cells()]
    assert [read(cell, tmp_path) is None for cell in changed] == [False, False, True]
    MEASURED.clear()
    run_cells(changed, tmp_path, Workplace())
    assert MEASURED == ["set/model-seed2"]


@pytest.mark.parametrize("content", ["{", "", "[]", '"text"', "{}"])
def test_a_damaged_json_is_measured_again(tmp_path, content, caplog):
    run_cells(cells(1), tmp_path, Workplace())
    path = tmp_path / "cells/set/model-seed0.json"
    path.write_text(content, encoding="utf-8")
    assert collect("x", Settings(), cells(1), tmp_path)["cells"] == []
    assert ("found no readable JSON" in caplog.text) == (content in ("{", ""))
    run_cells(cells(1), tmp_path, Workplace())
    assert read(cells(1)[0], tmp_path)["value"] == 1


def test_what_is_missing_is_reported_once_and_the_others_run(tmp_path):
    notes, lacking = Notes(), [Counting(f"other/seed{i}", lacks="other: not here") for i in range(2)]
    run_cells([*lacking, *cells()], tmp_path, Workplace(), watcher=notes)
    assert notes.lines == ["other: not here"]
    assert [cell.name for cell in cells()] == MEASURED
    assert notes.started == (2, 5)


def test_no_dataset_at_all(tmp_path):
    with pytest.raises(DataError, match=r"none of the datasets.*--data"):
        run_cells([Counting("a", lacks="a: not here")], tmp_path, Workplace())
    run_cells([Counting("a")], tmp_path, Workplace())
    # The data is gone, but the numbers are stored.
    assert run_cells([Counting("a", lacks="a: not here")], tmp_path, Workplace()) == []


def test_a_failure_does_not_stop_the_others(tmp_path):
    bad, notes = Counting("set/bad", error=DataError("X.trn.npz: found nonsense")), Notes()
    assert run_cells([bad, *cells()], tmp_path, Workplace(), watcher=notes) == ["set/bad"]
    assert notes.lines == ["set/bad: X.trn.npz: found nonsense"]
    assert len(notes.ended) == 4
    assert not (tmp_path / "cells/set/bad.json").exists()


def test_an_interruption_stops_the_others_and_keeps_what_is_done(tmp_path):
    stop = Counting("set/stop", error=InterruptedRunError("interrupted"))
    with pytest.raises(KeyboardInterrupt):
        run_cells([cells()[0], stop, cells()[1]], tmp_path, Workplace())
    assert [path.name for path in (tmp_path / "cells/set").iterdir()] == ["model-seed0.json"]


def test_two_cells_with_the_same_name(tmp_path):
    with pytest.raises(ParameterError, match="'a' more than once"):
        run_cells([Counting("a"), Counting("a")], tmp_path, Workplace())


def write_dataset(folder: Path, seed: int = 0) -> None:
    """60 training and 20 test rows; one label for each of 12 groups of features, two labels per row."""
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    for part, n in (("trn", 60), ("tst", 20)):
        chosen = np.array([random.choice(12, 2, replace=False) for _ in range(n)])
        Y = np.zeros((n, 12), dtype=np.float32)
        np.put_along_axis(Y, chosen, 1, axis=1)
        X = np.repeat(Y, 3, axis=1) * random.random((n, 36)).round(3)
        sp.save_npz(folder / f"X.{part}.npz", sp.csr_matrix(X.astype(np.float32)))
        sp.save_npz(folder / f"Y.{part}.npz", sp.csr_matrix(Y))


@pytest.mark.slow
def test_several_processes_give_the_same_numbers(tmp_path):
    write_dataset(tmp_path / "data/delicious")
    small = {"head": "chrr", "dim": 16, "hidden": (8, 8), "epochs": 2}
    planned = [TrainingCell("delicious", "paper", small, seed) for seed in (0, 1)]
    planned.append(TrainingCell("delicious", "paper", {**small, "loss": "softmax", "lr": 1e30, "hidden": (8,)}))
    workplace, results = Workplace(tmp_path / "data", "cpu"), []
    for jobs in (1, 2):
        notes = Notes()
        failed = run_cells(planned, tmp_path / str(jobs), workplace, jobs=jobs, watcher=notes)
        results.append(collect("x", Settings(), planned, tmp_path / str(jobs)))
        assert failed == [planned[2].name]  # such a learning rate makes the weights non-finite
        assert "learning rate" in notes.lines[0]
        assert sorted(notes.ended) == sorted(cell.name for cell in planned)
    metrics = [[cell["metrics"] for cell in result["cells"]] for result in results]
    assert metrics[0] == metrics[1]
    assert metrics[0][0] != metrics[0][1]  # the seed has an effect


class TestWorkplace:
    def test_a_named_folder_comes_first(self, tmp_path, monkeypatch):
        monkeypatch.setenv("CIRCLET_DATA", str(tmp_path / "own"))
        workplace = Workplace(tmp_path / "named")
        assert workplace.folder("delicious") is None
        write_dataset(tmp_path / "own/delicious")
        assert workplace.folder("delicious") == tmp_path / "own/delicious"
        write_dataset(tmp_path / "named/delicious")
        assert workplace.folder("delicious") == tmp_path / "named/delicious"
        assert workplace.missing("delicious") is None
        assert workplace.load("delicious") is workplace.load("delicious")

    def test_how_to_get_what_is_missing(self, tmp_path, monkeypatch):
        monkeypatch.setenv("CIRCLET_DATA", str(tmp_path / "own"))
        workplace = Workplace(tmp_path / "named")
        wanted = {
            "eurlex-4k": "circlet datasets fetch eurlex-4k",
            "wiki10-31k": "Download Wiki10-31K",
            "wordnet": "X.trn.npz",
        }
        for name, words in wanted.items():
            line = workplace.missing(name)
            assert line.startswith(f"{name}: found no folder {tmp_path / 'named' / name} or ")
            assert str(tmp_path / "own" / name) in line
            assert words in line
            assert "\n" not in line
        with pytest.raises(DataError, match="eurlex-4k: found no folder"):
            workplace.load("eurlex-4k")


def test_footer_names_every_machine_and_command():
    def cell(command, gpu, device, seed):
        machine = {"processor": "Abacus", "threads": 2, "gpu": gpu}
        origin = {"command": command, "versions": {"torch": "2.13.0"}, "machine": machine}
        return {"about": {"seed": seed}, "seconds": 1000.2, "device": device, "provenance": origin}

    both = [cell("circlet b", "Big GPU", "cuda", 1), cell("circlet a", "Big GPU", "cpu", 0)]
    assert footer({"cells": both}) == (
        "`circlet a`, `circlet b`; 2 cells, seeds 0, 1, 2,000 s in all on Abacus (2 threads) and Big GPU, "
        "torch 2.13.0."
    )
    assert footer({"cells": []}) == "Nothing has been measured yet."
