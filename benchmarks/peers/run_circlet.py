"""circlet: a preset of `circlet train`, or `int8`, the default model stored in 8 bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import common
import numpy as np
import scipy.sparse as sp
import torch

from circlet.data.dataset import Dataset, Split, as_features, as_labels
from circlet.model import Model, fit
from circlet.settings import RunSettings
from circlet.settings.presets import resolve


class Circlet(common.Runner):
    """A preset, trained as `circlet train` does."""

    packages = ("circlet", "torch")

    def prepare(self, X: sp.csr_matrix, Y: sp.csr_matrix, data: Path, work: Path) -> None:
        torch.set_num_threads(self.threads)
        self.store = "int8" if self.variant == "int8" else "float32"
        self.preset = "default" if self.variant == "int8" else self.variant
        # int8 is not trained: it uses the default's model if that exists.
        self.before = work.parent / "circlet" if self.variant == "int8" else None
        self.settings = resolve(self.preset, {}) | {"store": self.store}
        self.run_settings = RunSettings.from_preset(self.preset, {})
        self.split = Split(as_features(X, "X"), as_labels(Y, "Y"))

    def train(self) -> dict[str, float] | None:
        if self.before is not None and (self.before / "measured.json").exists():
            self.model = Model.load(self.before / "model")
            known = json.loads((self.before / "measured.json").read_text(encoding="utf-8"))
            return {name: known[name] for name in ("train_s", "train_cpu_s", "train_peak_bytes")}
        # The same steps as `circlet train`.
        train, validation = self.run_settings.hold_out(Dataset("data", self.split))
        self.model = fit(train, self.run_settings, validation=validation)
        return None

    def save(self, folder: Path) -> None:
        self.model.save(folder, self.store)
        del self.model, self.split

    def load(self, folder: Path) -> None:
        self.model = Model.load(folder)

    def rank(self, documents: Any) -> np.ndarray:
        return self.model.top_k(documents, common.TOP)[0]


if __name__ == "__main__":
    common.main(Circlet)
