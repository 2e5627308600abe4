"""The table of `circlet evaluate --per-label`: a line for each label, as CSV or JSONL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from circlet.data.records import line_writer
from circlet.errors import OutputError, ParameterError
from circlet.files import writing
from circlet.metrics.decisions import LabelReport

__all__ = ["check", "write"]

_ENDINGS = (".csv", ".tsv", ".jsonl")


def check(path: Path) -> None:
    """Refuse a file whose name has no known ending, or which could not be written."""
    if _ending(path) not in _ENDINGS:
        raise ParameterError(
            f"--per-label: cannot tell the format of {path.name!r}; wanted a name that ends in .csv, .tsv or "
            ".jsonl"
        )
    if not path.parent.is_dir() or path.is_dir():
        raise OutputError(f"--per-label: cannot write {path}; wanted a file in a folder that exists")


def write(path: Path, report: LabelReport, names: Sequence[str | int], uris: Sequence[str] | None = None) -> None:
    """Write a report; `names` has the name or number of each label, and `uris` those of the first ones.

    In CSV and TSV, the labels that a label is confused with are a JSON list in one field.
    """
    kind = _ending(path).removeprefix(".")
    with writing(path) as out:
        for number, row in enumerate(_rows(report, names, uris)):
            header, line = line_writer(kind, row)
            out.write(line(row) if number else header + line(row))


def _rows(report: LabelReport, names: Sequence[str | int], uris: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    others, starts = report.confusions.indices.tolist(), report.confusions.indptr.tolist()
    counts = zip(report.labels.tolist(), report.support.tolist(), report.predicted.tolist(), strict=True)
    rates = zip(report.precision.tolist(), report.recall.tolist(), report.f1.tolist(), strict=True)
    for row, ((label, support, predicted), (precision, recall, f1)) in enumerate(zip(counts, rates, strict=True)):
        yield {
            "label": names[label],
            **({} if uris is None else {"uri": uris[label] if label < len(uris) else names[label]}),
            "support": support,
            "predicted": predicted,
            "precision": round(precision, 4),
            "recall": round(recall, 4),
            "f1": round(f1, 4),
            "confused_with": [names[other] for other in others[starts[row] : starts[row + 1]]],
        }


def _ending(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower()
