"""How settings reject invalid values."""

from __future__ import annotations

from typing import Any

from circlet.errors import ParameterError

__all__ = ["check"]


def check(settings: Any, **conditions: tuple[bool, str]) -> None:
    """Raise `ParameterError` for the first field whose condition does not hold: (holds, what is wanted)."""
    for name, (holds, wanted) in conditions.items():
        if not holds:
            raise ParameterError(f"`{name}` must be {wanted}, got {getattr(settings, name)!r}")
