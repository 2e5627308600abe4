"""`circlet compress`: a smaller copy of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from circlet.cli import options
from circlet.cli.console import err


def compress(
    model: options.ModelFolder,
    store: Annotated[str, typer.Option(help="How to store the weights: int8, bf16 or float32.")] = "int8",
    output: Annotated[
        Path | None, typer.Option(help="New folder for the copy.", show_default="MODEL-int8, for example")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print both sizes as JSON.")] = False,
) -> None:
    """Copy a model with its weights in fewer bits; the model itself stays as it is.

    Rounding can't be undone, so nothing is ever replaced. Evaluate the copy, then remove the one you do not need.

    Example: circlet compress my-model --store int8
    """
    from circlet.folder.compress import compress as copy

    if output is None:
        named = model.resolve() if model.name in ("", "..") else model  # "." has no name
        output = named.with_name(f"{named.name}-{store}")
    copy(model, output, store)
    before, after = (
        sum(path.stat().st_size for path in folder.iterdir() if path.is_file()) for folder in (model, output)
    )
    if as_json:
        summary: dict[str, Any] = {"model": str(model), "output": str(output), "store": store}
        summary |= {"bytes": after, "bytes_before": before}
        print(json.dumps(summary, ensure_ascii=False, indent=1))
    else:
        err.print(
            f"{output}: {after / 1e6:.2f} MB of {before / 1e6:.2f} MB, {100 * after / before:.0f} %",
            highlight=False,
            soft_wrap=True,
        )
