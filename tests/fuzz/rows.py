"""Rows, labels and options that somebody might pass to a tagger or to `fit`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import scipy.sparse as sp
from tests.fuzz.damage import Trial
from tests.fuzz.models import NAMES, F, documents, sound, targets

import circlet

ODD_NUMBERS = [np.nan, np.inf, -np.inf, 1e39, -1.0, 0.0, 1e-45, 3.4e38]
ODD_INDICES = [-1, F, F + 1, 2**31 - 1, -(2**31), 7]
ODD_TYPES = ["f8", "f2", "i4", "u1", "?", "c8", "O", "S3", "U3", "i8", "M8[s]", ">f4"]
ODD_LABELS: list[Any] = [
    None, True, 0, -1, 7, 2**70, 0.5, float("nan"), "", " ", "a\nb", "a\tb", "\0", "\ud800", "é", "e\u0301", b"a",
    ["x"], ("a",), {"a"}, {"a": 1}, object(), np.float32(3), np.int8(3), np.str_("a"), np.datetime64("2020"),
    "x" * 10**5,
]  # fmt: skip
ODD_TEXTS: list[Any] = [
    "", " ", "\0", "\ud800", "one\ud83d", None, 3, b"one", ["one"], "one " * 10**5, "日" * 10**5, "\u202eone",
    "e\u0301" * 1000, float("nan"), np.str_("one"),
]  # fmt: skip
ODD_OPTIONS: dict[str, list[Any]] = {
    "k": [0, -1, 1, 100, 2**40, 2**70, 1.0, "3", None, True, np.int8(3), float("nan")],
    "threshold": [0, 1, -1, 2, float("nan"), "0.5", None, True, np.float32(0.5), 1e400],
    "allowed": [[], [0], [99], "red", ["red"], None, [[0]], {0}, np.array([0, 1]), [None], [float("nan")], 5],
    "memory": [1, 0, -1, 2**62, 1.5, "1", None, True],
    "favor_rare": [0, 1, 0.5, -0.1, 1.1, float("nan"), "1", None, True],
}


@dataclass
class RowsSubject:
    """Rows of a kind, given to a tagger or an estimator."""

    name: str
    #: Gives odd rows.
    change: Callable[[Random], tuple[str, Any]]
    ask: Callable[[Any, Random], Any]
    weight: float = 1.0

    def intact(self, folder: Path) -> Any:
        return None  # nothing to compare with: what is odd here has no intact answer

    def damaged(self, folder: Path, random: Random) -> Trial:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # making them is not what is tested
            mutation, rows = self.change(random)
        return Trial(mutation, repr(rows)[:200].replace("\n", " "), lambda: self.ask(rows, random), exact=False)


def subjects(folder: Path) -> list[RowsSubject]:
    """All of them; the folder has the models that `models.subjects` saved."""
    found = []
    for name, kind, change in (
        ("matrix", "sparse", odd_sparse),
        ("spectral", "sparse", odd_sparse),
        ("estimator of dense, one class", "dense", odd_dense),
        ("text", "texts", odd_texts),
        ("estimator of text", "texts", odd_texts),
    ):
        saved = folder / f"{name} 0".replace(" ", "-")
        tagger = circlet.load(saved)
        found.append(RowsSubject(f"{kind} rows for a tagger", change, partial(_tag, tagger), 0.7))
        odd = partial(odd_options, kind)
        found.append(RowsSubject(f"options of a tagger of {kind} rows", odd, partial(_suggest, tagger), 0.4))
        learned = circlet.CircletClassifier.load(saved)
        found.append(RowsSubject(f"{kind} rows for an estimator", change, partial(_tag, learned), 0.5))
    found.append(RowsSubject("labels for fit", odd_labels, _fit))
    for name, change in (("sparse rows", odd_sparse), ("dense rows", odd_dense), ("texts", odd_texts)):
        found.append(RowsSubject(f"{name} for fit", partial(_with_labels, change), _fit, 0.5))
    return found


# What is asked


def _tag(tagger: Any, rows: Any, random: Random) -> Any:
    """Asks a tagger in one of its ways."""
    way = random.choice(["suggest", "predict_proba", "predict", "decision_function"])
    if way == "suggest":
        sound(*tagger.suggest(rows, k=3))
    elif way == "predict_proba":
        chances = tagger.predict_proba(rows)
        sound(chances, chances)
    else:
        getattr(tagger, way)(rows)
    return "answered"


def _suggest(tagger: Any, given: tuple[Any, dict[str, Any]], random: Random) -> Any:
    rows, options = given
    sound(*tagger.suggest(rows, **options))
    return "answered"


def _fit(given: tuple[Any, Any], random: Random) -> Any:
    rows, labels = given
    settings: Any = {"dim": 8, "hidden": (4,), "epochs": 1, "batch_size": 16, "validation": 0, "char_ngrams": None}
    learner = circlet.CircletClassifier(**settings)
    if random.random() < 0.5:
        learner.fit(rows, labels)
    else:
        good = documents("texts" if isinstance(rows, list) else "sparse" if sp.issparse(rows) else "dense", 2)
        learner.fit(good, targets(2)).partial_fit(rows, labels)
    sound(*learner.suggest(documents("texts", 2) if learner.model_.vectorizer else rows, k=3))
    return "answered"


def _with_labels(odd: Callable[[Random], tuple[str, Any]], random: Random) -> tuple[str, Any]:
    """Odd rows, and good labels for as many."""
    mutation, rows = odd(random)
    try:
        n = rows.shape[0] if hasattr(rows, "shape") and rows.ndim else len(rows)
    except TypeError:
        n = 1
    return mutation, (rows, [[NAMES[i % 3]] for i in range(n)])


# What is odd


def odd_sparse(random: Random) -> tuple[str, Any]:
    """A sparse matrix with something wrong or unusual in it."""
    X = documents("sparse", 2)
    kinds = ["index", "pointer", "value", "type", "format", "shape", "order", "length", "index type"]
    kind = random.choice(["index", "pointer", *kinds])
    at = random.randrange(len(X.indices))
    if kind == "index":
        X.indices[at] = random.choice(ODD_INDICES)
    elif kind == "pointer":
        X.indptr[random.randrange(len(X.indptr))] = random.choice([-1, 0, 5, len(X.data) + 9, 2**31 - 1, -(2**31)])
    elif kind == "value":
        X.data[at] = np.float32(random.choice(ODD_NUMBERS))
    elif kind == "type":
        X.data = X.data.astype(random.choice(ODD_TYPES))
    elif kind == "format":
        X = X.asformat(random.choice(["csc", "coo", "lil", "dok", "bsr", "dia"]))
        if X.format in ("coo", "csc") and random.random() < 0.5:
            (X.col if X.format == "coo" else X.indices)[at] = random.choice(ODD_INDICES)
    elif kind == "shape":
        shape = random.choice([(0, F), (3, F + 1), (3, F - 1), (3, 0), (1, F), (2, 2**40)])
        X = sp.csr_matrix(shape, dtype=np.float32)
    elif kind == "order":
        X.indices[:] = X.indices[::-1].copy()
        X.has_sorted_indices = random.random() < 0.5
    elif kind == "index type":
        X.indices, X.indptr = X.indices.astype("i8"), X.indptr.astype("i8")
        X.indices[at] = random.choice([2**40, -1, -(2**62), 3])
    else:
        X.data = X.data[: random.randrange(len(X.data))]
    return kind, X


def odd_dense(random: Random) -> tuple[str, Any]:
    """An array with something wrong or unusual in it, or something that is no array."""
    X: Any = documents("dense", 2)
    kind = random.choice(["value", "type", "shape", "container", "layout"])
    if kind == "value":
        X[random.randrange(len(X)), random.randrange(F)] = np.float32(random.choice(ODD_NUMBERS))
    elif kind == "type":
        X = X.astype(random.choice(ODD_TYPES))
        if X.dtype == object:
            X[0, 0] = random.choice([None, "a", [1], 10**400, object(), 1j])
    elif kind == "shape":
        shape = random.choice([(0, F), (3, F + 1), (3, 0), (F,), (2, 2, F), (), (0,), (1, F)])
        X = np.zeros(shape, dtype=np.float32)
    elif kind == "layout":
        X = random.choice([X.T.copy().T, X[::-1], X[:, ::-1], np.ma.masked_array(X), X.view(), np.matrix(X)])
        if isinstance(X, np.ndarray) and random.random() < 0.5:
            X.flags.writeable = False
    else:
        X = random.choice([
            X.tolist(), [[1.0], [1.0, 2.0]], None, 3, {"a": 1}, iter(X), [], [None], [[]], "text", {1, 2},
            [[["a"]]], np.array(3), [[float("nan")] * F], [list(range(F))], [["1"] * F], [[10**400] * F],
            memoryview(X),
        ])  # fmt: skip
    return kind, X


def odd_texts(random: Random) -> tuple[str, Any]:
    """Texts with something unusual among them, or something that is no list of texts."""
    texts: Any = documents("texts", 2)
    kind = random.choice(["text", "text", "container"])
    if kind == "text":
        texts[random.randrange(len(texts))] = random.choice(ODD_TEXTS)
    else:
        texts = random.choice([
            [], "one", None, 3, iter(texts), set(texts), np.array(texts), np.array(texts, dtype=object),
            tuple(texts), np.array([texts[:4], texts[4:8]]), [[]], [texts], {"text": texts}, b"one", [b"one"],
            documents("dense", 2),
        ])  # fmt: skip
    return kind, texts


def odd_labels(random: Random) -> tuple[str, Any]:
    """Rows, and labels with something wrong or unusual among them."""
    X, Y = documents(random.choice(["sparse", "dense", "texts"]), 2), targets(2)
    n = Y.shape[0]
    kind = random.choice(["one of lists", "one of classes", "indicator", "container", "length"])
    lists: Any = [[NAMES[i % 4]] for i in range(n)]
    if kind == "one of lists":
        lists[random.randrange(n)] = random.choice([random.choice(ODD_LABELS), [random.choice(ODD_LABELS)]])
    elif kind == "one of classes":
        lists = [i % 3 for i in range(n)]
        lists[random.randrange(n)] = random.choice(ODD_LABELS)
    elif kind == "length":
        lists = lists[: random.randrange(n)]
    elif kind == "indicator":
        lists = Y.copy()
        at = random.randrange(len(lists.indices))
        change = random.choice(["index", "value", "pointer", "type", "dense", "wide"])
        if change == "index":
            lists.indices[at] = random.choice([-1, 2**31 - 1, 6, 0])
        elif change == "pointer":
            lists.indptr[random.randrange(n)] = random.choice([-1, 5, 2**31 - 1])
        elif change == "value":
            lists.data[at] = random.choice([np.nan, 2, -1, 0, 0.5, np.inf])
        elif change == "type":
            lists.data = lists.data.astype(random.choice(["i4", "?", "c8", "O", "U3", "f8"]))
        elif change == "dense":
            lists = lists.toarray().astype(random.choice(["f4", "i4", "?", "O", "U3", "f8", "c8"]))
        else:
            lists = sp.csr_matrix((lists.data, lists.indices, lists.indptr), shape=(n, 2**31 - 1))
    else:
        lists = random.choice([
            None, [], "red", 3, [[]] * n, iter(lists), {"a": 1}, np.zeros((n, 0)), np.zeros(n),
            np.zeros((n, 2, 2)), [None] * n, np.array(lists).ravel(), np.arange(n) / 2, ["red"] * n, [{"red"}] * n,
            [np.array(["red"])] * n,
        ])  # fmt: skip
    return kind, (X, lists)


def odd_options(kind: str, random: Random) -> tuple[str, Any]:
    """Good rows of a kind, and options with one that is unusual."""
    chosen = random.sample(sorted(ODD_OPTIONS), random.choice([1, 1, 2]))
    options = {name: random.choice(ODD_OPTIONS[name]) for name in chosen}
    return ", ".join(chosen), (documents(kind, 2), options)
