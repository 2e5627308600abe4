"""napkinXC: a probabilistic label tree with its defaults (balanced 2-means, logistic loss)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import common
import scipy.sparse as sp
from napkinxc.models import PLT


class NapkinXC(common.Runner):
    """A label tree with logistic regressions in its nodes."""

    packages = ("napkinxc",)

    def prepare(self, X: sp.csr_matrix, Y: sp.csr_matrix, work: Path) -> None:
        super().prepare(X, Y, work)
        # napkinXC writes its model while it trains.
        self.written = work / "written"
        shutil.rmtree(self.written, ignore_errors=True)

    def train(self) -> None:
        PLT(str(self.written), threads=self.threads, seed=self.seed).fit(self.X, self.Y)

    def save(self, folder: Path) -> None:
        del self.X, self.Y
        folder.rmdir()
        self.written.rename(folder)

    def load(self, folder: Path) -> None:
        self.model = PLT(str(folder), threads=self.threads)
        self.model.load()

    def rank(self, documents: Any) -> list[list[int]]:
        ranked: list[list[int]] = self.model.predict(documents, top_k=common.TOP)
        return ranked


if __name__ == "__main__":
    common.main(NapkinXC)
