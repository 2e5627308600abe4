from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console
from rich.progress import TimeRemainingColumn

from circlet.cli import document_bar
from circlet.cli.document_bar import DELAY, DocumentBar


@pytest.fixture
def screen(monkeypatch):
    """What a terminal on stderr shows."""
    shown = io.StringIO()
    terminal = Console(file=shown, force_terminal=True, width=100, _environ={"TERM": "xterm"})
    monkeypatch.setattr(document_bar, "err", terminal)
    return shown


def test_numbers_and_speed(screen):
    stdout, now = sys.stdout, [5.0]
    with DocumentBar(shown=True, clock=lambda: now[0]) as bar:
        bar.total = 4000
        bar.advance(1000)
        now[0] += 10
        bar.done(1024)
        (task,) = bar.bars.tasks
        assert (task.completed, task.total) == (1000, 4000)
        assert task.fields["numbers"] == "1,024 documents  102 documents/s"
        assert any(isinstance(column, TimeRemainingColumn) for column in bar.bars.columns)
        assert sys.stdout is stdout, "results would be printed by the bar, on stderr"
        bar.done(1024)
        assert task.fields["numbers"] == "2,048 documents  205 documents/s"
    assert "1,024 documents" in screen.getvalue()


def test_nothing_is_shown_for_a_moment(screen):
    now = [0.0]
    with DocumentBar(shown=True, clock=lambda: now[0]) as bar:
        now[0] = DELAY / 2
        bar.done(1)
    assert screen.getvalue() == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_is_shown_where_it_is_not_wanted(screen, monkeypatch, terminal):
    now = [0.0]
    if not terminal:
        monkeypatch.setattr(document_bar, "err", Console(file=screen))
    with DocumentBar(shown=not terminal, clock=lambda: now[0]) as bar:
        now[0] = 2 * DELAY
        bar.done(1)
    assert screen.getvalue() == ""
