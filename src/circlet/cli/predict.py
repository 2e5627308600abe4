"""`circlet predict`: documents in, ranked labels out, however many there are."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from circlet import files
from circlet.cli import options
from circlet.errors import DataError, ParameterError

if TYPE_CHECKING:
    from circlet.model import Model
    from circlet.runtime import RuntimeModel

#: Documents taken at a time, so that memory does not grow with their number.
CHUNK = 1024


def predict(
    model: options.ModelFolder,
    data: Annotated[
        str,
        typer.Argument(
            metavar="INPUT", help="Data in any format, or - for standard input (JSONL, CSV, a text per line, …)."
        ),
    ],
    k: Annotated[int, typer.Option("-k", min=1, help="Labels per document.")] = 5,
    output: Annotated[Path | None, typer.Option(help="File to write.", show_default="stdout")] = None,
    threshold: Annotated[
        float, typer.Option(min=0, max=1, help="Leave out labels with a lower probability.")
    ] = 0.0,
    favor_rare: options.FavorRare = 0.0,
    form: Annotated[str, typer.Option("--format", help="Output format: jsonl or tsv.")] = "jsonl",
    text_column: options.TextColumn = "text",
    memory: Annotated[
        str | None,
        typer.Option(help="Most memory that scores may take: 256MB, 2G, …", show_default="automatic"),
    ] = None,
    device: options.Device = "auto",
    threads: options.Threads = None,
) -> None:
    """Suggest labels for documents, with probabilities.

    Labels in the input are ignored.

    Example: echo "solve a sparse linear system" | circlet predict my-model - -k 3
    """
    if form not in ("jsonl", "tsv"):
        raise ParameterError(f"--format must be jsonl or tsv, got {form!r}")
    budget = None if memory is None else parse_bytes(memory)
    from circlet.cli.models import load_model

    loaded = load_model(model, device, threads)
    loaded.gain(favor_rare)  # if the model can't favor rare labels, it says so before any document is read
    least = loaded.least_score(threshold)
    find = partial(loaded.top_k, k=k, memory=budget, threshold=least, favor_rare=favor_rare)
    documents = _chunks(loaded, data, text_column)
    with _opened(output) as stream:
        for chunk in documents:
            ids, scores = find(chunk)
            stream.writelines(_lines(loaded.label_names, ids, loaded.probabilities(scores), threshold, form))
            stream.flush()


def parse_bytes(text: str) -> int:
    """Bytes of an amount such as 4096, 512K, 256MB or 1.5GiB; K, KB and KiB all mean 1024."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", text, flags=re.IGNORECASE | re.ASCII)
    amount = 0 if match is None else int(float(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " "))
    if amount < 1:
        raise ParameterError(f"--memory must be an amount like 512K, 256MB, 2G or a number of bytes, got {text!r}")
    return amount


def _chunks(model: Model | RuntimeModel, data: str, text_column: str) -> Iterator[Any]:
    """The documents, a chunk at a time: lists of texts or slices of a matrix."""
    if model.vectorizer is None:
        if data == "-":
            raise DataError(
                "this model was trained on feature rows, and - reads texts: name a file or folder with such rows"
            )
        rows = _rows(data)
        yield from (rows[start : start + CHUNK] for start in range(0, rows.shape[0], CHUNK))
        return
    texts = _stdin(text_column) if data == "-" else _texts(data, text_column)
    size = 1 if data == "-" and sys.stdin.isatty() else CHUNK
    while chunk := list(islice(texts, size)):
        yield chunk


def _stdin(text_column: str) -> Iterator[str]:
    from circlet.data.records import Columns
    from circlet.data.stream import iter_texts

    return iter_texts(sys.stdin.buffer, Columns(text=text_column))


def _texts(data: str, text_column: str) -> Iterator[str]:
    from circlet.data import load_dataset
    from circlet.data.load import is_there
    from circlet.data.recognize import UnrecognizedError, recognize
    from circlet.data.records import FORMATS, Columns, iter_records

    path, columns = Path(data), Columns(text=text_column)
    try:
        if is_there(path) and path.is_file() and (kind := recognize(path, columns)) in FORMATS:
            return (record.text for record in iter_records(path, kind, columns, need_labels=False))
        dataset = load_dataset(data, text_column=text_column)
    except UnrecognizedError as error:
        file = data if is_there(path) else "FILE"
        raise DataError(f"{error} (plain text, a document per line: circlet predict MODEL - < {file})") from error
    texts = (dataset.test or dataset.train).texts
    if texts is None:
        raise DataError(f"{data}: found {dataset.format}; this model was trained on texts and wants texts")
    return iter(texts)


def _rows(data: str) -> Any:
    from circlet.data import load_dataset

    dataset = load_dataset(data)
    rows = (dataset.test or dataset.train).X
    if rows is None:
        raise DataError(f"{data}: found {dataset.format}; this model was trained on feature rows and wants rows")
    return rows


def _lines(names: list[str] | None, ids: Any, probabilities: Any, threshold: float, form: str) -> Iterable[str]:
    for row, chances in zip(ids.tolist(), probabilities.tolist(), strict=True):
        kept = [
            (label if names is None else names[label], round(chance, 4))
            for label, chance in zip(row, chances, strict=True)
            if chance >= threshold
        ]
        if form == "tsv":
            yield "\t".join(f"{label}\t{chance}" for label, chance in kept) + "\n"
        else:
            labels, scores = [label for label, _ in kept], [chance for _, chance in kept]
            yield json.dumps({"labels": labels, "scores": scores}, ensure_ascii=False) + "\n"


@contextmanager
def _opened(output: Path | None) -> Iterator[IO[str]]:
    if output is None:
        yield sys.stdout
        return
    files.prepare_folder(output.parent)
    with files.replacing(output) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as stream:
        yield stream
