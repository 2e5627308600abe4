"""`circlet demo`: see it work, in seconds, with nothing to download."""

from __future__ import annotations

from functools import partial

from rich.text import Text

from circlet.cli.console import out, track
from circlet.experiments import load


def demo() -> None:
    """Store labels in one vector and read them back: circular against real vectors.

    Example: circlet demo
    """
    capacity = load("capacity")
    settings = capacity.Settings(dims=(64, 128, 256, 512))
    result = capacity.run(settings, partial(track, "storing and retrieving"))

    out.print(
        "\nEach label is a random vector. k of 1,000 labels are bound to a concept, summed into one vector, "
        "and read back.\nHow many of the k come back, in percent, with d = 256 numbers per vector:\n",
        highlight=False,
    )
    ks = range(5, 51, 5)
    row = settings.dims.index(256)
    out.print(Text("stored labels k".ljust(16) + "".join(f"{k:>5}" for k in ks), style="bold"))
    for method, name in (("hrr-projected", "real (HRR)"), ("chrr", "circular (CHRR)")):
        line = Text(name.ljust(16))
        for k in ks:
            accuracy = result["methods"][method]["mean"][row][k - 1]
            line.append(f"{accuracy:5.0f}", style=_colour(accuracy))
        out.print(line)
    out.print()
    for table in capacity.tables(result):
        out.print(table.rich())
    out.print(
        "The paper's full heat maps: [bold]circlet reproduce capacity[/bold] (a few minutes), "
        "or with --quick (seconds).",
        highlight=False,
    )


def _colour(accuracy: float) -> str:
    return "green" if accuracy >= 95 else "yellow" if accuracy >= 80 else "red"
