"""`circlet export`: a model as an ONNX file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from circlet.cli import options
from circlet.cli.console import err


def export(
    model: options.ModelFolder,
    file: Annotated[
        Path, typer.Argument(metavar="FILE.onnx", help="The file to write; a link to a file stays a link.")
    ],
    k: Annotated[int, typer.Option("-k", min=1, help="Labels per document.")] = 5,
    large_table: Annotated[
        bool, typer.Option("--large-table", help="Allow a table of codes of any size; spectral codes need none.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Write a model as an ONNX graph, from features to scores and the best labels.

    Beside it come the names of the labels, their URIs if they have some besides, and, for
    texts, the vocabulary and how to apply it.

    """
    from circlet.export.write import write_onnx

    written = write_onnx(model, file, k=k, large_table=large_table, overwrite=overwrite)
    if as_json:
        summary = {
            "model": str(model),
            "opset": written.opset,
            "inputs": written.inputs,
            "outputs": written.outputs,
            "bytes": {str(path): size for path, size in written.sizes.items()},
        }
        print(json.dumps(summary, ensure_ascii=False, indent=1))
        return
    for path, size in written.sizes.items():
        opset = f", opset {written.opset}, inputs {' and '.join(written.inputs)}" if path == file else ""
        err.print(f"{path}: {size / 1e6:.2f} MB{opset}", highlight=False, soft_wrap=True)
