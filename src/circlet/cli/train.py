"""`circlet train`: data in, a model folder out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from circlet.checks import require
from circlet.cli import options
from circlet.cli.console import print_json, say
from circlet.errors import ParameterError
from circlet.settings.network import DATA, MAIN, NETWORK, OPTIMIZATION, OUTPUT

if TYPE_CHECKING:
    from circlet.model import Model


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
            help="Effort: fast, default or accurate; or paper, the paper's settings.",
            show_default="default",
            autocompletion=options.complete_preset,
        ),
    ] = None,
    settings: options.Given = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE", help="Type of the stored weights: float32, bf16, int8 or int4.", show_default="float32"
        ),
    ] = None,
    keep_index: Annotated[
        bool,
        typer.Option(
            "--keep-index", help="Store an index of all documents, to find similar ones (explain --similar)."
        ),
    ] = False,
    feedback: Annotated[Path | None, typer.Option(help="A log of users' feedback to learn from as well.")] = None,
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

    Training writes a checkpoint after every epoch and on Ctrl-C; --resume continues from it.
    --continue trains a finished model further, for 5 epochs at half the learning rate
    unless --epochs and --lr say otherwise. It adds labels that are new to the model.

    Settings whose default is auto are decided from the data by rules; a short trial decides the
    optimizer of the first layer. `circlet info` shows the decisions and their reasons.

    --encoder NAME makes vectors of texts in place of weighting their words in any order, or with
    --bag-of-words beside that. One that is trained with the network takes longer, and using it
    needs torch.

    --members 3 trains three networks with different seeds and averages their probabilities;
    the model is still one folder, three times as large.

    --feedback adds the feedback that `circlet serve` has logged: texts with the labels that
    users accepted. A text that is in DATA too gains these labels, and loses those that users
    rejected.

    torchrun --nproc-per-node 4 -m circlet train DATA --model DIR trains with four processes,
    each with its share of every batch. --batch-size counts per process; a batch size that is
    decided from the data is shared, so that the model is the same as from one process.
    """
    options.use_torch("training", threads)
    require("sklearn", extra="train", purpose="training")  # to learn words
    if resume and overwrite:
        raise ParameterError("found --resume and --overwrite; wanted one: a resumed run replaces nothing")
    from circlet.cli.data import open_log
    from circlet.cli.progress import TrainingBar
    from circlet.model.session import Run, carry_out
    from circlet.training import InterruptedRunError, Reporter
    from circlet.training.distributed import join_processes

    with TrainingBar() as bar, join_processes(device) as (world, place):
        run = Run(
            data=data if len(data) > 1 else data[0],
            given=settings or {},
            read=read or {},
            preset=preset,
            seed=seed,
            store=store,
            keep_index=keep_index or None,
            feedback=None if feedback is None else {"file": str(feedback), "records": len(open_log(feedback))},
            further=further,
            processes=world.size,
        )
        # Of several processes, only the first one shows a bar and a summary.
        reporter = bar if world.is_first else Reporter()
        try:
            trained = carry_out(
                model, run, resume=resume, overwrite=overwrite, device=place, world=world, reporter=reporter
            )
        except InterruptedRunError as error:
            if world.is_first:
                say(f"{error}\nto resume: circlet train {run.source} --model {model} --resume")
            raise typer.Exit(130) from error
    if trained is None:
        return
    summary = _summary(model, trained, bar.stages)
    if as_json:
        print_json(summary)
        return
    for line in _lines(model, summary):
        say(line)


def _summary(folder: Path, model: Model, stages: list[dict[str, Any]]) -> dict[str, Any]:
    from circlet.storage.layout import read_config

    return {
        "model": str(folder),
        "members": len(model.networks),
        "network": model.network.settings.as_dict(),
        "training": model.training,
        "n_features": model.n_features,
        "n_labels": model.n_labels,
        "threshold": model.threshold,
        "parameters": model.ranker.parameter_counts(),
        "store": read_config(folder)["store"],
        "bytes": sum(path.stat().st_size for path in folder.glob("[!.]*") if path.is_file()),
        "plan": stages,
        "history": model.history,
    }


def _lines(folder: Path, summary: dict[str, Any]) -> Iterator[str]:
    """The summary as text: stages and times, the epoch whose weights were kept, the threshold, the model."""
    from circlet.storage.contents import kept_epochs, metrics_of

    for stage in summary["plan"]:
        member = f", member {stage['member']}" if "member" in stage else ""
        yield f"{stage['stage'] + member:<26}{stage['seconds']:>8.1f} s"
    chosen = kept_epochs(summary["history"])
    last = {record.get("member", 1): record for record in summary["history"]}
    for record in chosen or last.values():
        member = f"member {record['member']}, " if "member" in record else ""
        values = ", ".join(f"{name} {100 * value:.2f}" for name, value in metrics_of(record).items())
        if chosen:
            yield f"{member}kept epoch {record['epoch']}, the best on held-out rows: {values}"
        elif values:
            scores = f"Scores on held-out rows, before these were trained on: {values}"
            yield f"{member}kept the last epoch ({record['epoch']}). {scores}"
    goal = summary["training"].get("threshold_for", "f1")
    if summary["threshold"] is not None:
        best = "the best F1" if goal == "f1" else goal
        yield f"threshold {summary['threshold']:.3f}, for {best} on held-out rows"
    elif goal != "f1":
        yield f"no threshold for {goal}: found no held-out rows; wanted more documents, or --validation"
    networks = f"{summary['members']} networks, " if summary["members"] > 1 else ""
    yield (
        f"{folder}: {networks}{summary['parameters']['total']:,} parameters, {summary['n_labels']:,} labels, "
        f"{summary['bytes'] / 1e6:.1f} MB"
    )
    yield f"to use it: circlet predict {folder} INPUT, or circlet evaluate {folder} DATA"
