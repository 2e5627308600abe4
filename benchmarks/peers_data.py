"""The datasets of `peers.py`: matrices that all peers get as they are, and small sets of texts.

A small set is drawn at random from the training texts of a larger one, always with the same seed, so that the set
of 1,000 texts is a part of that of 3,000. Before that, labels that all documents have are dropped, since there is
nothing to learn about them, and so are texts without labels or words. The labels are those that the drawn texts
have. It is tested on up to 2,000 of the larger set's test texts that have at least one of these labels.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet import files
from circlet.data import catalog, load_dataset
from circlet.data.dataset import Dataset, Split, as_features, column_counts
from circlet.data.fetch import fetch
from circlet.data.matrices import write_xmc
from circlet.errors import DataError, ParameterError
from circlet.features.vectorizer import TextVectorizer

#: Datasets that all peers get as matrices.
LARGE = ("bibtex", "delicious", "eurlex-4k", "wordnet", "pydocs")
#: Further ones, which take hours.
SLOW = ("yso-finna-en",)
#: Small sets of texts: the dataset that each is drawn from, and its number of training texts.
SMALL = {
    f"{short}-{size}": (source, size)
    for short, source, sizes in (
        ("pydocs", "pydocs", (1000, 3000)),
        ("wordnet", "wordnet", (1000, 3000, 10_000)),
        ("yso", "yso-finna-en", (1000, 3000, 10_000)),
    )
    for size in sizes
}
#: Largest number of test texts of a small set.
MOST_TESTED = 2000
#: What scikit-learn's vectorizer counts as a word.
WORD = re.compile(r"\b\w\w+\b")


def prepare(name: str, given: Path | None, folder: Path) -> Dataset:
    """Read a dataset, or draw it, as matrices, and write what the peers' scripts read into `folder`.

    Texts become rows once for all peers: by circlet's vectorizer for a large set, from whose rows circlet starts
    too, and by scikit-learn's for a small one, for which circlet starts from the texts in `texts.json`.
    """
    files.prepare_folder(folder)
    if name in SMALL:
        from sklearn.feature_extraction.text import TfidfVectorizer

        source, size = SMALL[name]
        dataset, seconds = with_rows(drawn(name, load(source, given), size), TfidfVectorizer())
        texts = {"train": dataset.train.texts, "test": _test(dataset).texts, "features_s": seconds}
        files.write_json(folder / "texts.json", texts)
    else:
        dataset = load(name, given)
        if dataset.train.X is None:
            dataset, _ = with_rows(dataset, TextVectorizer())
    train, test = dataset.train, _test(dataset)
    for part, matrix in (("X.trn", train.X), ("Y.trn", train.Y), ("X.tst", test.X)):
        sp.save_npz(folder / f"{part}.npz", sp.csr_matrix(matrix), compressed=False)
    path = folder / "train.txt"
    write_xmc(path, train.X, train.Y)
    # omikuji can't read a line that ends with a space, as that of a row without features does.
    files.write_text(path, path.read_text(encoding="utf-8").replace(" \n", "\n"))
    return dataset


@lru_cache(maxsize=1)  # several small sets are drawn from one large one
def load(name: str, folder: Path | None) -> Dataset:
    if folder is not None and not folder.is_dir():
        raise ParameterError(f"--data: wanted a folder with datasets, found no folder at {folder}")
    if folder is not None and (folder / name).is_dir():
        return load_dataset(folder / name)
    if name in catalog.ENTRIES and not catalog.is_local(name):
        fetch(name)
    return load_dataset(name)


def drawn(name: str, source: Dataset, size: int) -> Dataset:
    """A small set of texts, as the module's docstring describes it."""
    telling = np.flatnonzero(column_counts(source.train.Y) < source.train.n)
    train = _some(source.name, source.train, telling, size)
    seen = np.unique(train.Y.indices)
    train = replace(train, Y=train.Y[:, seen])
    test = _some(source.name, _test(source), telling[seen], MOST_TESTED)
    return Dataset(name, train, test, format="texts")


def _some(where: str, split: Split, labels: npt.NDArray[np.int64], most: int) -> Split:
    """At most `most` random texts that have a word and one of the labels; the other labels are dropped."""
    if split.texts is None:
        raise DataError(
            f"{where}: found no texts; wanted train_raw_texts.txt and test_raw_texts.txt beside X and Y"
        )
    Y = split.Y[:, labels]
    worded = np.array([WORD.search(text) is not None for text in split.texts])
    rows = np.flatnonzero(worded & (np.diff(Y.indptr) > 0))
    chosen = np.sort(np.random.Generator(np.random.PCG64(0)).permutation(rows)[:most])
    return Split(None, Y[chosen], [split.texts[row] for row in chosen.tolist()])


def with_rows(dataset: Dataset, vectorizer: Any) -> tuple[Dataset, float]:
    """The dataset with features of its texts, and the seconds it took to make those of the training texts."""
    train, test = dataset.train, _test(dataset)
    start = time.perf_counter()
    rows = vectorizer.fit_transform(train.texts)
    seconds = time.perf_counter() - start
    train = replace(train, X=as_features(rows, "train"))
    test = replace(test, X=as_features(vectorizer.transform(test.texts), "test"))
    return replace(dataset, train=train, test=test), seconds


def _test(dataset: Dataset) -> Split:
    if dataset.test is None:
        raise DataError(f"{dataset.name}: found no test documents; wanted some to measure on")
    return dataset.test
