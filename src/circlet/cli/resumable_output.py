"""The partial output of `circlet predict`, from which an interrupted run continues.

`OUT.part` beside the output holds the results so far. `OUT.part.json` says how many documents and bytes of it are
complete, and which run they are from. `--resume` continues there. Documents are always processed in the same
batches, so the result is the same, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from circlet import files
from circlet.checks import is_integer
from circlet.cli.console import say
from circlet.errors import CircletError, DataError, ParameterError
from circlet.identity import Identity
from circlet.runtime.answers import Answer, lines_of


def is_resumable(output: Path, kind: str, inputs: Sequence[str]) -> bool:
    """Whether the output is a regular file of lines, and the documents can be read again."""
    lines = kind != "parquet" and output.suffix != ".gz" and (output.is_file() or not output.exists())
    return lines and not any(each == "-" or Path(each).is_fifo() for each in inputs)


def run_identity(model: Path, inputs: Sequence[str], options: dict[str, Any]) -> Identity:
    """The identity of a run: the model, the input files and the options, which determine the results."""
    described = []
    for path in map(Path, inputs):
        about = path.stat() if path.is_file() else None
        described.append([str(path.absolute()), *([] if about is None else [about.st_size, about.st_mtime_ns])])
    config = files.read_json(model / "config.json")
    return Identity({"model": config.get("sha256", str(model.absolute())), "input": described, "options": options})


class PartialOutput:
    """The files `OUT.part` and `OUT.part.json` of a run; at the end, the first replaces the output."""

    def __init__(self, output: Path, kind: str, run: Identity, *, with_uris: bool) -> None:
        self.target = files.followed(output)
        self.path = self.target.with_name(f"{self.target.name}.part")
        self.state = self.target.with_name(f"{self.target.name}.part.json")
        self.header, self.lines = lines_of(kind, with_uris=with_uris)
        self.run = run
        self.documents = self.bytes = 0  # that are complete

    def resume(self) -> None:
        """Continue from the files of an earlier run, if any; raise `ParameterError` if it was a different run."""
        if not self.state.is_file() or not self.path.is_file():
            return
        found: Any = files.read_json(self.state)
        names = ("documents", "bytes", "run")
        state: Any = [found.get(name) if isinstance(found, dict) else None for name in names]
        documents, size, run = state
        complete = is_integer(documents, 0) and is_integer(size, 0) and isinstance(run, dict)
        if not complete or size > self.path.stat().st_size:
            raise DataError(
                f"{self.state}: found no state of {self.path}; wanted that of an interrupted run (to start again, "
                "remove both files)"
            )
        for other in self.run.differences(run):
            raise ParameterError(
                f"--resume: {self.path} was made with other {other.name}; repeat the same command, or leave "
                "--resume out"
            )
        self.documents, self.bytes = documents, size

    def write(self, documents: Sequence[Answer]) -> None:
        """Append the results of a batch, then record them as complete."""
        content = b"".join(self.lines(documents))
        with self.path.open("r+b") as out:
            out.seek(self.bytes)
            out.truncate()  # a killed process may have written more than its state says
            out.write(content)
        self.documents, self.bytes = self.documents + len(documents), self.bytes + len(content)
        files.write_json(self.state, {"documents": self.documents, "bytes": self.bytes, "run": self.run.values})

    def finish(self) -> None:
        """Replace the output by the partial one."""
        with self.path.open("r+b") as out:
            out.truncate(self.bytes)
        self.path.replace(self.target)
        self.state.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove both files."""
        self.path.unlink(missing_ok=True)
        self.state.unlink(missing_ok=True)


@contextmanager
def opened(output: Path, kind: str, run: Identity, *, with_uris: bool, resume: bool) -> Iterator[PartialOutput]:
    """Open a partial output, which replaces the output at the end of the body.

    If the body raises a `CircletError`, the partial output is removed; an interrupted or killed run leaves it.
    """
    partial = PartialOutput(output, kind, run, with_uris=with_uris)
    files.prepare_folder(partial.target.parent)
    if resume:
        partial.resume()
    else:
        if partial.state.exists():
            say(f"{partial.path}: starting again; --resume would have continued it")
        partial.remove()
    if not partial.bytes:
        partial.bytes = partial.path.write_bytes(partial.header)
    try:
        yield partial
    except KeyboardInterrupt:
        if not partial.documents:
            partial.remove()
        else:
            done = f"{partial.documents:,} documents are tagged in {partial.path}"
            say(f"{done}; the same command with --resume continues")
        raise
    except CircletError:
        partial.remove()
        raise
    partial.finish()
