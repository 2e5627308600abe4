"""scikit-learn: a linear support vector machine per label, on rows of length 1.

Labels without a training document are left out: `OneVsRestClassifier` would give them the constant score 0, which
is above most margins. For a small set of texts the rows are those of `TfidfVectorizer()`, which have length 1
already, so that this is what `make_pipeline(TfidfVectorizer(), OneVsRestClassifier(LinearSVC()))` does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import common
import joblib
import numpy as np
import scipy.sparse as sp
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC


class OneVsRest(common.Runner):
    """A classifier per label."""

    packages = ("scikit-learn",)

    def prepare(self, X: sp.csr_matrix, Y: sp.csr_matrix, work: Path) -> None:
        self.seen = np.flatnonzero(np.asarray(Y.sum(axis=0)).ravel())
        self.X, self.Y = common.unit_rows(X), Y[:, self.seen]
        self.settings = {"estimator": "LinearSVC", "rows": "of length 1"}

    def train(self) -> None:
        # Threads, not processes: liblinear releases Python's lock, and the memory of one process can be measured.
        with joblib.parallel_config("threading", n_jobs=self.threads):
            self.model = OneVsRestClassifier(LinearSVC(random_state=self.seed), n_jobs=self.threads).fit(
                self.X, self.Y
            )

    def save(self, folder: Path) -> None:
        joblib.dump((self.seen, self.model), folder / "model.joblib")
        del self.model, self.X, self.Y

    def load(self, folder: Path) -> None:
        self.seen, self.model = joblib.load(folder / "model.joblib")
        # One product for all labels; `decision_function` goes through them one by one. A transposed array would be
        # copied in every product.
        self.weights = np.ascontiguousarray(np.vstack([machine.coef_ for machine in self.model.estimators_]).T)
        self.bias = np.concatenate([machine.intercept_ for machine in self.model.estimators_])

    def documents(self, X: sp.csr_matrix, rows: slice) -> sp.csr_matrix:
        return common.unit_rows(X)

    def rank(self, documents: Any) -> np.ndarray:
        scores = documents @ self.weights + self.bias
        top = min(common.TOP, scores.shape[1])
        best = np.argpartition(-scores, top - 1, axis=1)[:, :top]
        order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
        return self.seen[np.take_along_axis(best, order, axis=1)]


if __name__ == "__main__":
    common.main(OneVsRest)
