"""Where commands print: results to `out`, everything else to `err`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console

out = Console()
err = Console(stderr=True)


def track(description: str, steps: Sequence[int]) -> Iterable[int]:
    """Go through `steps` under a progress bar with the time left; without one if nobody is watching."""
    from rich.progress import track as rich_track  # start-up should not pay for it

    return rich_track(steps, description, console=err, transient=True, disable=not err.is_terminal)
