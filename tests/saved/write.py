"""Write the models in this folder anew: `python tests/saved/write.py`, whenever the folder's format changes.

They are committed so that an installation without torch has models to use: one of texts, one of feature rows.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import scipy.sparse as sp

from circlet import CircletClassifier
from circlet.cli import app

SAVED = Path(__file__).parent

if __name__ == "__main__":
    for name in ("text", "matrix"):
        shutil.rmtree(SAVED / name, ignore_errors=True)
    os.chdir(SAVED)  # the record has the name of the data, and should have no path
    chosen = ["--dim", "16", "--hidden", "8", "--epochs", "60", "--lr", "0.02", "--seed", "3", "--remember", "0"]
    app(["train", "texts.jsonl", "--model", "text", *chosen], standalone_mode=False)
    X, Y = (sp.load_npz(SAVED / "rows" / f"{name}.trn.npz") for name in "XY")
    sizes = {"dim": 16, "hidden": (8,), "epochs": 6, "lr": 0.02, "loss": "cosine", "codebook": "independent"}
    CircletClassifier(**sizes, scaling="tfidf", remember=0).fit(X, Y).save(SAVED / "matrix")
    texts = [json.loads(line)["text"] for line in Path("texts.jsonl").read_text(encoding="utf-8").splitlines()]
    answers = {}
    for name, documents in (("text", texts), ("matrix", X)):
        labels, scores = CircletClassifier.load(SAVED / name).suggest(documents[:20], 3)
        answers[name] = {"labels": labels.tolist(), "scores": scores.tolist()}
    (SAVED / "answers.json").write_text(json.dumps(answers) + "\n", encoding="utf-8")
