"""`circlet predict`: documents in, ranked labels out, however many there are."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from circlet.checks import bytes_of
from circlet.cli import options
from circlet.cli.console import DocumentBar, err
from circlet.errors import ParameterError

if TYPE_CHECKING:
    from circlet.runtime import Threshold


def predict(
    model: options.ModelFolder,
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="Data in any format, a plain text (.txt) or a folder of them, or several files with texts; or a "
            "pipe, or - for standard input (JSONL, CSV, a text per line, …).",
            autocompletion=options.complete_data,
        ),
    ],
    k: Annotated[int, typer.Option("-k", min=1, help="Labels per document, at most.")] = 5,
    output: Annotated[
        Path | None,
        typer.Option(
            help="File to write: .jsonl, .csv, .tsv (labels and scores are JSON lists, a field each) or .parquet. "
            "A link to a file stays a link; a pipe or device is written to.",
            show_default="stdout",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSONL on a terminal too, as into a pipe, and no table.")
    ] = False,
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Leave out labels with a lower probability; 0 keeps all k.",
            show_default="the model's own, if it has one; 0 with --favor-rare",
        ),
    ] = None,
    favor_rare: options.FavorRare = 0.0,
    text_column: options.TextColumn = "text",
    memory: Annotated[
        str | None,
        typer.Option(help="Most memory that scores may take: 256MB, 2GiB, …", show_default="automatic"),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on where the same command was interrupted or killed; --engine always does."
        ),
    ] = False,
    device: options.Device = "auto",
    threads: options.Threads = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="Tag files in blocks, by many workers: processes (of this machine) or ray. --output is a folder, "
            "and INPUT may be a pattern such as 'docs/*.parquet'. After a crash, the same command goes on.",
            show_default="none",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="With --engine: how many at a time, with one thread each.", show_default="cores"),
    ] = None,
    block_size: Annotated[
        str | None, typer.Option(help="With --engine: how much a worker reads at a time.", show_default="16MiB")
    ] = None,
    output_format: Annotated[
        str | None,
        typer.Option(
            "--format", help="With --engine: parquet, jsonl, csv or tsv.", show_default="that of the input"
        ),
    ] = None,
) -> None:
    """Suggest labels for documents, with probabilities.

    Of the k best labels, those are given that reach the threshold which training stored in the model: the best one
    for F1 on documents it had held out, unless --for said otherwise. A document may have none. --threshold 0 gives
    all k.

    Labels in the input are ignored. Every result has the id of its document: the key or column `id` of JSONL, CSV,
    TSV and Parquet, the name of a plain text (its path, if there are several inputs), or else the number of its
    row, from 0. Lines of standard input or a pipe are answered as they come.

    While a .jsonl, .csv or .tsv file is made, its results are in OUTPUT.part. If the command is interrupted or
    killed, the same command with --resume goes on from there; if there is nothing to go on from, it starts.
    """
    from circlet.cli import resumable_output as answers
    from circlet.cli.documents import answer_rows, answer_texts
    from circlet.runtime.answers import Answer, format_of, shown

    budget = None if memory is None else bytes_of(memory, "--memory")
    inputs, size = data, None if block_size is None else bytes_of(block_size, "--block-size")
    _check_engine(engine, inputs, output, device, workers=workers, block_size=size, format=output_format)
    if engine is None:
        answers.check(output, as_json=as_json)
    tagger = options.load_tagger(model, device, threads)
    tagger.model_.gain(favor_rare)  # if the model can't favor rare labels, it says so before any document is read
    least = tagger.ranking_threshold("auto" if threshold is None else threshold, favor_rare=favor_rare)
    if engine is not None and output is not None:
        _tag_blocks(
            model,
            inputs,
            output,
            as_json=as_json,
            engine=engine,
            workers=workers,
            k=k,
            threshold=least,
            favor_rare=favor_rare,
            text_column=text_column,
            format=output_format,
            block_size=size,
            memory=budget,
            threads=threads or 1,
        )
        return
    of_texts, with_uris = tagger.model_.vectorizer is not None, tagger.uris_ is not None
    # A bar would get in the way of results on the terminal, and of lines that are typed there.
    typed = data == ["-"] and sys.stdin is not None and sys.stdin.isatty()
    printed = output is None and sys.stdout.isatty()
    partial = None
    if answers.is_resumable(output, None if output is None else format_of(output), data):
        assert output is not None
        chosen = {"k": k, "threshold": least.value, "favor_rare": favor_rare, "text_column": text_column}
        partial = answers.Partial(
            output, format_of(output), with_uris=with_uris, run=answers.run_of(model, data, chosen)
        )
    elif resume:
        raise ParameterError(
            "--resume: wanted documents of files, and an --output that ends in .jsonl, .csv or .tsv"
        )
    with (
        nullcontext() if partial is None else answers.kept(partial, resume=resume),
        answers.opened(
            output,
            as_json=as_json,
            named=tagger.named,
            with_uris=with_uris,
            partial=partial,
        ) as write,
        DocumentBar(shown=not typed and not printed) as bar,
    ):
        done = 0 if partial is None else partial.documents

        def answer(ids: Sequence[str | int], documents: Any) -> None:
            found = tagger.answers(documents, k, threshold=least.value, memory=budget, favor_rare=favor_rare)
            write(list(map(Answer, ids, found)), documents if of_texts else None)
            bar.done(len(ids))

        if of_texts:
            answer_texts(data, text_column, answer, bar, done)
        else:
            answer_rows(data, answer, bar, done)
    if printed and not as_json and least.origin == "stored":
        err.print(f"labels of at least {shown(least.value or 0)}, the threshold that training stored", style="dim")


def _check_engine(
    engine: str | None, inputs: Sequence[str], output: Path | None, device: str, **only: Any
) -> None:
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


def _tag_blocks(
    model: Path,
    inputs: Sequence[str],
    output: Path,
    *,
    as_json: bool,
    engine: str,
    block_size: int | None,
    threshold: Threshold,
    **given: Any,
) -> None:
    """Tag all documents, with a bar on a terminal, and say what was done; as JSON if `as_json`."""
    from circlet.bulk import job

    with DocumentBar(shown=True) as bar, err.status("finding blocks …") as status:

        def planned(size: int) -> None:
            bar.total = size
            status.stop()

        def progress(size: int, documents: int) -> None:
            bar.advance(size)
            bar.done(documents)

        try:
            totals = job.tag_files(
                model,
                inputs,
                output,
                engine=engine,
                block_size=job.BLOCK_SIZE if block_size is None else block_size,
                threshold=threshold.value,
                planned=planned,
                progress=progress,
                **given,
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
