"""PECOS: XR-Linear with its defaults, on rows of length 1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import common
import numpy as np
import scipy.sparse as sp
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel


class Pecos(common.Runner):
    """A label tree with linear support vector machines in its nodes."""

    packages = ("libpecos",)

    def prepare(self, X: sp.csr_matrix, Y: sp.csr_matrix, work: Path) -> None:
        self.X, self.Y = common.unit_rows(X), Y
        self.settings = {"rows": "of length 1"}

    def train(self) -> None:
        labels = LabelEmbeddingFactory.create(self.Y, self.X, method="pifa")
        tree = Indexer.gen(labels, threads=self.threads)
        self.model = XLinearModel.train(self.X, self.Y, C=tree, threads=self.threads)

    def save(self, folder: Path) -> None:
        self.model.save(str(folder))
        del self.model, self.X, self.Y

    def load(self, folder: Path) -> None:
        # As its documentation says for models that only predict.
        self.model = XLinearModel.load(str(folder), is_predict_only=True)

    def documents(self, X: sp.csr_matrix, rows: slice) -> sp.csr_matrix:
        return common.unit_rows(X)

    def rank(self, documents: Any) -> list[np.ndarray]:
        # Threads divide the documents among them: with one document, the other threads would only spin.
        threads = min(self.threads, documents.shape[0])
        scores = self.model.predict(documents, only_topk=common.TOP, threads=threads)
        rows = np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr))
        order = np.lexsort((-scores.data, rows))
        return np.split(scores.indices[order], scores.indptr[1:-1])


if __name__ == "__main__":
    common.main(Pecos)
