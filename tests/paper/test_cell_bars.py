from __future__ import annotations

from types import SimpleNamespace

from circlet_paper.cell_bars import CellBars


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
