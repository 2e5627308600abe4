"""`circlet train`: data in, a model folder out."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from circlet.cli import options
from circlet.cli.console import err
from circlet.cli.options import setting
from circlet.errors import ParameterError
from circlet.extras import require


def train(
    data: options.Data,
    model: Annotated[Path, typer.Option(help="Folder to save the model in.")],
    preset: Annotated[
        str | None,
        typer.Option(
            help="How much to spend: fast, default or accurate; or paper, which follows the paper.",
            show_default="default",
        ),
    ] = None,
    head: Annotated[
        str | None,
        setting(
            "head",
            "Output layer: chrr, chrr-amplitude, chrr-half, chrr-sin, chrr-tanh, hrr, fc (an output per label).",
        ),
    ] = None,
    dim: Annotated[int | None, setting("dim", "Dimension of the labels' codes.")] = None,
    hidden: Annotated[str | None, setting("hidden", "Widths of the hidden layers, like 768 or 768,768.")] = None,
    codebook: Annotated[
        str | None,
        setting("codebook", "Label codes: auto, spectral, independent, four-phase, two-phase or holographic."),
    ] = None,
    slots: Annotated[
        int | None,
        setting("slots", "Labels that a spectral codebook has room for; none leaves room for 5% more."),
    ] = None,
    loss: Annotated[
        str | None, setting("loss", "Loss: bce, mean-bce, cosine (the paper's), absolute-cosine or softmax.")
    ] = None,
    activation: Annotated[
        str | None, setting("activation", "What follows each hidden layer: relu or leaky-relu.")
    ] = None,
    initial: Annotated[
        str | None, setting("initial", "Initial weights: he, or torch for those of its layers.")
    ] = None,
    dropout: Annotated[float | None, setting("dropout", "Share of hidden units dropped in training.")] = None,
    input_dropout: Annotated[
        float | None, setting("input_dropout", "Share of features dropped in training.")
    ] = None,
    epochs: Annotated[int | None, setting("epochs", "Passes over the data.")] = None,
    batch_size: Annotated[
        int | None, setting("batch_size", "Documents per step, and per process if torchrun starts several.")
    ] = None,
    optimizer: Annotated[str | None, setting("optimizer", "adamw, adam, adadelta or sgd.")] = None,
    first_layer: Annotated[
        str | None, setting("first_layer", "Optimizer of the weights that multiply features: sgd, or same.")
    ] = None,
    lr: Annotated[float | None, setting("lr", "Peak learning rate.")] = None,
    schedule: Annotated[
        str | None, setting("schedule", "Learning rate schedule: one-cycle, constant or step.")
    ] = None,
    precision: Annotated[
        str | None, setting("precision", "auto (bfloat16 where it is faster) or float32.")
    ] = None,
    weight_decay: Annotated[float | None, setting("weight_decay", "Weight decay.")] = None,
    scaling: Annotated[
        str | None, setting("scaling", "How feature rows are scaled: auto, l2, sqrt, tfidf, standard or none.")
    ] = None,
    validation: Annotated[
        float | None,
        setting("validation", "Share or number of rows held out at first, to decide and to calibrate."),
    ] = None,
    members: Annotated[
        int | None, setting("members", "Networks to train, one after the other, and use as one by averaging.")
    ] = None,
    metric: Annotated[
        str | None, setting("metric", "Metric on held-out rows that chooses the best epoch, or loss.")
    ] = None,
    patience: Annotated[
        int | None, setting("patience", "Stop after this many epochs without a better metric.")
    ] = None,
    join: Annotated[
        bool | None,
        setting("join", "Let held-out rows join the others in the end.", "--join/--no-join"),
    ] = None,
    char_ngrams: Annotated[
        str | None,
        setting("char_ngrams", "Use character n-grams of these lengths besides words, like 3,5, or none."),
    ] = None,
    min_df: Annotated[int | None, setting("min_df", "Leave out words in fewer texts than this.")] = None,
    max_features: Annotated[
        int | None, setting("max_features", "Keep only this many words, the most frequent.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(help="How to store the weights: float32, bf16, int8 or int4.", show_default="float32"),
    ] = None,
    text_column: options.GivenTextColumn = None,
    label_column: options.GivenLabelColumn = None,
    label_separator: options.LabelSeparator = None,
    split: options.GivenSplitColumn = None,
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

    DATA is a name from `circlet datasets list`; or a file in JSONL, CSV, TSV, fastText,
    Annif TSV, svmlight or the Extreme Classification Repository's text format;
    or a folder with such train.* and test.* files, or with X.trn.npz and Y.trn.npz.

    A checkpoint is written after every epoch and on Ctrl-C; --resume continues from it.
    --continue trains a finished model further, for 5 epochs at half the learning rate
    unless --epochs and --lr say otherwise. Labels that are new to it are added.

    What has the default auto is decided from the data: by rules, and the optimizer of the
    first layer by a short trial. `circlet info` says what was decided, and why.

    --members 3 trains three networks with different seeds and averages their probabilities;
    the model is still one folder, three times as large.

    torchrun --nproc-per-node 4 -m circlet train DATA --model DIR trains with four processes:
    each learns from its share of every batch. --batch-size counts per process; a batch size
    that is decided from the data is shared, and gives the model that one process would.

    Example: circlet train eurlex-4k --model eurlex-model
    """
    options.use_torch("training", threads)
    require("sklearn", extra="train", purpose="training")  # to learn words
    given = {
        "head": head, "dim": dim, "hidden": _integers("hidden", hidden), "codebook": codebook, "slots": slots,
        "loss": loss, "activation": activation, "initial": initial, "precision": precision,
        "dropout": dropout, "input_dropout": input_dropout, "epochs": epochs, "batch_size": batch_size,
        "optimizer": optimizer, "first_layer": first_layer,
        "lr": lr, "schedule": schedule, "weight_decay": weight_decay, "scaling": scaling,
        "validation": validation, "members": members, "metric": metric, "patience": patience,
        "join": join, "min_df": min_df,
        "char_ngrams": char_ngrams if char_ngrams == "none" else _integers("char_ngrams", char_ngrams),
        "max_features": max_features, "store": store,
    }  # fmt: skip
    columns = {"text_column": text_column, "label_column": label_column, "label_separator": label_separator}
    run = {"data": data, "preset": preset, "seed": seed, "given": given, "read": {**columns, "split": split}}
    run["decides"] = True
    if further:
        run["continue"] = True
    from circlet.cli.runs import begun, carry_out, finished
    from circlet.folder.lock import writing
    from circlet.training.distributed import joined

    run = json.loads(json.dumps(run))  # the same values as --resume reads back
    if resume and overwrite:
        raise ParameterError("--resume goes on with a run and replaces nothing: leave --overwrite out")
    # Of several processes, the first one alone looks at the folder and writes into it.
    with (
        joined(device) as (world, place),
        writing(model, patience=0) if world.is_first else nullcontext(),
    ):
        run["processes"] = world.size
        started = world.from_first(lambda: begun(model, run, resume=resume, overwrite=overwrite))
        if started is not None:
            summary = carry_out(started, model, place, world)
        else:
            summary = finished(model) if world.is_first else None
    if summary is None:
        return
    if as_json:
        print(json.dumps(summary, ensure_ascii=False, indent=1))
    else:
        _print_summary(model, summary)


def _print_summary(model: Path, summary: dict[str, Any]) -> None:
    networks = f"{summary['members']} networks, " if summary["members"] > 1 else ""
    err.print(
        f"{model}: {networks}{summary['parameters']['total']:,} parameters, {summary['n_labels']:,} labels, "
        f"{summary['bytes'] / 1e6:.1f} MB\n"
        f"to use it: circlet predict {model} INPUT, or circlet evaluate {model} DATA",
        highlight=False,
        soft_wrap=True,
    )


def _integers(name: str, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        option = name.replace("_", "-")
        raise ParameterError(f"--{option}: wanted integers separated by commas, got {text!r}") from None
