"""A small model of texts that can be taught, and a log of feedback."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from circlet.data.dataset import Split
from circlet.data.feedback import FeedbackLog
from circlet.model import fit
from circlet.settings import NetworkSettings, RunSettings, TrainingSettings

WORDS = {"animal": "fox wolf bear deer", "food": "bread cheese apple soup", "vehicle": "car truck tram van"}


def _save(folder: Path) -> None:
    topics = sorted(WORDS)
    labels = [topics[i % 3] for i in range(90)]
    texts = [
        " ".join(
            [*(WORDS[label].split()[(i + j) % 4] for j in range(2)), *["drum", "piano", "flute"][i % 3 : i % 2]]
        )
        for i, label in enumerate(labels)
    ]
    texts = [f"{text} {['drum', 'piano', 'flute'][i % 3]}" if i % 7 == 0 else text for i, text in enumerate(texts)]
    Y = sp.csr_matrix(np.array([[label == topic for topic in topics] for label in labels], dtype=np.float32))
    settings = RunSettings(
        NetworkSettings(dim=32, hidden=(16,)), TrainingSettings(epochs=20, batch_size=16, lr=0.03), validation=0
    )
    fit(Split(None, Y, texts), settings, label_names=topics).save(folder)


@pytest.fixture(scope="session")
def _tagger(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("taught") / "tagger"
    _save(folder)
    return folder


@pytest.fixture
def tagger(_tagger, tmp_path) -> Path:
    """The folder of a model, which a test may change."""
    import shutil

    return Path(shutil.copytree(_tagger, tmp_path / "tagger"))


@pytest.fixture
def log(tmp_path) -> FeedbackLog:
    """A log without any feedback."""
    return FeedbackLog(tmp_path / "log.jsonl")
