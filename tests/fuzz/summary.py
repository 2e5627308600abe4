"""What became of many cases, as JSON and as a table."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.fuzz.cases import GOOD, MEMORY, SECONDS, Outcome

from circlet.provenance import provenance
from circlet.report import Table

__all__ = ["CASES", "summarized", "table"]

#: Cases of a full run.
CASES = 20_000
#: Rows of the table by a word in the names of subjects, the first that is there, and the row of all others.
KINDS = {
    "model": "model folders",
    "run": "interrupted runs",
    "data": "data files",
    "cache": "caches",
    "fit": "rows and labels for `fit`",
}
OTHERS = "rows and options for a tagger"


def summarized(found: list[Outcome], seed: int, seconds: float) -> dict[str, Any]:
    """What became of all cases, ready for JSON."""
    found = sorted(found, key=lambda outcome: outcome.case)
    slowest, largest = (max(found, key=key) for key in (lambda each: each.seconds, lambda each: each.memory))
    return {
        "benchmark": "fuzz",
        "provenance": {**provenance(), "command": f"python -m tests.fuzz --cases {len(found)} --seed {seed}"},
        "seed": seed,
        "cases": len(found),
        "seconds": round(seconds, 1),
        "limits": {"seconds": SECONDS, "bytes": MEMORY},
        "outcomes": dict(Counter(each.outcome for each in found).most_common()),
        "by_subject": _counted(found, "subject"),
        "by_mutation": _counted(found, "mutation"),
        "slowest": slowest.as_dict(),
        "largest": largest.as_dict(),
        "failures": [each.as_dict() for each in found if each.outcome not in GOOD],
    }


def _counted(found: list[Outcome], by: str) -> dict[str, dict[str, int]]:
    groups: dict[str, Counter[str]] = {}
    for outcome in found:
        groups.setdefault(getattr(outcome, by), Counter())[outcome.outcome] += 1
    return {name: dict(sorted(groups[name].items())) for name in sorted(groups)}


def table(summary: dict[str, Any]) -> Table:
    """The outcomes by what was damaged."""
    kinds: dict[str, Counter[str]] = {kind: Counter() for kind in (*KINDS.values(), OTHERS)}
    for name, counts in summary["by_subject"].items():
        kinds[next((kind for word, kind in KINDS.items() if word in name), OTHERS)].update(counts)
    body = [
        (kind, cases, *(counts[each] for each in GOOD), cases - sum(counts[each] for each in GOOD))
        for kind, counts in kinds.items()
        if (cases := sum(counts.values()))
    ]
    slowest, largest = summary["slowest"], summary["largest"]
    return Table(
        f"{summary['cases']:,} damaged inputs",
        ("", "cases", "right answer", "another valid input", "refused", "failed"),
        body,
        note=f"The slowest case took {slowest['seconds']:.2f} s, the largest {largest['memory'] / 1e6:.0f} MB. "
        f"Limits: {SECONDS:.0f} s and {MEMORY // 10**6} MB.",
    )
