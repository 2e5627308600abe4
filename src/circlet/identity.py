"""Identify a run by everything that determines its results, to tell whether a resumed run is the same.

Checkpoints, partial outputs, plans of bulk tagging, searches and measurements store such a record.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, NamedTuple

__all__ = ["Difference", "Identity"]


class Difference(NamedTuple):
    """A value that differs from the earlier run; as text, a description for an error."""

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
    """The values that determine the results of a run, by name; any that JSON has.

    If a record lacks a value with a default, an older version made it, and the run had the default. `words`
    describe differences in values that people cannot read, such as digests.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        defaults: Mapping[str, Any] | None = None,
        words: Mapping[str, str] | None = None,
    ) -> None:
        # Converted as by JSON, so that tuples and lists are equal.
        self.values, self.defaults = (json.loads(json.dumps(dict(each or {}))) for each in (values, defaults))
        self.words = words or {}

    @classmethod
    def of(cls, *settings: Any, words: Mapping[str, str] | None = None, **others: Any) -> Identity:
        """Make an identity of the fields of dataclasses, with their defaults, and other values."""
        known = [(field, getattr(each, field.name)) for each in settings for field in fields(each)]
        defaults = {field.name: field.default for field, _ in known if field.default is not MISSING}
        return cls({**{field.name: value for field, value in known}, **others}, defaults, words)

    @property
    def digest(self) -> str:
        """Return a digest of the values that differ from their defaults."""
        missing = object()
        counted = {name: each for name, each in self.values.items() if self.defaults.get(name, missing) != each}
        return hashlib.sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()

    def differences(self, before: Mapping[str, Any]) -> list[Difference]:
        """Return the differences from the values of an earlier run; empty if it was the same run."""
        found = []
        for name in dict.fromkeys((*self.values, *before)):
            then, now = (each.get(name, self.defaults.get(name, "unset")) for each in (before, self.values))
            if then != now:
                found.append(Difference(name, then, now, self.words.get(name)))
        return found
