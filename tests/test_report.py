from __future__ import annotations

import io

import pytest
from rich.console import Console

from circlet.report import Table

TABLE = Table("Two [numbers]", ("", "P@1", "labels"), [("a|b", "81.2", 3993), ("c", None, 7)], note="Note.")


def test_markdown():
    assert TABLE.markdown() == (
        "**Two [numbers]**\n\n"
        "|  | P@1 | labels |\n|---|---:|---:|\n| a\\|b | 81.2 | 3,993 |\n| c | – | 7 |\n\nNote.\n"
    )


def test_records():
    first, second = {"": "a|b", "P@1": "81.2", "labels": 3993}, {"": "c", "P@1": None, "labels": 7}
    assert TABLE.records() == [first, second]


def terminal(table: Table, width: int) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(table.rich())
    return stream.getvalue()


def test_a_terminal_shows_brackets_as_they_are():
    shown = terminal(TABLE, 60)
    assert "Two [numbers]" in shown
    assert "3,993" in shown


def test_a_narrow_terminal_cuts_no_number():
    table = Table(
        "t", ("", "of parameters", "P@1/3/5"), [("a name of very many words", 782_592, "94.5/82.2/63.1")]
    )
    rows = terminal(table, 50).splitlines()
    assert rows[-3].split()[-2:] == ["782,592", "94.5/82.2/63.1"]
    assert rows[-2].split() == ["many", "words"]


def test_a_short_row_is_refused():
    with pytest.raises(ValueError, match="2 cells for 3 columns"):
        Table("t", ("a", "b", "c"), [("x", 1)])
