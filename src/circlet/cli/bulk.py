"""`circlet predict --engine`: documents of many files, tagged in blocks by many workers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from circlet.cli.console import DocumentBar, err
from circlet.errors import ParameterError
from circlet.runtime import Threshold

__all__ = ["check", "tag"]


def check(engine: str | None, inputs: Sequence[str], output: Path | None, device: str, **only: Any) -> None:
    """Refuse options that don't fit together, before any work is done; `only` are those that need an engine."""
    if engine is None:
        for name, value in only.items():
            if value is not None:
                option = f"--{name.replace('_', '-')}"
                raise ParameterError(f"found {option} without --engine; wanted --engine processes or ray with it")
        return
    from circlet.bulk.engines import ENGINES

    if engine not in ENGINES:
        raise ParameterError(f"found --engine {engine}; wanted one of {', '.join(ENGINES)}")
    if output is None:
        raise ParameterError("found --engine without --output; wanted --output with a folder for the labels")
    if "-" in inputs:
        raise ParameterError("found - as the input of --engine; wanted files: standard input has no blocks")
    if device not in ("auto", "cpu"):
        raise ParameterError(f"found --device {device} with --engine; wanted cpu: its workers are processes")


def tag(
    model: Path,
    inputs: Sequence[str],
    output: Path,
    *,
    as_json: bool,
    engine: str,
    block_size: int | None,
    threshold: Threshold,
    **options: Any,
) -> None:
    """Tag all documents, with a bar on a terminal, and say what was done; as JSON if `as_json`."""
    from circlet.bulk import run

    with DocumentBar(shown=True) as bar, err.status("finding blocks …") as status:

        def planned(size: int) -> None:
            bar.total = size
            status.stop()

        def progress(size: int, documents: int) -> None:
            bar.advance(size)
            bar.done(documents)

        try:
            totals = run.tag_files(
                model,
                inputs,
                output,
                engine=engine,
                block_size=run.BLOCK_SIZE if block_size is None else block_size,
                threshold=threshold.value,
                planned=planned,
                progress=progress,
                **options,
            )
        except KeyboardInterrupt:
            err.print(f"{output} has the blocks that are tagged; the same command goes on", soft_wrap=True)
            raise
    speed = totals.documents / max(totals.seconds, 1e-9)
    if as_json:
        about = {
            "output": str(output),
            "engine": engine,
            "threshold": threshold.value,
            "threshold_from": threshold.origin,
            **asdict(totals),
            "documents_per_second": round(speed, 1),
        }
        print(json.dumps(about))
        return
    before = f", after {totals.blocks_before:,} that were there already" if totals.blocks_before else ""
    done = f"{totals.documents:,} documents in {totals.blocks:,} blocks{before}"
    by = f"{speed:,.0f} documents/s by {totals.workers} worker{'s' if totals.workers > 1 else ''}"
    err.print(f"{output}: {done}; {by}", highlight=False, soft_wrap=True)
