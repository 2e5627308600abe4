"""Where `circlet predict` writes: to a file, a table on a terminal, or JSONL into a pipe.

A file grows beside its place: `OUT.part` holds the results so far, and `OUT.part.json` how many documents and
bytes of it are certain, and what the run was. A run that is interrupted or killed goes on from there with
`--resume`; documents are always taken in the same batches, so the result is the same byte for byte.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from circlet import files
from circlet.checks import is_integer
from circlet.cli.console import check_stdout, err, explained_stdout, out
from circlet.data.dataset import one_line
from circlet.errors import CircletError, DataError, OutputError, ParameterError
from circlet.identity import Identity
from circlet.runtime.answers import Answer, format_of, json_line, lines_of, shown, writing_answers

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


class Partial:
    """A partial output.

    Parameters
    ----------
    output : Path
        The target, which is replaced in the end.
    kind : str
        Its format.
    with_uris : bool
        Whether labels have URIs.
    run : Identity
        What determines the results; see `run_of`.

    Attributes
    ----------
    documents : int
        How many documents have their results.
    """

    def __init__(self, output: Path, kind: str, *, with_uris: bool, run: Identity) -> None:
        self.target = files.followed(output)
        self.path = self.target.with_name(f"{self.target.name}.part")
        self.state = self.target.with_name(f"{self.target.name}.part.json")
        self.header, self.lines = lines_of(kind, with_uris=with_uris)
        self.run, self.documents, self.bytes = run, 0, 0

    def resume(self) -> None:
        """Take over what an earlier run has left, if anything; `ParameterError` if that was another run."""
        if not self.state.is_file() or not self.path.is_file():
            return
        found: Any = files.read_json(self.state)
        names = ("documents", "bytes", "run")
        state: Any = [found.get(name) if isinstance(found, dict) else None for name in names]
        documents, size, run = state
        whole = is_integer(documents, 0) and is_integer(size, 0) and isinstance(run, dict)
        if not whole or size > self.path.stat().st_size:
            raise DataError(f"{self.state}: found no state of {self.path}; remove both, and start again")
        for other in self.run.differences(run):
            raise ParameterError(
                f"--resume: {self.path} was made with other {other.name}; repeat the same command, or leave "
                "--resume out"
            )
        self.documents, self.bytes = documents, size

    def write(self, documents: Sequence[Answer]) -> None:
        """Add the results of a batch; from then on they are certain."""
        content = b"".join(self.lines(documents))
        with self.path.open("r+b" if self.bytes else "wb") as out:
            if not self.bytes:
                content = self.header + content
            out.seek(self.bytes)
            out.truncate()  # what was written just before a process was killed
            out.write(content)
        self.documents, self.bytes = self.documents + len(documents), self.bytes + len(content)
        files.write_json(self.state, {"documents": self.documents, "bytes": self.bytes, "run": self.run.values})

    def finish(self) -> None:
        """Put the file in the place of the target."""
        if not self.bytes:
            self.path.write_bytes(self.header)
        with self.path.open("r+b") as out:
            out.truncate(self.bytes or len(self.header))
        self.path.replace(self.target)
        self.state.unlink(missing_ok=True)

    def remove(self) -> None:
        """Leave nothing behind."""
        for path in (self.path, self.state):
            path.unlink(missing_ok=True)


def is_resumable(output: Path | None, kind: str | None, inputs: Sequence[str]) -> bool:
    """Whether results are lines of a regular file, and documents can be read again."""
    special = output is not None and output.exists() and not output.is_file()
    lines = output is not None and not special and kind in ("jsonl", "csv", "tsv") and output.suffix != ".gz"
    return lines and not any(each == "-" or Path(each).is_fifo() for each in inputs)


def run_of(model: Path, inputs: Sequence[str], options: dict[str, Any]) -> Identity:
    """What determines the results of a run: the model, the files, and the options."""
    described = []
    for each in inputs:
        path = Path(each)
        about = path.stat() if path.is_file() else None
        described.append([str(path.absolute()), *([] if about is None else [about.st_size, about.st_mtime_ns])])
    config = files.read_json(model / "config.json")
    return Identity({"model": config.get("sha256", str(model.absolute())), "input": described, "options": options})


@contextmanager
def kept(partial: Partial, *, resume: bool) -> Iterator[Partial]:
    """Write a partial output, which becomes the target if the body succeeds.

    If it fails, nothing is left; if it is interrupted or killed, the partial output is.
    """
    files.prepare_folder(partial.target.parent)
    if resume:
        partial.resume()
    else:
        if partial.state.exists():
            err.print(f"{partial.path}: starting again; with --resume, it would have gone on", soft_wrap=True)
        partial.remove()
    try:
        yield partial
    except KeyboardInterrupt:
        if partial.documents:
            done = f"{partial.documents:,} documents are tagged in {partial.path}"
            err.print(f"{done}; the same command with --resume goes on", highlight=False, soft_wrap=True)
        raise
    except CircletError:
        partial.remove()
        raise
    partial.finish()


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
