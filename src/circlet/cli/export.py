"""`circlet compress` and `circlet export`: a smaller copy of a model, and its ONNX graph."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from circlet.cli import options
from circlet.cli.console import err, print_json, say
from circlet.errors import ParameterError

if TYPE_CHECKING:
    from circlet.runtime.compression import Curve, Tried
    from circlet.storage.kept_rows import Sample

#: Points that a copy may lose by default.
LOSS = 0.2


@options.reads_data()
def compress(
    model: options.ModelFolder,
    loss: Annotated[
        float | None,
        typer.Option(help="Points of nDCG@5 that the copy may lose on held-out rows.", show_default=str(LOSS)),
    ] = None,
    size: Annotated[
        str | None, typer.Option(help="Maximum size of the copy, such as 5MB (instead of --loss).")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="Type of the stored weights, without a search: int4, int8, bf16 or float32 (instead of --loss)."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="A dataset to measure on: its test rows, or all rows if it has no test part.",
            show_default="rows that were held out in training",
        ),
    ] = None,
    read: options.Given = None,
    output: Annotated[
        Path | None,
        typer.Option(help="New folder for the copy.", show_default="MODEL-small, or such as MODEL-int8"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print both sizes and all trials as JSON.")] = False,
) -> None:
    """Make a smaller copy of a model with rounded weights.

    The copy is the smallest one that loses at most --loss points, or the best one that fits into --size. Training
    stores some held-out rows with the model to measure this. A model of few documents was trained on all of them;
    the loss of a calibration run without some of them, is used instead.

    Rounding can't be undone, so the command never replaces a model. Evaluate the copy, then remove the one you do
    not need. The copy has no index of documents (--keep-index), which would be most of its size.
    """
    given = [name for name, value in (("--loss", loss), ("--size", size), ("--store", store)) if value is not None]
    if len(given) > 1:
        raise ParameterError(f"found {' and '.join(given)}; wanted one of them")
    if store is not None and data is not None:
        raise ParameterError("found --data and --store; wanted one of them: --store measures nothing")
    from circlet.runtime.compression import METRIC, best_that_fits, check_output, smallest_within
    from circlet.runtime.compression import compress as copy
    from circlet.storage.packed_weights import DEFLATED

    if output is None:
        named = model.resolve() if model.name in ("", "..") else model  # "." has no name
        output = named.with_name(f"{named.name}-{store or 'small'}")
    found = None
    if store is not None:
        copy(model, output, store)
    else:
        check_output(output)
        most = options.bytes_given(size, "--size")
        known = _known(model, data, read or {})
        with err.status("rounding the weights") as status:

            def watch(tried: Tried) -> None:
                status.update(f"tried {tried.bytes / 1e6:.2f} MB: {tried.loss:+.2f} points lost")

            if most is None:
                found = smallest_within(model, known, LOSS if loss is None else loss, watch)
            else:
                found = best_that_fits(model, known, most, watch)
        found.write(output)
    before, after = (
        sum(path.stat().st_size for path in folder.iterdir() if path.is_file()) for folder in (model, output)
    )
    if as_json:
        summary: dict[str, Any] = {"model": str(model), "output": str(output), "store": store or DEFLATED}
        summary |= {"bytes": after, "bytes_before": before}
        if found is not None:
            summary |= {METRIC: found.metric, "chosen": asdict(found.chosen)}
            summary["tried"] = [asdict(each) for each in found.tried]
        print_json(summary)
        return
    text = f"{output}: {after / 1e6:.2f} MB of {before / 1e6:.2f} MB, {100 * after / before:.0f} %"
    if found is not None and found.metric is not None:
        was = 100 * found.metric
        text += f"; {METRIC} {was - found.chosen.loss:.2f} on held-out rows, {was:.2f} before"
    elif found is not None:
        text += f"; rounded like this, its calibration run lost {found.chosen.loss:.2f} points of {METRIC}"
    say(text)


def _known(folder: Path, data: str | None, read: dict[str, Any]) -> Sample | Curve:
    """The rows to measure on, or the losses of the calibration run."""
    from circlet.encoders import FEATURES
    from circlet.runtime.compression import known_losses, sample_from
    from circlet.storage.layout import encoder_of, read_config

    config = read_config(folder)
    if (encoder := encoder_of(config)) != FEATURES:
        raise ParameterError(
            f"{folder}: found encoder {encoder}; wanted encoder features to search for the "
            "smallest copy, or --store, such as --store int8"
        )
    if data is None:
        known = known_losses(folder)
        if known is None:
            raise ParameterError(
                f"{folder}: found no held-out rows to measure on (none were held out, or the model was trained "
                "further); wanted other documents with --data, or --store, such as --store int8"
            )
        return known
    from circlet.data import load_dataset
    from circlet.runtime import RuntimeModel

    return sample_from(RuntimeModel.load(folder), load_dataset(data, **read))


def export(
    model: options.ModelFolder,
    file: Annotated[Path, typer.Argument(metavar="FILE.onnx", help="The file to write; a link stays a link.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Labels per document.")] = 5,
    large_table: Annotated[
        bool, typer.Option("--large-table", help="Allow a table of codes of any size; spectral codes need none.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Write a model as an ONNX graph, from features to scores and the best labels.

    Files beside it have the names of the labels, their URIs, if any, and, for texts, the vocabulary with the
    parameters of its features.
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
        print_json(summary)
        return
    for path, size in written.sizes.items():
        opset = f", opset {written.opset}, inputs {' and '.join(written.inputs)}" if path == file else ""
        say(f"{path}: {size / 1e6:.2f} MB{opset}")
