"""`circlet predict`: documents in, ranked labels out, however many there are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from circlet import files
from circlet.cli import options
from circlet.cli.console import DocumentBar, check_stdout, err, label_lines, out, print_json, printable, say
from circlet.errors import OutputError, ParameterError

if TYPE_CHECKING:
    from circlet.runtime import Tagger, Threshold
    from circlet.runtime.answers import Answer

    #: Writes answers and, if documents are texts, the texts.
    Write = Callable[[Sequence[Answer], Sequence[str] | None], object]

#: Characters between two columns of the table.
_GAP = 3


def predict(
    model: options.ModelFolder,
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="Data in any format; a plain text (.txt) or a folder of them; several files with texts; a pipe; "
            "or - for standard input (JSONL, CSV, a text per line, …).",
            autocompletion=options.complete_data,
        ),
    ],
    k: Annotated[int, typer.Option("-k", min=1, help="Maximum number of labels per document.")] = 5,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Output file: .jsonl, .csv or .tsv (labels and scores are JSON lists in one field each) or "
            ".parquet. A link stays a link; a pipe or device works too.",
            show_default="stdout",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSONL instead of a table on a terminal too.")
    ] = False,
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Leave out labels with a lower probability; 0 keeps all k.",
            show_default="the model's, if it has one; 0 with --favor-rare",
        ),
    ] = None,
    favor_rare: options.FavorRare = 0.0,
    text_column: options.TextColumn = "text",
    memory: Annotated[
        str | None,
        typer.Option(help="Maximum memory for scores, such as 256MB or 2GiB.", show_default="automatic"),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue where the same command was interrupted or killed; --engine always does."
        ),
    ] = False,
    device: options.Device = "auto",
    threads: options.Threads = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="Tag blocks of files with many workers: processes (of this machine) or ray. --output is then "
            "a folder, and INPUT may be a pattern such as 'docs/*.parquet'. After a crash, run it again."
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="With --engine: number of workers, one thread each.", show_default="cores"),
    ] = None,
    block_size: Annotated[
        str | None,
        typer.Option(help="With --engine: size of what a worker reads at a time.", show_default="16MiB"),
    ] = None,
    output_format: Annotated[
        str | None,
        typer.Option(
            "--format", help="With --engine: parquet, jsonl, csv or tsv.", show_default="that of the input"
        ),
    ] = None,
) -> None:
    """Suggest labels for documents, with probabilities.

    A document gets those of its k best labels whose probability reaches the threshold, maybe none. Training stores
    the threshold in the model: the best one for F1 on held-out documents, unless --for said otherwise.
    --threshold 0 gives all k.

    Labels in the input are ignored. Every result has the id of its document: the key or column `id` of JSONL, CSV,
    TSV and Parquet, the name of a plain text (its path, if there are several inputs), or else the number of its
    row, from 0. Every line of standard input or a pipe is answered at once.

    Results for a .jsonl, .csv or .tsv file are collected in OUTPUT.part. If the command is interrupted or killed,
    the same command with --resume continues from there; without such a file, it starts.
    """
    from circlet.cli.documents import Documents
    from circlet.runtime.answers import Answer, shown

    budget, size = options.bytes_given(memory, "--memory"), options.bytes_given(block_size, "--block-size")
    _check_engine(engine, data, output, device, workers=workers, block_size=size, format=output_format)
    if engine is None:
        check_output(output, as_json=as_json)
    documents = Documents(data, text_column)
    tagger = options.load_tagger(model, device, threads)
    tagger.model_.gain(favor_rare)  # refuses models that can't favor rare labels before any document is read
    least = tagger.ranking_threshold("auto" if threshold is None else threshold, favor_rare=favor_rare)
    chosen: dict[str, Any] = {"k": k, "favor_rare": favor_rare, "text_column": text_column}
    if engine is not None and output is not None:
        chosen |= {"engine": engine, "workers": workers, "format": output_format, "block_size": size}
        chosen |= {"memory": budget, "threads": threads or 1}
        _tag_blocks(model, data, output, as_json=as_json, threshold=least, **chosen)
        return
    of_texts = tagger.model_.vectorizer is not None
    # A bar would get in the way of results on the terminal, and of lines that are typed there.
    typed = data == ["-"] and sys.stdin is not None and sys.stdin.isatty()
    printed = output is None and sys.stdout.isatty()
    run = {"model": model, "inputs": data, "options": {**chosen, "threshold": least.value}}
    with (
        opened(output, tagger, run, resume=resume, as_json=as_json) as (done, write),
        DocumentBar(shown=not typed and not printed) as bar,
    ):

        def answer(ids: Sequence[str | int], batch: Any) -> None:
            found = tagger.answers(batch, k, threshold=least.value, memory=budget, favor_rare=favor_rare)
            write(list(map(Answer, ids, found)), batch if of_texts else None)
            bar.done(len(ids))

        if of_texts:
            documents.answer_texts(answer, bar, done)
        else:
            documents.answer_rows(answer, bar, done)
    if printed and not as_json and least.origin == "stored":
        say(f"labels of at least {shown(least.value or 0)}, the threshold that training stored", "dim")


def check_output(output: Path | None, *, as_json: bool) -> None:
    """Raise an error, before any work, if results could not be written to `output`."""
    if output is None:
        check_stdout()
        return
    from circlet.runtime.answers import format_of

    format_of(output)
    if as_json:
        raise ParameterError(f"found --json and --output {output}; wanted one: the file's name says its format")
    if output.is_dir():
        raise OutputError(f"cannot write {output}: it is a folder")


@contextmanager
def opened(
    output: Path | None, tagger: Tagger, run: dict[str, Any], *, resume: bool, as_json: bool
) -> Iterator[tuple[int, Write]]:
    """Open the output; yield the number of documents that an interrupted run has tagged, and a `Write`.

    A file appears when the body ends; its folder is made if needed. Without `output`, results are printed.
    """
    with_uris = tagger.uris_ is not None
    if output is not None:
        from circlet.cli import resumable_output as partial_output
        from circlet.runtime.answers import format_of, writing_answers

        kind = format_of(output)
        if partial_output.is_resumable(output, kind, run["inputs"]):
            identity = partial_output.run_identity(**run)
            with partial_output.opened(output, kind, identity, with_uris=with_uris, resume=resume) as partial:
                yield partial.documents, lambda answers, texts: partial.write(answers)
            return
    if resume:
        raise ParameterError(
            "--resume: wanted documents of files, and an --output that ends in .jsonl, .csv or .tsv"
        )
    if output is None:
        yield 0, printer(as_json=as_json, with_uris=with_uris)
        return
    files.prepare_output(output)
    with writing_answers(output, named=tagger.named, with_uris=with_uris) as write:
        yield 0, lambda answers, texts: write(answers)


def printer(*, as_json: bool, with_uris: bool) -> Write:
    """Print answers: as a table on a terminal, or as JSONL."""
    if sys.stdout.isatty() and not as_json:
        return table_printer()
    from circlet.runtime.answers import lines_of

    if reconfigure := getattr(sys.stdout, "reconfigure", None):
        reconfigure(encoding="utf-8", newline="\n")  # on every system
    _, lines = lines_of("jsonl", with_uris=with_uris)

    def write(answers: Sequence[Answer], texts: Sequence[str] | None) -> None:
        sys.stdout.writelines(line.decode() for line in lines(answers))
        sys.stdout.flush()

    return write


def table_printer() -> Write:
    """Print answers as a table, a batch at a time; the terminal and the first ids determine the widths."""
    from circlet.data.dataset import one_line
    from circlet.runtime.answers import shown

    id_width = 0

    def write(answers: Sequence[Answer], texts: Sequence[str] | None) -> None:
        nonlocal id_width
        header = not id_width
        if header:
            longest = max(4, *(len(str(answer.id)) for answer in answers))
            id_width = min(longest, max(16, out.width // 4))
        left = max(20, out.width - id_width - _GAP)
        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, show_header=header)
        table.add_column("id", width=id_width, no_wrap=True, style="dim")
        width = 0 if texts is None else left * 2 // 5
        if texts is not None:
            table.add_column("text", width=width, no_wrap=True)
            left -= width + _GAP
        table.add_column("labels", width=left)
        for row, answer in enumerate(answers):
            cells = [Text(printable(one_line(str(answer.id), id_width)))]
            if texts is not None:
                cells.append(Text(printable(one_line(texts[row], width))))
            pairs = [(printable(str(each.label)), shown(each.score)) for each in answer.labels]
            table.add_row(*cells, Text("\n").join(label_lines(pairs, left)) or Text("–"))
        out.print(table)
        sys.stdout.flush()

    return write


def _check_engine(
    engine: str | None, inputs: Sequence[str], output: Path | None, device: str, **only: Any
) -> None:
    """Refuse options that don't fit together, before any work; `only` has those that need an engine."""
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
    """Tag all documents with many workers, and print a summary."""
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
            say(f"{output} has the blocks that are tagged; the same command continues")
            raise
    speed = totals.documents / max(totals.seconds, 1e-9)
    if as_json:
        about: dict[str, Any] = {"output": str(output), "engine": engine, "threshold": threshold.value}
        about["threshold_from"] = threshold.origin
        print_json({**about, **asdict(totals), "documents_per_second": round(speed, 1)}, indent=None)
        return
    before = f", after {totals.blocks_before:,} that were there already" if totals.blocks_before else ""
    by = f"{speed:,.0f} documents/s by {totals.workers} worker{'s' if totals.workers > 1 else ''}"
    say(f"{output}: {totals.documents:,} documents in {totals.blocks:,} blocks{before}; {by}")
