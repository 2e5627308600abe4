"""The output of `circlet predict` as it grows: a file beside the target, and how far it is complete.

`OUT.part` holds the results so far, and `OUT.part.json` how many documents and bytes of it are certain, and what
the run was. A run that is interrupted or killed goes on from there with `--resume`; documents are always taken in
the same batches, so the result is the same byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from circlet import files
from circlet.checks import is_integer
from circlet.cli.console import err
from circlet.errors import CircletError, DataError, ParameterError
from circlet.identity import Identity
from circlet.runtime.answers import Answer, lines_of

__all__ = ["Partial", "is_resumable", "kept", "run_of"]


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
