"""circlet: a preset, trained as `circlet train` does, or a smaller copy of its model.

Small sets of texts are trained on as texts, with the defaults for texts. Models tag without torch.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import common
import numpy as np
import scipy.sparse as sp

import circlet

#: Preset, and settings that differ from it.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "fast": ("fast", {}),
    "default": ("default", {}),
    "accurate": ("accurate", {}),
    "members3": ("accurate", {"members": 3}),
}
#: The variant that stores the default's model of the same seed in fewer bytes.
SMALL = "small"


class Circlet(common.Runner):
    """A preset with one seed."""

    packages = ("circlet",)

    def prepare(self, X: sp.csr_matrix, Y: sp.csr_matrix, work: Path) -> None:
        self.before = work.parents[1] / "circlet" / work.name
        self.texts = common.texts(self.data)
        self.from_texts = self.texts is not None
        self.X, self.Y = self.texts["train"] if self.texts else X, Y
        if self.variant != SMALL:
            # Other peers' imports are not timed either.
            import torch

            import circlet.model  # noqa: F401

            torch.set_num_threads(self.threads)
            preset, given = VARIANTS[self.variant]
            self.settings = {"preset": preset, **given, "torch": torch.__version__}

    def train(self) -> dict[str, float] | None:
        if self.variant == SMALL:
            self.settings = {"compress": "--loss 0.2"}
            known = json.loads((self.before / "measured.json").read_text(encoding="utf-8"))
            return {name: known[name] for name in ("train_s", "train_cpu_s", "train_peak_bytes")}
        # What `circlet train` calls. The estimator does too, but scikit-learn, which it needs, takes memory.
        from circlet.data.dataset import Split
        from circlet.model import fit
        from circlet.settings import RunSettings

        preset, given = VARIANTS[self.variant]
        settings = RunSettings.from_preset(preset, given, seed=self.seed)
        rows, texts = (None, self.X) if self.from_texts else (self.X, None)
        self.trained = fit(Split(rows, self.Y, texts), settings)
        self.settings["decided"] = self.trained.training["decided"]
        return None

    def save(self, folder: Path) -> None:
        if self.variant == SMALL:
            folder.rmdir()  # it must not exist yet
            command = [sys.executable, "-m", "circlet", "compress", str(self.before / "model")]
            subprocess.run([*command, "--loss", "0.2", "--output", str(folder)], check=True)
        else:
            self.trained.save(folder)

    def load(self, folder: Path) -> None:
        self.model = circlet.runtime.RuntimeModel.load(folder)
        known = common.texts(self.data)
        self.test_texts = known["test"] if known else None

    def documents(self, X: sp.csr_matrix, rows: slice) -> Any:
        return X if self.test_texts is None else self.test_texts[rows]

    def rank(self, documents: Any) -> np.ndarray:
        return self.model.top_k(documents, common.TOP)[0]

    def probabilities(self, documents: Any) -> np.ndarray:
        return self.model.probabilities(self.model.top_k(documents, common.TOP)[1])


if __name__ == "__main__":
    common.main(Circlet)
