"""omikuji: `parabel` (its defaults: three trees, balanced 2-means) or `bonsai` (unbalanced 100-means, depth 3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import common
import omikuji
import scipy.sparse as sp

#: As in omikuji's documentation.
SETTINGS = {"parabel": {}, "bonsai": {"cluster_balanced": False, "cluster_k": 100, "max_depth": 3}}


class Omikuji(common.Runner):
    """Label trees with linear support vector machines in their nodes."""

    packages = ("omikuji",)

    def prepare(self, X: sp.csr_matrix, Y: sp.csr_matrix, work: Path) -> None:
        # `Model.train_on_data` reads and trains in one call; its two steps are taken here, to time only one.
        self.pool = omikuji._ThreadPoolHandle(self.threads, initialize=True)
        path = omikuji.ffi.new("char[]", str(self.data / "train.txt").encode())
        rows = omikuji.lib.load_omikuji_data_set(path, self.pool.ptr)
        if rows == omikuji.ffi.NULL:
            raise RuntimeError("omikuji can't read the data")
        self.rows = omikuji.ffi.gc(rows, omikuji.lib.free_omikuji_data_set)
        self.settings = SETTINGS[self.variant]

    def train(self) -> None:
        settings = omikuji.Model.default_hyper_param()
        for name, value in self.settings.items():
            setattr(settings, name, value)
        pointer = omikuji.lib.train_omikuji_model(self.rows, settings, self.pool.ptr)
        self.model = omikuji.Model(pointer, self.pool)

    def save(self, folder: Path) -> None:
        self.model.save(str(folder))
        del self.model, self.rows

    def load(self, folder: Path) -> None:
        self.model = omikuji.Model.load(str(folder))
        self.model.init_prediction_thread_pool(self.threads)

    def documents(self, X: sp.csr_matrix, rows: slice) -> list[list[tuple[int, float]]]:
        bounds = zip(X.indptr[:-1], X.indptr[1:], strict=True)
        return [list(zip(X.indices[a:b].tolist(), X.data[a:b].tolist(), strict=True)) for a, b in bounds]

    def rank(self, documents: Any) -> list[list[int]]:
        # It has no call for many documents. Its own threads share the trees; ours would wait for Python's lock.
        rankings = (self.model.predict(document, top_k=common.TOP) for document in documents)
        return [[label for label, _ in ranking] for ranking in rankings]


if __name__ == "__main__":
    common.main(Omikuji)
