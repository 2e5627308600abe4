"""A model's folder in, an ONNX file and what a program needs beside it out."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from circlet import files
from circlet.checks import is_integer
from circlet.errors import ParameterError
from circlet.export.graph import OPSET
from circlet.export.saved import Saved, read
from circlet.export.tagger import tagger
from circlet.export.vocabulary import vocabulary

__all__ = ["Written", "write_onnx"]

LABELS, URIS, VOCABULARY = ".labels.txt", ".uris.txt", ".vocabulary.json"


@dataclass(frozen=True)
class Written:
    """What was exported: the bytes of each file, the version of the operators, and names in the graph."""

    sizes: dict[Path, int]
    opset: int
    inputs: list[str]
    outputs: list[str]


def write_onnx(
    folder: Path, path: Path, *, k: int = 5, large_table: bool = False, overwrite: bool = False
) -> Written:
    """Export a model; if any file can't be written, none appears.

    FILE.onnx comes with FILE.labels.txt if labels have names, FILE.uris.txt if they have URIs besides, and
    FILE.vocabulary.json if documents are texts.

    Parameters
    ----------
    folder : Path
        Of a model.
    path : Path
        Ends in .onnx.
    k : int
        How many labels the graph gives each document.
    large_table : bool
        Whether a table of codes may be larger than `circlet.export.saved.LARGEST_TABLE`.
    overwrite : bool
        Whether the files of an earlier export may be replaced.
    """
    if path.suffix != ".onnx":
        raise ParameterError(f"found {path} as the file to write; wanted a name that ends in .onnx")
    if not is_integer(k, 1):
        raise ParameterError(f"`k` must be an integer >= 1, got {k!r}")
    beside = (path.with_suffix(suffix) for suffix in (LABELS, URIS, VOCABULARY))
    earlier = [each for each in (path, *beside) if each.exists()]
    if earlier and not overwrite:
        raise ParameterError(f"{earlier[0]} exists already: choose another name, or replace it with --overwrite")
    saved = read(folder, large_table=large_table)
    graph = tagger(saved, k)
    slope, intercept = saved.calibration
    model = graph.model({"slope": repr(slope), "intercept": repr(intercept)})
    contents = {path: model.SerializeToString(), **_beside(saved, path)}
    files.prepare_output(path)
    # Nothing gets its name before everything is written, and then the first file comes last.
    with ExitStack() as all_files:
        for each, content in contents.items():
            all_files.enter_context(files.output(each)).write(content)
    for each in set(earlier) - set(contents):
        each.unlink()
    return Written(
        {each: len(content) for each, content in contents.items()},
        OPSET,
        [value.name for value in graph.inputs],
        [value.name for value in graph.outputs],
    )


def _beside(saved: Saved, path: Path) -> dict[Path, bytes]:
    beside = {}
    for suffix, lines in ((LABELS, saved.label_names), (URIS, saved.label_uris)):
        if lines is not None:
            beside[path.with_suffix(suffix)] = "".join(f"{line}\n" for line in lines).encode()
    if saved.vectorizer is not None:
        # ASCII only, so that no reader or editor changes a term.
        described = json.dumps(vocabulary(saved.vectorizer))
        beside[path.with_suffix(VOCABULARY)] = described.encode()
    return beside
