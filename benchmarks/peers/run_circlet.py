"""circlet: a preset, trained as `circlet train` does, or a variation of one.

Small sets of texts are trained on as texts, with the defaults for texts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import common
import numpy as np
import scipy.sparse as sp
import torch

from circlet import CircletClassifier

#: Preset, settings that differ from it, and the type that weights are stored in.
VARIANTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "fast": ("fast", {}, "float32"),
    "default": ("default", {}, "float32"),
    "int8": ("default", {}, "int8"),
    "accurate": ("accurate", {}, "float32"),
    "members3": ("accurate", {"members": 3}, "float32"),
}


class Circlet(common.Runner):
    """A preset with one seed."""

    packages = ("circlet", "torch")

    def prepare(self, X: sp.csr_matrix, Y: sp.csr_matrix, data: Path, work: Path) -> None:
        torch.set_num_threads(self.threads)
        preset, given, self.store = VARIANTS[self.variant]
        self.chosen = {"preset": preset, **given}
        self.settings = {**self.chosen, "store": self.store}
        # int8 is not trained: it uses the default's model of the same seed if that exists.
        self.before = work.parents[1] / "circlet" / work.name if self.variant == "int8" else None
        self.texts = common.texts(data)
        self.from_texts = self.texts is not None
        self.X, self.Y = self.texts["train"] if self.texts else X, Y

    def train(self) -> dict[str, float] | None:
        if self.before is not None and (self.before / "measured.json").exists():
            self.classifier = CircletClassifier.load(self.before / "model")
            known = json.loads((self.before / "measured.json").read_text(encoding="utf-8"))
            return {name: known[name] for name in ("train_s", "train_cpu_s", "train_peak_bytes")}
        classifier = CircletClassifier(**self.chosen, random_state=self.seed, device="cpu")
        self.classifier = classifier.fit(self.X, self.Y)
        self.settings["decided"] = self.classifier.model_.training["decided"]
        return None

    def save(self, folder: Path) -> None:
        self.classifier.save(folder, self.store)
        del self.classifier, self.X, self.Y

    def load(self, folder: Path) -> None:
        self.model = CircletClassifier.load(folder).model_

    def documents(self, X: sp.csr_matrix) -> Any:
        return self.texts["test"] if self.texts else X

    def rank(self, documents: Any) -> np.ndarray:
        return self.model.top_k(documents, common.TOP)[0]

    def probabilities(self, documents: Any) -> np.ndarray:
        return self.model.probabilities(self.model.top_k(documents, common.TOP)[1])


if __name__ == "__main__":
    common.main(Circlet)
