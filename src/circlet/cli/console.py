"""Where commands print: results to `out`, everything else to `err`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console

out = Console()
err = Console(stderr=True)


def track(description: str, steps: Sequence[int]) -> Iterable[int]:
    """Iterate over `steps` with a progress bar that shows the time left; on a terminal only."""
    from rich.progress import track as rich_track  # would slow down start-up

    return rich_track(steps, description, console=err, transient=True, disable=not err.is_terminal)
