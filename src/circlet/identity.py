"""Whether what goes on is the same run: a record of what determines its results, and how another one differs.

Checkpoints, descriptions of runs, partial outputs, plans of bulk tagging, searches and measurements keep such a
record beside what has been done so far.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, NamedTuple

__all__ = ["Difference", "Identity"]

#: In place of a value that is not there and has no default.
_UNSET = "unset"


class Difference(NamedTuple):
    """A value that was another one before; as text, in words for an error."""

    name: str
    before: Any
    now: Any
    words: str | None = None

    def __str__(self) -> str:
        if self.words is not None:
            return self.words
        before, now = (
            ",".join(map(str, value)) if isinstance(value, list) else str(value)
            for value in (self.before, self.now)
        )
        return f"{self.name.replace('_', '-')} {before}, and now {now}"


class Identity:
    """What determines the results of a run, by name.

    Parameters
    ----------
    values : mapping
        Anything that JSON can hold.
    defaults : mapping, optional
        The defaults of some values. A record without one of these is that of a run that had the default, made by a
        version that did not know of it.
    words : mapping, optional
        What to say if a value differs that tells people nothing, such as a digest.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        defaults: Mapping[str, Any] | None = None,
        words: Mapping[str, str] | None = None,
    ) -> None:
        # As they are read back from JSON, so that tuples and lists are the same.
        self.values, self.defaults = (json.loads(json.dumps(dict(each or {}))) for each in (values, defaults))
        self.words = words or {}

    @classmethod
    def of(cls, *settings: Any, words: Mapping[str, str] | None = None, **others: Any) -> Identity:
        """The fields of dataclasses, whose defaults do not count, and other values."""
        known = [(field, getattr(each, field.name)) for each in settings for field in fields(each)]
        defaults = {field.name: field.default for field, _ in known if field.default is not MISSING}
        return cls({**{field.name: value for field, value in known}, **others}, defaults, words)

    @property
    def digest(self) -> str:
        """The same for all runs with these values, defaults left out."""
        counted = {
            name: value
            for name, value in self.values.items()
            if name not in self.defaults or value != self.defaults[name]
        }
        return hashlib.sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()

    def differences(self, before: Mapping[str, Any]) -> list[Difference]:
        """What differs from the values of an earlier run; nothing if it was the same run."""
        found = []
        for name in dict.fromkeys((*self.values, *before)):
            then, now = (each.get(name, self.defaults.get(name, _UNSET)) for each in (before, self.values))
            if then != now:
                found.append(Difference(name, then, now, self.words.get(name)))
        return found
