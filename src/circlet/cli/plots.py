"""Where `--plot` writes a picture: checked before any work is done, and in the format that its name says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from circlet import files
from circlet.cli.console import err
from circlet.errors import OutputError, ParameterError
from circlet.extras import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FORMATS", "check", "write"]

#: By what a name ends in; without an ending, as devices are, it is the first.
FORMATS = ("png", "svg", "pdf")


def check(path: Path | None) -> None:
    """Refuse a place that a picture can't be written to; None is no place."""
    if path is None:
        return
    require("matplotlib", extra="plot", purpose="drawing")
    if not path.parent.is_dir():
        raise OutputError(f"--plot: found no folder {path.parent}; wanted one that exists")
    if path.suffix and _format(path) not in FORMATS:
        raise ParameterError(f"--plot: found {path.name}; wanted a name that ends in .{', .'.join(FORMATS)}")


def write(path: Path, figure: Figure) -> None:
    """Write a picture, and say so."""
    with files.output(path) as file:
        figure.savefig(file, dpi=110, format=_format(path) or FORMATS[0])
    err.print(f"{path} drawn", highlight=False)


def _format(path: Path) -> str:
    return path.suffix.lower().removeprefix(".")
