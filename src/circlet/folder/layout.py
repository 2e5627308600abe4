"""The names of the files in a model's folder.

A model that replaces another has files with other names, so that whoever reads the former one never sees files of
both: the first model in a folder has `weights.safetensors`, the second `weights-2.safetensors`, and so on. Code
and messages call a file by its first name; `config.json` says under which name it is now.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from circlet.features.vectorizer import STATE_FILE, TENSOR_FILE
from circlet.files import GZIPPED

__all__ = [
    "CARD",
    "CHECKPOINT",
    "CONFIG",
    "DECIDED",
    "ESTIMATOR",
    "FILES",
    "HISTORY",
    "INDEX",
    "LABELS",
    "LOCK",
    "REMEMBERED",
    "RUN",
    "SAMPLE",
    "STATE_FILE",
    "TENSOR_FILE",
    "URIS",
    "WEIGHTS",
    "checkpoint_of",
    "is_checkpoint",
    "model_files",
    "name_in",
]

CONFIG, WEIGHTS, HISTORY, LABELS = "config.json", "weights.safetensors", "history.json", "labels.txt"
ESTIMATOR = "estimator.json"
#: What the model is, for people. It has this name in every folder, and `config.json` does not list it.
CARD = "MODEL_CARD.md"
#: The URIs of labels that have both names and URIs.
URIS = "uris.txt"
#: Some of the rows that were held out, and their labels.
SAMPLE = "sample.safetensors"
#: Some of the rows that were trained on, and their labels.
REMEMBERED = "remembered.safetensors"
#: What is predicted for the documents that it has learned from, if that was asked for.
INDEX = "index.safetensors"
#: All files that a model may have besides `config.json`, which says where they are.
FILES = (WEIGHTS, HISTORY, LABELS, URIS, STATE_FILE, TENSOR_FILE, SAMPLE, REMEMBERED, INDEX, ESTIMATOR)
#: The checkpoint of a run's only or first network, which is there as long as the run can be resumed.
CHECKPOINT = "checkpoint.safetensors"
#: The options of a run of `circlet train`, kept beside its checkpoint.
RUN = "run.json"
#: What was decided for an unfinished run.
DECIDED = "decided.json"
#: Who is writing into the folder, as long as somebody is.
LOCK = ".lock"

_CHECKPOINTS = re.compile(r"checkpoint(-[0-9]+)?\.safetensors")
_NUMBERED = re.compile(r"(?P<stem>[A-Za-z_]+)(-(?P<number>[1-9][0-9]{0,17}))?(?P<suffix>\.[a-z]+)(\.gz)?")


def name_in(generation: int, name: str, *, zipped: bool = False) -> str:
    """The name of a file of the n-th model in a folder."""
    stem, _, suffix = name.partition(".")
    return (name if generation == 1 else f"{stem}-{generation}.{suffix}") + (GZIPPED if zipped else "")


def model_files(folder: Path) -> Iterator[tuple[Path, int]]:
    """The files in a folder that have the name of a model's file, and the number of the model."""
    for path in folder.iterdir():
        found = _NUMBERED.fullmatch(path.name)
        if found and found["stem"] + found["suffix"] in FILES:
            yield path, int(found["number"] or 1)


def checkpoint_of(stage: int) -> str:
    """The name of the checkpoint of a stage of a run; stages are numbered from 0, files from 1."""
    return f"checkpoint-{stage + 1}.safetensors" if stage else CHECKPOINT


def is_checkpoint(name: str) -> bool:
    """Whether this is the name of a checkpoint."""
    return _CHECKPOINTS.fullmatch(name) is not None
