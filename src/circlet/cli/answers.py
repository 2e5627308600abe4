"""Where `circlet predict` writes: to a file, a table on a terminal, or JSONL into a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from circlet import files
from circlet.cli.console import check_stdout, explained_stdout, out
from circlet.cli.partial import Partial
from circlet.data.dataset import one_line
from circlet.errors import OutputError, ParameterError
from circlet.runtime.answers import Answer, format_of, json_line, shown, writing_answers

_GAP = 3  # characters between two columns of the table
#: What writes documents and, where there are any, their texts.
Write = Callable[[Sequence[Answer], Sequence[str] | None], object]


def check(output: Path | None, *, as_json: bool) -> None:
    """Refuse a place that results could not be written to, before any work is done for them."""
    if output is None:
        check_stdout()
        return
    format_of(output)
    if as_json:
        raise ParameterError(f"found --json and --output {output}; wanted one: the file's name says its format")
    if output.is_dir():
        raise OutputError(f"cannot write {output}: it is a folder")


@contextmanager
def opened(
    output: Path | None, *, as_json: bool, named: bool, with_uris: bool = False, partial: Partial | None = None
) -> Iterator[Write]:
    """Open the place for results, and yield what writes a batch of them.

    Parameters
    ----------
    output : Path or None
        A file, which appears whole or not at all; its folder is made if needed. Devices and pipes are written to.
        None for standard output.
    as_json : bool
        Whether a terminal gets JSONL too.
    named : bool
        Whether labels are names, not ids.
    with_uris : bool
        Whether labels have URIs besides.
    partial : Partial, optional
        Where the results go instead, if a run can be resumed.
    """
    if output is None:
        yield _printer(as_json, with_uris=with_uris)
        return
    if partial is not None:
        yield lambda documents, texts: partial.write(documents)
        return
    files.prepare_output(output)
    with writing_answers(output, named=named, with_uris=with_uris) as write:
        yield lambda documents, texts: write(documents)


def _printer(as_json: bool, *, with_uris: bool) -> Write:
    if as_json or not sys.stdout.isatty():
        if reconfigure := getattr(sys.stdout, "reconfigure", None):
            reconfigure(encoding="utf-8", newline="\n")  # on every system
        rows = None
    else:
        rows = _Rows()

    def write(documents: Sequence[Answer], texts: Sequence[str] | None) -> None:
        with explained_stdout():
            if rows is None:
                sys.stdout.writelines(json_line(document, with_uris=with_uris) for document in documents)
            else:
                rows(documents, texts)
            sys.stdout.flush()

    return write


class _Rows:
    """Rows of a table, printed as they come: widths are settled by the terminal and the first ids."""

    def __init__(self) -> None:
        self.width_of_ids = 0

    def __call__(self, documents: Sequence[Answer], texts: Sequence[str] | None) -> None:
        header = not self.width_of_ids
        if header:
            longest = max(4, *(len(str(document.id)) for document in documents))
            self.width_of_ids = min(longest, max(16, out.width // 4))
        left = max(20, out.width - self.width_of_ids - _GAP)
        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, show_header=header)
        table.add_column("id", width=self.width_of_ids, no_wrap=True, style="dim")
        width = 0 if texts is None else left * 2 // 5
        if texts is not None:
            table.add_column("text", width=width, no_wrap=True)
            left -= width + _GAP
        table.add_column("labels", width=left)
        for row, document in enumerate(documents):
            cells = [Text(_printable(one_line(str(document.id), self.width_of_ids)))]
            if texts is not None:
                cells.append(Text(_printable(one_line(texts[row], width))))
            pairs = [(_printable(str(each.label)), shown(each.score)) for each in document.labels]
            lines = label_lines(pairs, left)
            table.add_row(*cells, Text("\n").join(lines) or Text("–"))
        out.print(table)


def label_lines(pairs: Sequence[tuple[str, str]], width: int) -> Iterator[Text]:
    """Labels and their probabilities in lines of at most this width, which break only between labels."""
    line = Text()
    for label, chance in pairs:
        one = Text.assemble(f"{label} ", (chance, "dim"))
        if line and line.cell_len + 3 + one.cell_len > width:
            yield line
            line = Text()
        line = one if not line else Text("   ").join([line, one])
    yield line


def _printable(text: str) -> str:
    """A text without the characters that would steer the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
