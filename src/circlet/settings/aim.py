"""What a threshold is chosen for: the best F1, or as many labels as possible at a given precision or recall."""

from __future__ import annotations

from typing import Any, NamedTuple

from circlet.errors import ParameterError

__all__ = ["Aim"]


class Aim(NamedTuple):
    """A measure over all decisions together, and the value that it shall reach.

    Parameters
    ----------
    measure : {"f1", "precision", "recall"}
    target : float or None
        None for f1, which shall be as high as possible.
    """

    measure: str
    target: float | None = None

    @classmethod
    def of(cls, text: Any) -> Aim:
        """The aim that is written as `f1`, `precision=0.9` or `recall=0.8`.

        >>> Aim.of("precision=0.9")
        Aim(measure='precision', target=0.9)
        """
        measure, equals, number = text.partition("=") if isinstance(text, str) else ("", "", "")
        if measure == "f1" and not equals:
            return cls("f1")
        try:
            target = float(number)
        except ValueError:
            target = -1.0
        if measure not in ("precision", "recall") or not 0 < target <= 1:
            raise ParameterError(
                "`threshold_for` (--for) must be f1, or precision or recall with a number up to 1, such as "
                f"precision=0.9, got {text!r}"
            )
        return cls(measure, target)
