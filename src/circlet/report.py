"""Tables of results: one object, shown in a terminal, in Markdown or as JSON records."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import rich.console

Cell = str | int | float | None


@dataclass(frozen=True)
class Table:
    """Rows under named columns. Columns without words in their cells are aligned as numbers.

    Parameters
    ----------
    title : str
    columns : sequence of str
    rows : sequence of sequences of Cell
        None is shown as a dash. Format numbers as strings where their digits matter.
    note : str
        A sentence to show under the table.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{self.title}: a row has {len(row)} cells for {len(self.columns)} columns")

    def markdown(self) -> str:
        """Return the table as GitHub-flavored Markdown, under its title in bold."""
        lines = [
            f"**{self.title}**",
            "",
            _markdown_row(self.columns),
            "|" + "|".join("---:" if self._is_numeric(i) else "---" for i in range(len(self.columns))) + "|",
            *(_markdown_row([_text(cell) for cell in row]) for row in self.rows),
        ]
        if self.note:
            lines += ["", self.note]
        return "\n".join(lines) + "\n"

    def records(self) -> list[dict[str, Cell]]:
        """Return one dictionary per row, from column to cell."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def rich(self) -> rich.console.Group:
        """Return the table for a terminal: title, columns and note."""
        # Only a terminal needs these, and they would slow down start-up.
        import rich.box
        import rich.console
        import rich.table
        from rich.markup import escape
        from rich.text import Text

        table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for position, column in enumerate(self.columns):
            # Numbers are never cut, however narrow the terminal is; words are wrapped instead.
            numeric = self._is_numeric(position)
            justify: Literal["left", "right"] = "right" if numeric else "left"
            widest = max((len(_text(row[position])) for row in self.rows), default=0)
            least = widest if numeric else None
            table.add_column(escape(column), justify=justify, min_width=least, overflow="fold")
        for row in self.rows:
            table.add_row(*(escape(_text(cell)) for cell in row))
        # rich wraps its own title and caption at the table's width, which is too narrow for a sentence.
        note = [Text(self.note, style="dim")] if self.note else []
        return rich.console.Group(Text(self.title, style="bold"), "", table, *note, "")

    def _is_numeric(self, column: int) -> bool:
        cells = (_text(row[column]) for row in self.rows)
        return column > 0 and not any(re.search(r"[^\W\d_]{2}", cell) for cell in cells)


def _text(cell: Cell) -> str:
    if cell is None:
        return "–"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
