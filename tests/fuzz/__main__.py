"""Damage everything that circlet reads, and see what it says.

    python -m tests.fuzz                 # 20,000 cases, some minutes; `make fuzz`
    python -m tests.fuzz --case 4711     # one of them again, in this process

Models, checkpoints, datasets and rows are damaged in every way that we could think of. Whatever is wrong with
them, the answer is the right one, or one error on one line, within 2 seconds and 500 MB. A case follows from a
seed and its number alone. Exits with 1 if any case failed. Linux only.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from unittest import mock

# One thread: the numbers are small, and a forked process has no other threads of its parent's.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

from tests.fuzz import datasets, models, rows
from tests.fuzz.cases import CASES, GOOD, Outcome, outcomes, run_case, summarized, table
from tests.fuzz.damage import Subject

from circlet import files


def main() -> None:
    """Run cases and summarize what became of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="Run only this one, and show all about it.")
    parser.add_argument("--only", default="", help="Run only subjects whose names have this in them.")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, help="Folder for fuzz.json and fuzz.md.")
    options = parser.parse_args()
    logging.disable()  # a line for each of the caches that are built again
    with tempfile.TemporaryDirectory(prefix="circlet-fuzz-") as scratch:
        folder = Path(scratch)
        made = all_subjects(folder / "made")
        if options.only:
            made = [each for each in made if options.only in each.name]
        expected = {each.name: each.intact(folder / "intact") for each in made}
        run = partial(run_case, seed=options.seed, subjects=made, expected=expected)
        if options.case is not None:
            print(json.dumps(asdict(run(options.case, folder, _show)), indent=1, ensure_ascii=False))
            return
        start = time.monotonic()
        found = list(_with_progress(outcomes(run, range(options.cases), folder, options.jobs), options.cases))
        seconds = time.monotonic() - start
    summary = summarized(found, options.seed, seconds)
    for failure in summary["failures"]:
        print(json.dumps(failure, ensure_ascii=False))
    page = table(summary).markdown()
    print(page)
    if options.out is not None:
        files.prepare_folder(options.out)
        files.write_json(options.out / "fuzz.json", summary)
        files.write_text(options.out / "fuzz.md", page)
    sys.exit(1 if summary["failures"] else 0)


def all_subjects(folder: Path) -> list[Subject]:
    """Everything that is damaged; made in this folder."""
    folder.mkdir(parents=True)
    # Models keep how long their training took; if that differed, the same mutation would hit other bytes.
    with mock.patch("time.perf_counter", itertools.count().__next__):
        made = models.subjects(folder)  # first: the others use them
    return [*made, *datasets.subjects(folder / "data"), *datasets.of_commands(folder), *rows.subjects(folder)]


def _show(about: Outcome) -> None:
    print(f"{about.subject}: {about.details}", file=sys.stderr)


def _with_progress(found: Iterable[Outcome], total: int) -> Iterable[Outcome]:
    failed = 0
    for count, outcome in enumerate(found, 1):
        failed += outcome.outcome not in GOOD
        if sys.stderr.isatty() or count % 1000 == 0:
            end = "\r" if sys.stderr.isatty() else "\n"
            print(f"{count:,} of {total:,} cases, {failed} failed", end=end, file=sys.stderr, flush=True)
        yield outcome


if __name__ == "__main__":
    main()
