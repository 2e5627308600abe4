"""Models that were saved before, and are committed, give the same answers; see `tests/saved/write.py`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import circlet

SAVED = Path(__file__).parent / "saved"


@pytest.mark.parametrize("read", [circlet.load, circlet.CircletClassifier.load])
@pytest.mark.parametrize("name", ["text", "matrix"])
def test_the_same_answers(name, read):
    texts = [json.loads(line)["text"] for line in (SAVED / "texts.jsonl").read_text(encoding="utf-8").splitlines()]
    documents = texts if name == "text" else sp.load_npz(SAVED / "rows" / "X.trn.npz")
    expected = json.loads((SAVED / "answers.json").read_text(encoding="utf-8"))[name]
    labels, scores = read(SAVED / name).suggest(documents[:20], 3)
    np.testing.assert_array_equal(labels, expected["labels"])
    np.testing.assert_allclose(scores, expected["scores"], atol=1e-4)
