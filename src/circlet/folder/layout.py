"""The names of the files in a model's folder."""

from __future__ import annotations

import re

__all__ = [
    "CHECKPOINT",
    "CONFIG",
    "DECIDED",
    "ESTIMATOR",
    "HISTORY",
    "LABELS",
    "RUN",
    "SAMPLE",
    "WEIGHTS",
    "checkpoint_of",
    "is_checkpoint",
]

CONFIG, WEIGHTS, HISTORY, LABELS = "config.json", "weights.safetensors", "history.json", "labels.txt"
ESTIMATOR = "estimator.json"
#: Some of the rows that were held out, and their labels.
SAMPLE = "sample.safetensors"
#: The checkpoint of a run's only or first network, which is there as long as the run can be resumed.
CHECKPOINT = "checkpoint.safetensors"
#: The options of a run of `circlet train`, kept beside its checkpoint.
RUN = "run.json"
#: What was decided for an unfinished run.
DECIDED = "decided.json"

_CHECKPOINTS = re.compile(r"checkpoint(-[0-9]+)?\.safetensors")


def checkpoint_of(stage: int) -> str:
    """The name of the checkpoint of a stage of a run; stages are numbered from 0, files from 1."""
    return f"checkpoint-{stage + 1}.safetensors" if stage else CHECKPOINT


def is_checkpoint(name: str) -> bool:
    """Whether this is the name of a checkpoint."""
    return _CHECKPOINTS.fullmatch(name) is not None
