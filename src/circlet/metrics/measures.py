"""Measures of a ranking: P@k, recall@k, nDCG@k, PSP@k, PSnDCG@k and label coverage@k, and F1 at a threshold.

Every function takes the true labels `y_true`, (n, n_labels) of zeros and ones (sparse or dense), and computes one
number for the whole set. Most also take `ranked`, which is one of

- an integer array (n, >= k) of label ids, best first; -1 marks a place without a prediction;
- a SciPy sparse matrix (n, n_labels) of scores: only stored entries are predicted, stored zeros included;
- a floating-point array (n, n_labels) of scores: every label is predicted.

Scores are ranked from high to low, and equal scores by label id, lower ids first.

The conventions are those of the Extreme Classification Repository's own scripts (PyXClib) and of napkinXC:

- A row without true labels counts, and gains nothing: 0 for P, recall and nDCG, and nothing in either sum of PSP
  and PSnDCG.
- A place without a prediction is a wrong prediction: P@k always divides by k. So k may exceed the number of
  labels. A ranking with fewer than min(k, n_labels) columns raises an error, because it was probably cut for a
  smaller k: pad it with -1 if there are no more predictions.
- PSP@k and PSnDCG@k are ratios of two sums over the whole set: the gain, and the largest possible gain.
- A label that is not in the training set has N_l = 0: its weight is the largest, and finite.
- If no row has a label, the value is 0; napkinXC gives NaN or an error.

>>> import numpy as np
>>> y_true = np.array([[1, 0, 1, 0], [0, 1, 0, 0]])
>>> precision_at_k(y_true, np.array([[2, 1, 0], [3, 1, 0]]), k=(1, 3))
{1: 0.5, 3: 0.5}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from circlet.checks import is_integer
from circlet.data.dataset import as_csr
from circlet.errors import DataError, ParameterError
from circlet.settings.run import ThresholdGoal

Matrix: TypeAlias = "sp.csr_matrix | npt.ArrayLike"
Ints: TypeAlias = npt.NDArray[np.int64]


def precision_at_k(y_true: Matrix, ranked: Matrix, k: int | Iterable[int] = (1, 3, 5)) -> dict[int, float]:
    """Fraction of the first k predictions that are true labels, averaged over rows.

    Parameters
    ----------
    y_true : (n, n_labels) sparse or dense, of zeros and ones
        True labels.
    ranked : (n, >= k) label ids, best first, or (n, n_labels) scores
        Predictions; see the module.
    k : int or iterable of int
        How many predictions count.

    Returns
    -------
    dict
        The value for each k, in the given order.
    """
    return _one("P", y_true, ranked, k)


def recall_at_k(y_true: Matrix, ranked: Matrix, k: int | Iterable[int] = (1, 3, 5)) -> dict[int, float]:
    """Fraction of a row's true labels among its first k predictions, averaged; see `precision_at_k`."""
    return _one("R", y_true, ranked, k)


def ndcg_at_k(y_true: Matrix, ranked: Matrix, k: int | Iterable[int] = (1, 3, 5)) -> dict[int, float]:
    """Discounted gain Σ 1/log2(place + 1) of the true labels found, divided by that of a perfect row, averaged.

    In a perfect row, the first min(k, number of true labels) places are right. Parameters and result are those of
    `precision_at_k`.
    """
    return _one("nDCG", y_true, ranked, k)


def coverage_at_k(y_true: Matrix, ranked: Matrix, k: int | Iterable[int] = (1, 3, 5)) -> dict[int, float]:
    """Fraction of the labels in `y_true` that some row has among its first k predictions; see `precision_at_k`."""
    return _one("coverage", y_true, ranked, k)


def psp_at_k(
    y_true: Matrix,
    ranked: Matrix,
    inv_propensity: npt.ArrayLike,
    k: int | Iterable[int] = (1, 3, 5),
    normalize: bool = True,
) -> dict[int, float]:
    """Propensity-scored precision: each true label found counts as its inverse propensity.

    Other parameters and the result are those of `precision_at_k`.

    Parameters
    ----------
    inv_propensity : (n_labels,) array
        From `inverse_propensity` of the training labels.
    normalize : bool
        True: the Repository's form, divided by the value of the best possible ranking, hence in [0, 1].
        False: the form of the paper's text, the mean over rows of (1/k) Σ y_l / p_l, which may exceed 1.
    """
    return _one("PSP", y_true, ranked, k, inv_propensity, normalize)


def psndcg_at_k(
    y_true: Matrix,
    ranked: Matrix,
    inv_propensity: npt.ArrayLike,
    k: int | Iterable[int] = (1, 3, 5),
    normalize: bool = True,
) -> dict[int, float]:
    """Propensity-scored nDCG: like `ndcg_at_k`, but each true label found counts as its inverse propensity.

    Parameters and result are those of `psp_at_k`. In both forms, each row is first divided by its perfect
    unweighted gain, as in nDCG.
    """
    return _one("PSnDCG", y_true, ranked, k, inv_propensity, normalize)


def evaluate(
    y_true: Matrix,
    ranked: Matrix,
    inv_propensity: npt.ArrayLike | None = None,
    k: int | Iterable[int] = (1, 3, 5),
    *,
    metrics: Sequence[str] | None = None,
    normalize: bool = True,
) -> dict[str, float]:
    """Compute several metrics of a ranking, comparing it with the true labels only once.

    Other parameters are those of `psp_at_k`.

    Parameters
    ----------
    inv_propensity : (n_labels,) array, optional
        PSP and PSnDCG need it.
    metrics : sequence of str, optional
        Any of P, R, nDCG, coverage, PSP and PSnDCG. Default: all of them, the last two only if `inv_propensity`
        is given.

    Returns
    -------
    dict
        Values by name, ``"P@1"``, ``"P@3"``, ..., metric by metric in the given order.
    """
    if metrics is None:
        metrics = [name for name in _METRICS if inv_propensity is not None or name not in _WEIGHTED]
    if isinstance(metrics, str) or not all(name in _METRICS for name in metrics):
        raise ParameterError(f"`metrics`: found {metrics!r}; wanted a list of names among {', '.join(_METRICS)}")
    if inv_propensity is None and not _WEIGHTED.isdisjoint(metrics):
        raise ParameterError("PSP and PSnDCG need `inv_propensity`: inverse_propensity(y_train)")
    ks = _check_ks(k)
    truth = label_matrix(y_true, "y_true")
    n, n_labels = truth.shape
    depth = min(max(ks), n_labels)  # no place after the last label can be right
    ids = _ranked_ids(ranked, truth, depth)
    # Every id of the ranking (n, depth) is looked up among the true labels of its row.
    row, place = np.nonzero(contains(truth, np.arange(n, dtype=np.int64)[:, None], ids))
    found = _Hits(place, ids[row, place], np.diff(truth.indptr)[row])
    weights, best = np.ones(n_labels), None
    if inv_propensity is not None:
        weights = _check_weights(inv_propensity, n_labels)
        best = _best(truth, weights, depth) if normalize else None
    n_true_labels = np.count_nonzero(np.bincount(truth.indices, minlength=n_labels))
    matches = {
        at: _Match(at, found.first(at), best and best.first(at), weights, n, int(n_true_labels)) for at in ks
    }
    return {f"{name}@{at}": matches[at].measure(name) for name in metrics for at in ks}


def inverse_propensity(y_train: Matrix, a: float = 0.55, b: float = 1.5) -> npt.NDArray[np.float64]:
    """Inverse propensity 1 + C (N_l + b)^-a of each label, C = (log N − 1)(b + 1)^a (Jain et al. 2016).

    Parameters
    ----------
    y_train : (n, n_labels) sparse or dense, of zeros and ones
        Labels of n >= 3 training rows: for fewer, log N − 1 is negative and the estimate is not a probability.
    a : float
        0.5 for the Wikipedia sets, 0.6 for the Amazon sets, the default for all others.
    b : float
        0.4 for the Wikipedia sets, 2.6 for the Amazon sets, the default for all others.

    Returns
    -------
    (n_labels,) array
        At least 1, larger for rarer labels, and largest for a label that is in no training row.
    """
    labels = label_matrix(y_train, "y_train")
    n, n_labels = labels.shape
    if n < 3:
        raise DataError(f"y_train: found {n} rows; wanted 3 or more, to estimate inverse propensities")
    return inverse_propensity_of_counts(np.bincount(labels.indices, minlength=n_labels), n, a, b)


def inverse_propensity_of_counts(
    counts: npt.NDArray[np.int64], n: int, a: float = 0.55, b: float = 1.5
) -> npt.NDArray[np.float64]:
    """Compute `inverse_propensity` from label counts in n >= 3 rows."""
    if not (math.isfinite(a) and math.isfinite(b) and a >= 0 and b > 0):
        raise ParameterError(f"found a={a!r} and b={b!r}; wanted a number `a` >= 0 and a number `b` > 0")
    a, b = float(a), float(b)
    try:
        with np.errstate(over="raise"):
            weights: npt.NDArray[np.float64] = 1 + (math.log(n) - 1) * (b + 1) ** a * (counts + b) ** -a
    except ArithmeticError as error:
        raise ParameterError(f"a={a!r} and b={b!r} give inverse propensities that are not finite") from error
    return weights


def log_weights(
    counts: npt.NDArray[np.int64] | None, documents: int, n_labels: int, favor_rare: float
) -> npt.NDArray[np.float64]:
    """Return τ log w of each label, `(n_labels,)`, for its inverse propensity w and τ = `favor_rare`.

    `counts` has the number of documents with each label; labels beyond its end have never occurred.
    """
    if counts is None:
        found = (
            "a model that does not know how often each label occurred; wanted these counts, to favor rare labels"
        )
        raise DataError(f"found {found}: train it again, or leave `favor_rare` out")
    if documents < 3:
        found = f"a model that has seen {documents} documents; wanted at least 3, to know which labels are rare"
        raise DataError(f"found {found}: train it on more, or leave `favor_rare` out")
    padded = np.zeros(n_labels, dtype=np.int64)
    padded[: len(counts)] = counts
    return favor_rare * np.log(inverse_propensity_of_counts(padded, documents))


def micro_f1(y_true: Matrix, y_pred: Matrix, threshold: float = 0.5) -> float:
    """F1 = 2 tp / (2 tp + fp + fn) over all decisions: a label is predicted if its score is above the threshold.

    `y_pred` has scores, or decisions of zeros and ones, `(n, n_labels)`; entries that a sparse matrix does not
    store are never predicted, whatever the threshold.
    """
    hit, predicted, true = _decisions(y_true, y_pred, threshold)
    return _ratio(2 * float(hit.sum()), float(predicted.sum() + true.sum()))


def macro_f1(y_true: Matrix, y_pred: Matrix, threshold: float = 0.5) -> float:
    """Mean F1 over all n_labels labels; a label that is neither true nor predicted in any row counts as 0.

    Parameters are those of `micro_f1`. scikit-learn computes the same mean; napkinXC ignores labels after the
    highest one that occurs.
    """
    hit, predicted, true = _decisions(y_true, y_pred, threshold)
    return float(np.mean(2 * hit / np.maximum(predicted + true, 1)))


class _Hits(NamedTuple):
    """The true labels that a ranking found: place from 0, label, and number of true labels in the row."""

    place: Ints
    label: Ints
    n_true: Ints

    def first(self, k: int) -> _Hits:
        """Return the hits in the first k places."""
        kept = self.place < k
        return _Hits(self.place[kept], self.label[kept], self.n_true[kept])

    def discounted(self, k: int, weights: npt.NDArray[np.float64] | None = None) -> float:
        """Sum, over rows, the discounted gain of the hits in k places divided by the perfect unweighted gain."""
        most = min(k, np.iinfo(self.n_true.dtype).max)  # so that it fits the type of n_true
        n_true = np.minimum(self.n_true, most)
        discount = 1 / np.log2(np.arange(2, 3 + max(self.place.max(initial=0), n_true.max(initial=0))))
        gain = discount[self.place] / np.cumsum(discount)[n_true - 1]
        return float(np.sum(gain if weights is None else gain * weights[self.label]))


class _Match(NamedTuple):
    """The labels found in k places and, for normalization, those of the best possible ranking."""

    k: int
    found: _Hits
    best: _Hits | None
    weights: npt.NDArray[np.float64]  # (n_labels,)
    n_rows: int
    n_true_labels: int  # labels that are true in some row

    def measure(self, name: str) -> float:
        """Compute the metric of this name."""
        k, found, best, weights, n, _ = self
        if name == "P":
            return len(found.place) / (k * n)
        if name == "R":
            return float(np.sum(1 / found.n_true)) / n
        if name == "nDCG":
            return found.discounted(k) / n
        if name == "coverage":
            return _ratio(int(np.count_nonzero(np.bincount(found.label))), self.n_true_labels)
        if name == "PSP":
            gained = float(np.sum(weights[found.label]))
            return gained / (k * n) if best is None else _ratio(gained, float(np.sum(weights[best.label])))
        gained = found.discounted(k, weights)
        return gained / n if best is None else _ratio(gained, best.discounted(k, weights))


_METRICS = ("P", "R", "nDCG", "coverage", "PSP", "PSnDCG")
_WEIGHTED = frozenset(("PSP", "PSnDCG"))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _one(
    name: str, y_true: Matrix, ranked: Matrix, k: int | Iterable[int], weights: Any = None, normalize: bool = True
) -> dict[int, float]:
    ks = _check_ks(k)
    values = evaluate(y_true, ranked, weights, ks, metrics=(name,), normalize=normalize)
    return {at: values[f"{name}@{at}"] for at in ks}


def _best(truth: sp.csr_matrix, weights: npt.NDArray[np.float64], depth: int) -> _Hits:
    """Return the hits of the best possible ranking: the true labels of each row, by decreasing weight."""
    n_labels = truth.shape[1]
    by_weight = np.argsort(-weights, kind="stable")
    rank = np.empty_like(by_weight)
    rank[by_weight] = np.arange(n_labels)
    # Row and rank, combined in one integer, sort several times faster than two keys.
    row, rank = np.divmod(np.sort(rows(truth) * n_labels + rank[truth.indices]), n_labels)
    place = np.arange(len(row)) - truth.indptr[row]
    kept = place < depth
    return _Hits(place[kept], by_weight[rank[kept]], np.diff(truth.indptr)[row[kept]])


def _decisions(y_true: Matrix, y_pred: Matrix, threshold: float) -> tuple[Ints, Ints, Ints]:
    """For each label, count the rows where it is correctly predicted, predicted, and true."""
    if not math.isfinite(threshold):
        raise ParameterError(f"`threshold`: found {threshold!r}; wanted a finite number")
    truth = label_matrix(y_true, "y_true")
    scores: Any = y_pred if sp.issparse(y_pred) else number_array(y_pred, "y_pred")
    _check_shape(scores, truth, "y_pred")
    if sp.issparse(scores):
        scores = _canonical(scores, "y_pred")
        row, label = rows(scores), scores.indices.astype(np.int64)
        _refuse_nan(scores.data, lambda at: row[at], "y_pred")
        above = scores.data > threshold
        row, label = row[above], label[above]
    else:
        _refuse_nan(scores, lambda at: at // scores.shape[1], "y_pred")
        row, label = np.nonzero(scores > threshold)
    hit = label[contains(truth, row, label)]
    n_labels = truth.shape[1]
    return (
        np.bincount(hit, minlength=n_labels),
        np.bincount(label, minlength=n_labels),
        np.bincount(truth.indices, minlength=n_labels),
    )


def _check_ks(k: int | Iterable[int]) -> list[int]:
    ks: list[Any] = list(k) if isinstance(k, Iterable) else [k]
    if not ks or not all(is_integer(at, 1) for at in ks):
        raise ParameterError(f"`k`: found {k!r}; wanted an integer >= 1 or several of them")
    return [int(at) for at in ks]


def _check_weights(inv_propensity: npt.ArrayLike, n_labels: int) -> npt.NDArray[np.float64]:
    weights = number_array(inv_propensity, "inv_propensity").astype(np.float64)
    if weights.shape != (n_labels,):
        raise DataError(f"inv_propensity: found shape {weights.shape}; wanted ({n_labels},), as of y_true")
    most = 1e280  # sums of such weights stay finite
    wrong = ~((weights >= 0) & (weights <= most))
    if wrong.any():
        label = int(np.argmax(wrong))
        wanted = f"a number from 0 to {most}"
        raise DataError(f"inv_propensity of label {label}: found {weights[label]}; wanted {wanted}")
    return weights


def number_array(values: Any, name: str) -> npt.NDArray[Any]:
    """Convert `values` to an array of real numbers."""
    try:
        array = np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise DataError(f"{name}: found no matrix ({error}); wanted rows of the same length") from error
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name}: found dtype {array.dtype}; wanted numbers")
    return array


def label_matrix(y: Matrix, name: str) -> sp.csr_matrix:
    """Check a matrix of zeros and ones (n, n_labels), and convert it to CSR with sorted indices and no zeros."""
    matrix: Any = y if sp.issparse(y) else number_array(y, name)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise DataError(f"{name}: found shape {matrix.shape}; wanted (n, n_labels), both at least 1")
    if not sp.issparse(matrix):  # SciPy has no 16-bit floats
        matrix = sp.csr_matrix(matrix, dtype=np.result_type(matrix, np.float32))
    matrix = _canonical(matrix, name)
    wrong = (matrix.data != 0) & (matrix.data != 1)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise DataError(f"{name}, row {rows(matrix)[at]}: found {matrix.data[at]!s}; labels are 0 or 1")
    if not matrix.data.all():
        matrix = matrix.copy()
        matrix.eliminate_zeros()
    return matrix


def _ranked_ids(ranked: Matrix, truth: sp.csr_matrix, depth: int) -> Ints:
    """Convert label ids or scores to ids (n, depth), best first, with -1 where there is no prediction."""
    if sp.issparse(ranked):
        _check_shape(ranked, truth, "ranked")
        return _rank_sparse(_canonical(ranked, "ranked"), depth)
    array = number_array(ranked, "ranked")
    if array.dtype.kind == "f":
        hint = "; floating-point numbers are scores, label ids must have an integer dtype"
        _check_shape(array, truth, "ranked", hint)
        return rank_dense(array, depth)
    if array.dtype.kind == "b":
        raise DataError("ranked: found dtype bool; wanted integers (label ids) or floating-point numbers (scores)")
    return _check_ids(array, truth, depth)


def rows(matrix: sp.csr_matrix) -> Ints:
    """Return the row of every stored entry."""
    return np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))


def contains(matrix: sp.csr_matrix, row: Ints, label: Ints) -> npt.NDArray[np.bool_]:
    """Whether `matrix` stores each (row, label), two broadcastable arrays; label -1 is never stored."""
    n_labels = matrix.shape[1]
    keys = rows(matrix) * n_labels + matrix.indices  # increasing, because indices are sorted and occur once
    # Label -1 must not turn into the last label of the previous row.
    queries = np.where(label >= 0, row * n_labels + label, -1)
    if not len(keys):
        return np.zeros(queries.shape, dtype=bool)
    at = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
    found: npt.NDArray[np.bool_] = keys[at] == queries
    return found


def _check_ids(array: npt.NDArray[Any], truth: sp.csr_matrix, depth: int) -> Ints:
    n, n_labels = truth.shape
    if array.ndim != 2 or len(array) != n:
        raise DataError(f"ranked: found shape {array.shape}; wanted ({n}, >= {depth}) ids, as of y_true")
    if array.shape[1] < depth:
        raise ParameterError(
            f"ranked: found {array.shape[1]} columns; wanted {depth} for the largest `k`: "
            "pad it with -1 if there are no more predictions"
        )
    used = array[:, :depth]
    wrong = (used < -1) | (used >= n_labels)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise DataError(
            f"ranked, row {row}: found label id {used[row, column]}; "
            f"wanted ids from 0 to {n_labels - 1}, or -1 for no prediction"
        )
    ids = used.astype(np.int64)
    ordered = np.sort(ids, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if twice.any():
        row, column = np.argwhere(twice)[0]
        raise DataError(f"ranked, row {row}: found label id {ordered[row, column]} twice; wanted each id once")
    return ids


def _rank_sparse(scores: sp.csr_matrix, depth: int) -> Ints:
    row = rows(scores)
    _refuse_nan(scores.data, lambda at: row[at], "ranked")
    falling = -scores.data.astype(np.result_type(scores.dtype, np.float32), copy=False)
    order = np.lexsort((falling, row))  # stable, so that equal scores stay in the order of ids
    place = np.arange(scores.nnz) - scores.indptr[row]
    kept = place < depth
    ids = np.full((scores.shape[0], depth), -1, dtype=np.int64)
    ids[row[kept], place[kept]] = scores.indices[order[kept]]
    return ids


def rank_dense(scores: npt.NDArray[Any], depth: int, block: int = 1 << 22) -> Ints:
    """Return the labels of the best scores (n, depth), ranking about `block` scores at a time."""
    n, n_labels = scores.shape
    _refuse_nan(scores, lambda at: at // n_labels, "ranked")
    ids = np.empty((n, depth), dtype=np.int64)
    step = max(1, block // n_labels)
    for start in range(0, n, step):
        falling = -scores[start : start + step]
        # Not argpartition, which chooses arbitrarily among labels that tie for the last place.
        last = np.partition(falling, depth - 1, axis=1)[:, depth - 1 : depth]
        inside, ties = falling < last, falling == last
        room = depth - inside.sum(axis=1, keepdims=True)
        chosen = inside | (ties & (np.cumsum(ties, axis=1) <= room))
        labels = np.nonzero(chosen)[1].reshape(-1, depth)
        order = np.argsort(np.take_along_axis(falling, labels, axis=1), axis=1, kind="stable")
        ids[start : start + step] = np.take_along_axis(labels, order, axis=1)
    return ids


def _canonical(matrix: Any, name: str) -> sp.csr_matrix:
    """Convert a sparse matrix to CSR with sorted, distinct indices, without modifying the caller's matrix."""
    matrix = as_csr(matrix, name)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def _check_shape(scores: Any, truth: sp.csr_matrix, name: str, hint: str = "") -> None:
    if scores.shape != truth.shape:
        raise DataError(
            f"{name}: found shape {scores.shape}; wanted scores of shape {truth.shape}, as of y_true{hint}"
        )


def _refuse_nan(values: npt.NDArray[Any], row_of: Callable[[int], int], name: str) -> None:
    # A fast first check without an extra array: the sum is NaN if a value is, or with infinities of both signs.
    with np.errstate(invalid="ignore", over="ignore"):
        if not np.isnan(values.sum()):
            return
    missing = np.isnan(values)
    if missing.any():
        raise DataError(f"{name}, row {row_of(int(np.argmax(missing)))}: found NaN; wanted a score")


Floats = npt.NDArray[np.float64]


class Curve(NamedTuple):
    """Precision, recall and F1 over all decisions, for every threshold.

    The thresholds are all distinct probabilities, descending; labels of at least this probability are predicted.
    """

    thresholds: Floats
    precision: Floats
    recall: Floats
    f1: Floats


def curve_of(chances: npt.NDArray[Any], right: npt.NDArray[np.bool_], n_true: int) -> Curve:
    """Compute precision, recall and F1 for every threshold.

    `chances` has the probabilities of pairs of document and label, and `right` whether these are true labels.
    `n_true` counts all true labels of the documents, including those without a probability.
    """
    order = np.argsort(-chances, kind="stable")
    falling, found = chances[order].astype(np.float64), np.cumsum(right[order])
    # Labels with the same probability are predicted together.
    last = np.flatnonzero(np.append(falling[1:] != falling[:-1], True)[: len(falling)])
    hits, predicted = found[last].astype(np.float64), last + 1.0
    return Curve(falling[last], hits / predicted, hits / max(n_true, 1), 2 * hits / (predicted + n_true))


def best_threshold(
    chances: npt.NDArray[Any], right: npt.NDArray[np.bool_], n_true: int, goal: ThresholdGoal
) -> float | None:
    """Return the best threshold for a goal, or None if the data show none. See `curve_of` for the parameters.

    For a precision, return the lowest threshold that reaches it; for a recall, the highest. If no threshold
    reaches the goal, return the one that comes closest. A threshold lies halfway between the lowest predicted
    probability and the next one.
    """
    if not right.any():
        return None
    thresholds, precision, recall, f1 = curve_of(chances, right, n_true)
    if goal.measure == "f1" or goal.target is None:
        place = int(np.argmax(f1))
    elif goal.measure == "precision":
        reached = np.flatnonzero(precision >= goal.target)
        place = int(reached[-1]) if len(reached) else int(np.argmax(precision))
    else:
        place = min(int(np.searchsorted(recall, goal.target)), len(recall) - 1)
        place = int(np.searchsorted(recall, recall[place]))  # with as few wrong labels as possible
    if place + 1 == len(thresholds):
        return float(thresholds[place])
    return float(thresholds[place] + thresholds[place + 1]) / 2


class LabelReport(NamedTuple):
    """Measures of the labels that are true or predicted in at least one document, `(m,)` each.

    A quotient is 0 where the denominator is 0, as in scikit-learn.
    """

    labels: Ints  # columns, most frequent first
    support: Ints  # in how many documents the label is true
    predicted: Ints
    precision: Floats
    recall: Floats
    f1: Floats
    #: In how many documents the label was missed and another label, one of the most frequent of these, wrongly
    #: predicted, `(m, n_labels)`.
    confusions: sp.csr_matrix


class Decisions(NamedTuple):
    """The true labels of documents, and a model's probabilities of labels, `(n, n_labels)` each."""

    truth: sp.csr_matrix  # ones, with sorted indices
    chances: sp.csr_matrix  # labels that are not stored are never predicted

    def curve(self) -> Curve:
        """Compute precision, recall and F1 over all decisions, for every threshold."""
        chances = self.chances
        right = contains(self.truth, rows(chances), chances.indices.astype(np.int64))
        return curve_of(chances.data, right, self.truth.nnz)

    def summary(self, threshold: float) -> dict[str, dict[str, float]]:
        """Compute precision, recall and F1 at a threshold: over all decisions (micro), and as label means (macro).

        Labels that are neither true nor predicted in any document are left out of the means.
        """
        report = self.per_label(threshold, others=0)
        hits = float(np.round(report.recall * report.support).sum())
        predicted, true = float(report.predicted.sum()), float(report.support.sum())
        micro = {
            "precision": hits / max(predicted, 1.0),
            "recall": hits / max(true, 1.0),
            "f1": 2 * hits / max(predicted + true, 1.0),
        }
        macro = {
            name: float(getattr(report, name).mean()) if len(report.labels) else 0.0
            for name in ("precision", "recall", "f1")
        }
        return {"micro": micro, "macro": macro}

    def per_label(self, threshold: float, others: int = 3) -> LabelReport:
        """Measure each label at a threshold, with at most `others` labels that it is confused with."""
        truth, row = self.truth, rows(self.chances)
        kept = self.chances.data >= threshold
        places = (row[kept], self.chances.indices[kept])
        guesses = sp.csr_matrix((np.ones(len(places[0]), dtype=np.float32), places), shape=self.chances.shape)
        hits = truth.multiply(guesses).tocsr()
        n_labels = truth.shape[1]
        support, predicted, right = (np.bincount(M.indices, minlength=n_labels) for M in (truth, guesses, hits))
        occurring = np.flatnonzero(support + predicted)
        labels = occurring[np.lexsort((occurring, -predicted[occurring], -support[occurring]))]
        true, guessed, found = (each[labels].astype(np.float64) for each in (support, predicted, right))
        confusions = sp.csr_matrix((len(labels), n_labels), dtype=np.int64)
        if others:
            # The product is as sparse as its factors, since a label is missed in few documents.
            missed, wrong = _without(truth, hits), _without(guesses, hits)
            confusions = _largest((missed.T.tocsr()[labels] @ wrong).tocsr(), others)
        return LabelReport(
            labels,
            support[labels],
            predicted[labels],
            found / np.maximum(guessed, 1),
            found / np.maximum(true, 1),
            2 * found / (true + guessed),
            confusions,
        )


def _without(matrix: sp.csr_matrix, other: sp.csr_matrix) -> sp.csr_matrix:
    """Return the entries set in `matrix` but not in `other`, its subset, as integers for counting."""
    left = (matrix - other).tocsr()
    left.eliminate_zeros()
    return left.astype(np.int64)


def _largest(matrix: sp.csr_matrix, k: int) -> sp.csr_matrix:
    """Keep the k largest entries of each row, largest first; for ties, the lower column first."""
    row = rows(matrix)
    order = np.lexsort((matrix.indices, -matrix.data, row))
    kept = order[np.arange(len(order)) - matrix.indptr[row] < k]
    counts = np.minimum(np.diff(matrix.indptr), k)
    starts = np.concatenate([[0], np.cumsum(counts)])
    return sp.csr_matrix((matrix.data[kept], matrix.indices[kept], starts), shape=matrix.shape)
