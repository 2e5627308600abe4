"""Data files in every format: what readers promise about them, and commands, which do more than read them."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.data.layouts import LAYOUTS, RECORDS, X, Y, holds_together
from tests.fuzz.damage import FolderSubject, Tree, read_tree
from tests.fuzz.models import NAMES, QUICK, command, documents, targets

from circlet.data import Dataset, Split, load_dataset
from circlet.data.matrices import write_matrices, write_xmc
from circlet.data.pydocs import PyDoc, PyDocs, cached_pydocs
from circlet.data.records import Columns, Record, iter_records, iter_stream, write_records


def _zipped_npz(folder: Path) -> None:
    write_matrices(folder, Dataset("d", Split(X, Y)))
    names = "".join(f"name {n}\n" for n in range(7))
    (folder / "labels.txt.gz").write_bytes(gzip.compress(names.encode(), mtime=0))


#: How to write folders besides those that other tests damage.
MORE: dict[str, Callable[[Path], Any]] = {
    "mapped": lambda folder: write_matrices(folder, Dataset("d", Split(X, Y), Split(X, Y)), mapped=True),
    "npz-names-gz": _zipped_npz,
    "svmlight-gz": lambda folder: write_xmc(folder / "train.svm.gz", X, Y, header=False),
    "csv-gz": lambda folder: write_records(folder / "train.csv.gz", RECORDS, "csv"),
    "fasttext-gz": lambda folder: write_records(folder / "train.txt.gz", RECORDS, "fasttext"),
    "annif-gz": lambda folder: write_records(folder / "train.tsv.gz", RECORDS, "annif"),
}
#: The formats whose documents are read one at a time too.
STREAMED = ("jsonl", "csv", "tsv", "fasttext", "annif")


def subjects(folder: Path) -> list[FolderSubject]:
    """All of them; the folder is for writing them once."""
    writers = {name: write for name, (write, _) in LAYOUTS.items()} | MORE
    trees: dict[str, Tree] = {}
    for name, write in writers.items():
        (folder / name).mkdir(parents=True)
        write(folder / name)
        trees[name] = read_tree(folder / name)
    found = []
    for name, tree in trees.items():
        others = [each for each in trees.values() if each is not tree]
        found.append(FolderSubject(f"data, {name}", tree, others, _loaded, exact=False))
    for name in STREAMED:
        file = next(iter(trees[name]))
        for how, answer in (("records", _records), ("stream", _stream)):
            ask = partial(answer, file=file, kind=name)
            found.append(FolderSubject(f"data, {name}, {how}", trees[name], [], ask, exact=False, weight=0.5))
    return [*found, _cache(folder / "pydocs")]


def _loaded(folder: Path) -> Any:
    dataset = load_dataset(folder)
    holds_together(dataset)
    digest = hashlib.sha256(repr((dataset.format, dataset.label_names)).encode(errors="surrogatepass"))
    for split in filter(None, (dataset.train, dataset.test)):
        digest.update(repr(split.texts).encode(errors="surrogatepass"))
        for matrix in (split.X, split.Y):
            parts = (matrix.data, matrix.indices, matrix.indptr) if hasattr(matrix, "indptr") else (matrix,)
            for part in parts:
                digest.update(b"" if part is None else part.tobytes())
    return digest.hexdigest()


def _records(folder: Path, file: str, kind: str) -> Any:
    return _sound(iter_records(folder / file, kind, Columns(), need_labels=False))


def _stream(folder: Path, file: str, kind: str) -> Any:
    # Standard input may be anything, so only a file can stand in for it.
    path = folder / file
    if not path.is_file():
        return None
    with path.open("rb") as stream:
        return _sound(iter_stream(stream, Columns()))


def _sound(records: Any) -> Any:
    found = [(record.id, record.text, record.labels) for record in records]
    for _, text, labels in found:
        assert text.encode() is not None
        assert all(isinstance(label, str) for label in labels)
    return found


def _cache(folder: Path) -> FolderSubject:
    """What was built once from Python's documentation; a damaged one is built again."""
    small = PyDocs(
        train=tuple(PyDoc(f"a.{n}", f"text {n}", ("function", "a")) for n in range(5)),
        test=(PyDoc("b", "größer", ("class",)),),
    )

    def cached(folder: Path) -> Any:
        return cached_pydocs(folder, lambda: small)

    cached(folder)
    return FolderSubject("cache of pydocs", read_tree(folder), [], cached)


# Given to commands


def of_commands(folder: Path) -> list[FolderSubject]:
    """Data files for commands; the folder has the models that `models.subjects` saved."""
    rows, Y = documents("sparse", 4), targets(4)
    records = [
        Record(n, text, tuple(NAMES[label] for label in Y[n].indices), f"id {n}")
        for n, text in enumerate(documents("texts", 4))
    ]
    write_xmc(folder / "train.txt", rows, Y)
    found = []
    for file, model in (("train.txt", "matrix-0"), ("train.csv", "text-0"), ("train.jsonl", "text-0")):
        if model == "text-0":
            write_records(folder / file, records, file.partition(".")[2])
        tree = {file: (folder / file).read_bytes()}
        answers: dict[str, tuple[Callable[[Path], Any], float]] = {
            "predicted": (partial(_predicted, model=folder / model), 0.4),
            "evaluated": (partial(_evaluated, model=folder / model), 0.4),
            "described": (lambda data: command("datasets", "info", str(data)), 0.2),
            "trained on": (_trained, 0.2),
        }
        for name, (answer, weight) in answers.items():
            found.append(FolderSubject(f"data in {file}, {name}", tree, [], answer, exact=False, weight=weight))
    return found


def _predicted(folder: Path, model: Path) -> Any:
    if folder.is_fifo():
        return None  # the command reads it as it comes, and nobody writes into it
    output = folder.with_name("answers.jsonl")
    output.unlink(missing_ok=True)
    command("predict", str(model), str(folder), "--output", str(output), "-k", "2")
    content = output.read_text(encoding="utf-8")
    for line in content.splitlines():
        assert all(0 <= score <= 1 for score in json.loads(line)["scores"])
    return content


def _evaluated(folder: Path, model: Path) -> Any:
    found = json.loads(command("evaluate", str(model), str(folder), "--json"))
    assert all(0 <= value <= 1 for name, value in found.items() if "@" in name), "a measure is out of range"
    return {name: value for name, value in found.items() if name not in ("model", "data")}


def _trained(folder: Path) -> Any:
    model = folder.with_name("trained")
    shutil.rmtree(model, ignore_errors=True)
    command("train", str(folder), "--model", str(model), "--device", "cpu", *QUICK)
    return sorted(path.name for path in model.iterdir())
