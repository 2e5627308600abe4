"""How labels are written in one field of a CSV or TSV file: with a separator between them, or as a list.

Files rarely say which. `guess` finds out from some of the fields, and only where the evidence is clear: parts of
fields that are labels in other rows, on their own or at another place among others. "Paris, France" and
"Lyon, France" are no such evidence, because France is always in second place.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["DEFAULT", "LISTS", "Notation", "guess", "in_words", "parse_list", "split_field"]

#: Used where there is no evidence for another separator.
DEFAULT = ";"
#: In place of a separator: each field is a list in Python's or JSON's notation, such as ['a', 'b'].
LISTS = "[]"
_CANDIDATES = ("|", "\t", ",")
_MAX_LIST = 1 << 20  # characters of one list
_ESCAPE = r"\\(?:[\\'\"nrt]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
_ITEM = rf"(?:'(?:[^'\\\r\n]|{_ESCAPE})*'|\"(?:[^\"\\\r\n]|{_ESCAPE})*\"|-?[0-9]{{1,18}})"
_PYTHON_LIST = re.compile(rf"\[\s*(?:{_ITEM}\s*(?:,\s*|(?=\])))*\]")


@dataclass(frozen=True)
class Notation:
    """What `guess` found: a separator or `LISTS`, the same in words, and what looks wrong, if anything."""

    separator: str
    words: str
    doubt: str = ""


def guess(fields: Sequence[str]) -> Notation:
    """Find out how labels are written from non-empty label fields, some 200 of them or fewer."""
    fields = [field.strip(" ") for field in fields]
    distinct = list(dict.fromkeys(fields))
    if distinct and all(parse_list(field) is not None for field in distinct):
        return Notation(LISTS, in_words(LISTS))
    separator, words = DEFAULT, "one label per row"
    if any(DEFAULT in field for field in distinct):
        words = in_words(DEFAULT)
    elif found := next((mark for mark in _CANDIDATES if _separates(mark, distinct)), None):
        separator, words = found, in_words(found)
    return Notation(separator, words, _doubt(fields, separator))


def in_words(separator: str) -> str:
    """Describe a separator to a user."""
    if separator == LISTS:
        return "labels as lists"
    return f"labels separated by {'tabs' if separator == chr(9) else separator}"


def split_field(field: str, separator: str) -> list[str] | None:
    """The labels of a field, without spaces around them and without empty ones.

    None if the field should be a list and is not.
    """
    labels = field.split(separator) if separator != LISTS else parse_list(field) if field.strip() else []
    return None if labels is None else [label for part in labels if (label := part.strip(" "))]


def parse_list(field: str) -> list[str] | None:
    """The items of a list of strings and integers in Python's or JSON's notation; None if it is no such list."""
    field = field.strip()
    if not field.startswith("[") or not field.endswith("]") or len(field) > _MAX_LIST:
        return None
    try:
        items = json.loads(field)
    except (ValueError, RecursionError):
        # A pattern first: it admits only a flat list, and no adjacent strings, which Python would join.
        if not _PYTHON_LIST.fullmatch(field):
            return None
        try:
            items = ast.literal_eval(field)
        except (ValueError, SyntaxError):  # an integer such as 007, or an escape beyond Unicode
            return None
    # By type, because isinstance takes true and false for integers.
    return [str(item) for item in items] if all(type(item) in (str, int) for item in items) else None


def _separates(mark: str, fields: list[str]) -> bool:
    """Whether there is clear evidence, in fields that are all different, that `mark` separates labels."""
    split = [list(dict.fromkeys(split_field(field, mark) or [])) for field in fields]
    several = [parts for parts in split if len(parts) > 1]
    places: dict[str, set[int]] = {}
    for parts in several:
        for place, part in enumerate(parts):
            places.setdefault(part, set()).add(place)
    # Labels of their own: alone in a row, or at different places in different rows.
    free = {parts[0] for parts in split if len(parts) == 1}
    free |= {part for part, at in places.items() if len(at) > 1}
    if mark == "," and any(", " in field for field in fields):
        # Ordinary labels have commas too, so most parts must be labels. In "Art, French" beside "Art", half are.
        return sum(part in free for parts in several for part in parts) > 0.6 * sum(map(len, several))
    with_free = sum(not free.isdisjoint(parts) for parts in several)
    return with_free > 0 and with_free >= 0.2 * len(several)


def _doubt(fields: list[str], separator: str) -> str:
    """What looks wrong with the fields once they are split, or nothing."""
    lists = sum(field.startswith("[") and field.endswith("]") for field in fields)
    if lists and lists >= len(fields) / 2:
        return "labels look like lists, but not in Python's or JSON's notation"
    if len(fields) >= 3 and len(set(fields)) >= 0.9 * len(fields):
        for mark in _CANDIDATES:
            if sum(mark in field and separator not in field for field in fields) >= 0.9 * len(fields):
                return f"nearly every row has a label of its own, with {mark!r} in it"
    return ""
