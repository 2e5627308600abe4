"""fastText: the words of a document are the ids of its features, each once; their values are lost.

It trains one independent classifier per label (`ova`), as its documentation advises for several labels. With many
labels and documents that takes hours, and the hierarchical softmax is used instead. The best learning rate differs
by a factor of ten between datasets, and a rate that is too high gives NaN, so it is chosen on some of the rows;
that is not counted as training.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import common
import fasttext
import scipy.sparse as sp

#: Largest documents × labels for which every label is trained on every document.
ALL_LABELS = 1e8
#: Learning rates; the first is the one in its documentation for several labels.
RATES = (0.5, 0.2, 0.1, 0.05)
#: Number of rows used to choose a rate: trained on nine tenths, measured on the last tenth.
CHOOSING = 2000


class FastText(common.Runner):
    """The mean of word vectors, and a linear layer over it."""

    packages = ("fasttext-wheel",)

    def prepare(self, X: sp.csr_matrix, Y: sp.csr_matrix, work: Path) -> None:
        loss = "ova" if Y.shape[0] * Y.shape[1] <= ALL_LABELS else "hs"
        self.settings = {"loss": loss, "epoch": 25}
        rows = zip(as_words(Y, "__label__"), as_words(X, "f"), strict=True)
        lines = [f"{labels} {words}\n" for labels, words in rows if labels]
        self.lines = written(work / "train.ft", lines)
        cut = min(CHOOSING, len(lines))
        some, judged = lines[: cut * 9 // 10], lines[cut * 9 // 10 : cut]
        small, held_out = written(work / "some.ft", some), written(work / "held-out.ft", judged)
        found = {rate: self._fit(small, rate) for rate in RATES}
        precision = {rate: model.test(str(held_out), k=1)[1] for rate, model in found.items() if model}
        self.rate = max(precision, key=precision.__getitem__)

    def train(self) -> dict[str, float]:
        # With more rows a rate may still give NaN; the time counted is that of the rate that works.
        for rate in [rate for rate in RATES if rate <= self.rate]:
            start, cpu = time.perf_counter(), time.process_time()
            self.model = self._fit(self.lines, rate)
            if self.model is not None:
                break
        else:
            raise RuntimeError("NaN at every learning rate")
        self.settings["lr"] = rate
        return {
            "train_s": time.perf_counter() - start,
            "train_cpu_s": time.process_time() - cpu,
            "train_peak_bytes": common.peak_bytes(),
        }

    def _fit(self, lines: Path, rate: float) -> Any:
        """Train a model; None if it gives NaN."""
        try:
            return fasttext.train_supervised(
                str(lines), thread=self.threads, minCount=1, verbose=0, lr=rate, **self.settings
            )
        except RuntimeError as error:
            if "NaN" not in str(error):
                raise
            return None

    def save(self, folder: Path) -> None:
        self.model.save_model(str(folder / "model.bin"))

    def load(self, folder: Path) -> None:
        # fasttext.load_model only adds a warning.
        self.model = fasttext.FastText._FastText(model_path=str(folder / "model.bin"))

    def documents(self, X: sp.csr_matrix, rows: slice) -> list[str]:
        return as_words(X, "f")

    def rank(self, documents: Any) -> list[list[int]]:
        found, _ = self.model.predict(documents, k=common.TOP)
        return [[int(label.removeprefix("__label__")) for label in labels] for labels in found]


def as_words(M: sp.csr_matrix, prefix: str) -> list[str]:
    words = [f"{prefix}{column}" for column in range(M.shape[1])]
    rows = zip(M.indptr[:-1], M.indptr[1:], strict=True)
    return [" ".join([words[column] for column in M.indices[a:b]]) for a, b in rows]


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(lines), encoding="utf-8")
    return path


if __name__ == "__main__":
    common.main(FastText)
