"""`circlet train`: data in, a model folder out."""

from __future__ import annotations

import json
from collections.abc import Iterator
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
    data: options.SeveralData,
    model: Annotated[Path, typer.Option(help="Folder to save the model in.")],
    preset: options.Preset = None,
    head: Annotated[
        str | None,
        setting(
            "head",
            "Output layer: chrr, chrr-amplitude, chrr-half, chrr-sin, chrr-tanh, hrr, fc (an output per label).",
        ),
    ] = None,
    dim: Annotated[int | None, setting("dim", "Dimension of the labels' codes.")] = None,
    hidden: Annotated[str | None, setting("hidden", "Widths of the hidden layers, like 768 or 768,768.")] = None,
    encoder: Annotated[
        str | None,
        setting(
            "encoder",
            "What turns documents into hidden vectors: features, or cnn, lstm, transformer, which read texts in "
            "order.",
        ),
    ] = None,
    embedding: Annotated[
        int | None, setting("embedding", "Numbers per word in an encoder that reads texts; none is 256.")
    ] = None,
    max_words: Annotated[
        int | None, setting("max_words", "Words of a text that such an encoder reads; none is 256.")
    ] = None,
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
    remember: Annotated[
        int | None, setting("remember", "Training rows to keep with the model, so that feedback can teach it.")
    ] = None,
    char_ngrams: Annotated[
        str | None,
        setting("char_ngrams", "Use character n-grams of these lengths besides words, like 3,5, or none."),
    ] = None,
    min_df: Annotated[int | None, setting("min_df", "Leave out words in fewer texts than this.")] = None,
    max_features: Annotated[
        int | None, setting("max_features", "Keep only this many words, the most frequent.")
    ] = None,
    threshold_for: Annotated[
        str | None,
        setting(
            "threshold_for",
            "What the stored threshold is best for on held-out rows: f1, precision=0.9, recall=0.8, …",
            "--for",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(help="How to store the weights: float32, bf16, int8 or int4.", show_default="float32"),
    ] = None,
    keep_index: Annotated[
        bool | None,
        typer.Option(
            "--keep-index",
            help="Keep predictions for all documents, so that those like another can be found.",
            show_default="no",
        ),
    ] = None,
    feedback: Annotated[
        Path | None,
        typer.Option(
            help="A log of corrections that users made, to learn from besides DATA.", show_default="none"
        ),
    ] = None,
    text_column: options.GivenTextColumn = None,
    label_column: options.GivenLabelColumn = None,
    label_separator: options.LabelSeparator = None,
    split: options.GivenSplitColumn = None,
    names: options.Names = None,
    names_language: options.NamesLanguage = None,
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
    given = {
        "head": head, "dim": dim, "hidden": _integers("hidden", hidden), "codebook": codebook, "slots": slots,
        "encoder": encoder, "embedding": embedding, "max_words": max_words,
        "loss": loss, "activation": activation, "initial": initial, "precision": precision,
        "dropout": dropout, "input_dropout": input_dropout, "epochs": epochs, "batch_size": batch_size,
        "optimizer": optimizer, "first_layer": first_layer,
        "lr": lr, "schedule": schedule, "weight_decay": weight_decay, "scaling": scaling,
        "validation": validation, "members": members, "metric": metric, "patience": patience,
        "join": join, "remember": remember, "min_df": min_df,
        "char_ngrams": char_ngrams if char_ngrams == "none" else _integers("char_ngrams", char_ngrams),
        "max_features": max_features, "threshold_for": threshold_for, "store": store,
        "keep_index": keep_index or None,
    }  # fmt: skip
    columns = {"text_column": text_column, "label_column": label_column, "label_separator": label_separator}
    columns |= {"names": None if names is None else str(names), "names_language": names_language}
    run: dict[str, Any] = {
        "data": data if len(data) > 1 else data[0],
        "preset": preset,
        "seed": seed,
        "given": given,
        "read": {**columns, "split": split},
    }
    run["decides"] = True
    if feedback is not None:
        from circlet.cli.feedback import described

        run["feedback"] = described(feedback)
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
    for line in (*_kept(summary["history"]), *_threshold(summary)):
        err.print(line, highlight=False, soft_wrap=True)
    networks = f"{summary['members']} networks, " if summary["members"] > 1 else ""
    err.print(
        f"{model}: {networks}{summary['parameters']['total']:,} parameters, {summary['n_labels']:,} labels, "
        f"{summary['bytes'] / 1e6:.1f} MB\n"
        f"to use it: circlet predict {model} INPUT, or circlet evaluate {model} DATA",
        highlight=False,
        soft_wrap=True,
    )


def _kept(history: list[dict[str, Any]]) -> Iterator[str]:
    """Which epoch's weights each network has, and how good they were on held-out rows."""
    from circlet.folder.history import kept_epochs, metrics_of

    chosen = kept_epochs(history)
    last = {record.get("member", 1): record for record in history}
    for record in chosen or last.values():
        member = f"member {record['member']}, " if "member" in record else ""
        values = ", ".join(f"{name} {100 * value:.2f}" for name, value in metrics_of(record).items())
        if chosen:
            yield f"{member}kept epoch {record['epoch']}, the best on held-out rows: {values}"
        elif values:
            yield f"{member}kept epoch {record['epoch']}, the last; {values} on held-out rows, which then joined"


def _threshold(summary: dict[str, Any]) -> Iterator[str]:
    """The probability from which labels are given, and why."""
    aim = summary["training"].get("threshold_for", "f1")
    if summary["threshold"] is not None:
        best = "the best F1" if aim == "f1" else aim
        yield f"labels are given from a probability of {summary['threshold']:.3f} on: {best} on held-out rows"
    elif aim != "f1":
        yield f"no threshold was chosen for {aim}: no rows were held out; wanted more documents, or --validation"


def _integers(name: str, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        option = name.replace("_", "-")
        raise ParameterError(f"--{option}: wanted integers separated by commas, got {text!r}") from None
