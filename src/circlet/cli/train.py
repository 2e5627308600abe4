"""`circlet train`: data in, a model folder out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from circlet.checks import require
from circlet.cli import options
from circlet.errors import ParameterError
from circlet.settings.network import DATA, MAIN, NETWORK, OPTIMIZATION, OUTPUT


@options.with_settings(
    {
        DATA: (),
        MAIN: ("model", "preset", "seed", "device"),
        NETWORK: (),
        OPTIMIZATION: ("threads",),
        OUTPUT: ("store", "keep_index", "resume", "further", "overwrite", "as_json"),
    }
)
@options.reads_data(names=True)
def train(
    data: options.SeveralData,
    model: Annotated[Path, typer.Option(help="Folder to save the model in.")],
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Effort: fast, default, accurate; or paper.",
            show_default="default",
            autocompletion=options.complete_preset,
        ),
    ] = None,
    settings: options.Given = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE", help="How to store the weights: float32, bf16, int8 or int4.", show_default="float32"
        ),
    ] = None,
    keep_index: Annotated[
        bool,
        typer.Option(
            "--keep-index", help="Keep predictions for all documents, so that those like another can be found."
        ),
    ] = False,
    feedback: Annotated[
        Path | None,
        typer.Option(help="A log of users' corrections, to learn from too.", show_default="none"),
    ] = None,
    read: options.Given = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of all random numbers.", show_default="0")] = None,
    device: options.Device = "auto",
    threads: options.Threads = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the interrupted run in the model folder.")
    ] = False,
    further: Annotated[
        bool, typer.Option("--continue", help="Train the finished model in the folder further.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the finished model in the folder.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Train a tagger on a dataset and save it in a folder.

    DATA is a name from `circlet datasets list`; or files in JSONL, CSV, TSV, Parquet, fastText
    or Annif TSV; or a file in svmlight or the Extreme Classification Repository's text format;
    or a folder with such train.* and test.* files, with X.trn.npz and Y.trn.npz, or with a
    plain text per document and its labels beside it (a.txt and a.tsv or a.key).

    A checkpoint is written after every epoch and on Ctrl-C; --resume continues from it.
    --continue trains a finished model further, for 5 epochs at half the learning rate
    unless --epochs and --lr say otherwise. Labels that are new to it are added.

    What has the default auto is decided from the data: by rules, and the optimizer of the
    first layer by a short trial. `circlet info` says what was decided, and why.

    --encoder cnn reads texts word by word (XML-CNN) instead of weighting their words in any
    order, and so do lstm and transformer. They take longer, and using such a model needs torch.

    --members 3 trains three networks with different seeds and averages their probabilities;
    the model is still one folder, three times as large.

    --feedback adds the corrections of a log that `circlet serve` keeps: texts with the
    labels that users accepted. A text that is in DATA too gains these labels, and loses
    those that users rejected.

    torchrun --nproc-per-node 4 -m circlet train DATA --model DIR trains with four processes:
    each learns from its share of every batch. --batch-size counts per process; a batch size
    that is decided from the data is shared, and gives the model that one process would.
    """
    options.use_torch("training", threads)
    require("sklearn", extra="train", purpose="training")  # to learn words
    if resume and overwrite:
        raise ParameterError("--resume goes on with a run and replaces nothing: leave --overwrite out")
    run: dict[str, Any] = {
        "data": data if len(data) > 1 else data[0],
        "preset": preset,
        "seed": seed,
        "given": settings or {},
        "read": read or {},
        "store": store,
        "keep_index": keep_index or None,
        "further": further,
    }
    if feedback is not None:
        from circlet.cli.data import described_feedback

        run["feedback"] = described_feedback(feedback)
    from circlet.cli.progress import run_in

    run_in(model, run, device=device, as_json=as_json, resume=resume, overwrite=overwrite)
