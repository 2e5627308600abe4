"""`CircletClassifier`: a scikit-learn estimator for texts or feature rows with many labels."""

from __future__ import annotations

import copy
import logging
from collections.abc import Collection, Iterator
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from scipy.special import logit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from circlet.codebooks.decoding import MEMORY, check_options
from circlet.data.dataset import Dataset, Split
from circlet.errors import DataError, ParameterError
from circlet.estimator import folder as _estimator_folder
from circlet.estimator.documents import as_many, as_rows, as_texts, count
from circlet.estimator.targets import Targets
from circlet.features.vectorizer import TextVectorizer
from circlet.model.model import fit as fit_model
from circlet.network.network import NetworkSettings
from circlet.training.batches import as_batch
from circlet.training.loop import Reporter, TrainingSettings, resolve_device, train

__all__ = ["CircletClassifier"]

logger = logging.getLogger(__name__)

#: With fewer rows than this none are held out: too few would be left to learn from, and to judge by.
FEWEST_TO_SPLIT = 20
#: How `partial_fit` trains: a few epochs, up and down to a fraction of the rate that `fit` had.
FURTHER_EPOCHS, FURTHER_RATE = 5, 0.5


class CircletClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Tags documents with labels from vocabularies of up to millions.

    A document's labels are predicted as one vector, the superposition of the labels' codes; the output layer's
    size does not depend on how many labels there are.

    Parameters
    ----------
    head : {"chrr-amplitude", "chrr", "chrr-half", "chrr-sin", "chrr-tanh", "hrr", "fc"}
        How the vector is predicted; see `circlet.network.heads`. "fc" is the usual layer with an output per label.
    dim : int
        Dimension of the labels' codes.
    hidden : tuple of int
        Widths of the hidden layers.
    codebook : {"auto", "spectral", "independent", "four-phase", "two-phase", "holographic"}
        Where labels have their codes from; "auto" is spectral, or holographic for `hrr`.
    slots : int or None
        Labels that a spectral codebook has room for; None leaves a twentieth for labels to come.
    loss : {"bce", "cosine", "softmax"}
        See `circlet.network.losses`; "cosine" is the paper's.
    dropout, input_dropout : float
        Share of hidden units, and of a document's features, dropped in training.
    epochs, batch_size : int
    optimizer : {"adamw", "adam", "adadelta", "sgd"}
    lr : float
        The highest learning rate.
    schedule : {"one-cycle", "constant", "step"}
    weight_decay : float
    scaling : {"auto", "none", "l2", "sqrt", "tfidf", "standard"}
        What is done to feature rows; "auto" is sqrt for sparse rows and standard for dense ones. Texts are always
        weighted by tf-idf.
    word_ngrams, char_ngrams : (int, int) or None
        Shortest and longest runs of words, and of characters, that are features of texts.
    min_df : int or float
        Leave out terms in fewer texts than this.
    max_features : int or None
        Keep only the most frequent terms.
    validation : float or int
        Share or number of rows to hold out of training, to keep the best epoch's weights and to calibrate
        probabilities by; 0 for none. With fewer than 20 rows none are held out.
    metric : str
        What held-out rows are judged by: P@1, nDCG@5, ...
    patience : int or None
        Stop after so many epochs without a better metric.
    threshold : float
        `predict` gives the labels that are at least this probable.
    top_k : int or None
        `predict` gives so many labels, the most probable, whatever the threshold.
    encoder : torch.nn.Module or None
        Maps a batch to `(batch, hidden[-1])`, in place of the hidden layers; a copy of it is trained.
    device : str
        "auto" is a GPU where there is one.
    random_state : int, RandomState or None
        All randomness follows from it. On a CPU, the same int gives the same weights.
    verbose : bool
        Log each epoch with the level INFO in place of DEBUG (logger `circlet.estimator.classifier`).

    Attributes
    ----------
    classes_ : ndarray of shape (n_labels,)
        The labels: names, or column numbers of an indicator. Sorted, but those that `partial_fit` brought come
        last.
    model_ : circlet.model.model.Model
    history_ : list of dict
        A record per epoch.
    n_features_in_ : int
        Number of features; there is none for texts.
    feature_names_in_ : ndarray of str
        Where X was a data frame with names.

    Examples
    --------
    >>> from circlet import CircletClassifier
    >>> texts = ["a red apple", "a green apple", "a red car", "a green car"] * 5
    >>> tags = [["fruit", "red"], ["fruit"], ["red", "vehicle"], ["vehicle"]] * 5
    >>> tagger = CircletClassifier(dim=64, hidden=(64,), epochs=20, batch_size=4, validation=0)
    >>> labels, scores = tagger.fit(texts, tags).suggest(["the red car", "one apple"], k=2)
    >>> sorted(labels[0].tolist()), labels[1, 0], scores.shape
    (['red', 'vehicle'], 'fruit', (2, 2))
    >>> tagger.predict(["green apple"]).toarray()
    array([[1., 0., 0.]], dtype=float32)
    """

    def __init__(
        self,
        *,
        head: str = "chrr-amplitude",
        dim: int = 800,
        hidden: tuple[int, ...] = (1024,),
        codebook: str = "auto",
        slots: int | None = None,
        loss: str = "bce",
        dropout: float = 0.7,
        epochs: int = 30,
        batch_size: int = 256,
        optimizer: str = "adamw",
        lr: float = 2e-3,
        schedule: str = "one-cycle",
        weight_decay: float = 0.0,
        input_dropout: float = 0.0,
        scaling: str = "auto",
        word_ngrams: tuple[int, int] | None = (1, 1),
        char_ngrams: tuple[int, int] | None = None,
        min_df: int | float = 1,
        max_features: int | None = None,
        validation: float = 0.05,
        metric: str = "nDCG@5",
        patience: int | None = None,
        threshold: float = 0.5,
        top_k: int | None = None,
        encoder: torch.nn.Module | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool = False,
    ) -> None:
        self.head, self.dim, self.hidden, self.codebook, self.slots = head, dim, hidden, codebook, slots
        self.loss, self.dropout, self.epochs, self.batch_size = loss, dropout, epochs, batch_size
        self.optimizer, self.lr, self.schedule, self.weight_decay = optimizer, lr, schedule, weight_decay
        self.input_dropout, self.scaling, self.word_ngrams = input_dropout, scaling, word_ngrams
        self.char_ngrams, self.min_df, self.max_features = char_ngrams, min_df, max_features
        self.validation, self.metric, self.patience, self.threshold = validation, metric, patience, threshold
        self.top_k = top_k
        self.encoder, self.device, self.random_state, self.verbose = encoder, device, random_state, verbose

    def fit(self, X: Any, y: Any) -> CircletClassifier:
        """Learn from documents and their labels.

        Parameters
        ----------
        X : list of str, or sparse matrix, array or data frame of shape (n, n_features)
        y : indicator of shape (n, n_labels), list of label lists, or array of shape (n,)
            Sparse or dense zeros and ones; or names, str or int; or one class a row.

        Returns
        -------
        CircletClassifier
            Itself.
        """
        return self._fit(X, y, None)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> CircletClassifier:
        """Learn from further documents; the first call is a `fit`.

        Labels never seen before get the next free codes: no weight changes its shape, and the scores of the old
        labels stay as they are until this training moves them. Features stay those of the first call, words of
        texts included, and so does the calibration of probabilities. Training is 5 epochs at up to half of `lr`.
        What was learned before fades where the new documents have none of it: mix some old ones in.

        Parameters
        ----------
        X, y
            As for `fit`. An indicator brings new labels as further columns.
        classes : list, optional
            Labels that may come later. Only head `fc` needs to know them, from the first call.
        """
        if not hasattr(self, "model_"):
            return self._fit(X, y, classes)
        documents = self._documents(X)
        targets = self._targets.extended(y, classes)
        Y = targets.encode(y)
        _check_rows(documents, Y)
        self._grow(targets)
        model, before = self.model_, len(self.model_.history)
        settings = replace(
            self._training(), epochs=FURTHER_EPOCHS, lr=self.lr * FURTHER_RATE, schedule="one-cycle", patience=None
        )
        reporter = _Log(settings.epochs, self.verbose)
        records = train(
            model.network, model.rows(documents), Y, settings, device=model.device, reporter=reporter, fresh=False
        )
        model.history += [{**record, "epoch": before + record["epoch"]} for record in records]
        return self

    def suggest(
        self,
        X: Any,
        k: int = 5,
        *,
        allowed: Collection[Any] | None = None,
        threshold: float | None = None,
        memory: int | None = None,
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
        """The k most probable labels of each document, best first.

        Parameters
        ----------
        X : as for `fit`, or one document: a str, or an array of shape (n_features,)
        k : int
        allowed : collection of labels, optional
            Suggest none but these.
        threshold : float, optional
            Leave out labels that are less probable.
        memory : int, optional
            Bytes that scores may take at a time; see `circlet.codebooks.decoding.top_k`.

        Returns
        -------
        labels : ndarray of shape (n, min(k, n_labels))
            Names where labels have names, else column numbers; n is 1 for one document. With `allowed` or
            `threshold` its dtype is object, with None where they leave no label.
        scores : ndarray of shape (n, min(k, n_labels))
            Calibrated probabilities; 0 where there is no label.
        """
        check_is_fitted(self)
        if not isinstance(k, (int, np.integer)) or isinstance(k, bool) or k < 1:
            raise ParameterError(f"`k` must be a whole number >= 1, got {k!r}")
        if threshold is not None and (not _is_number(threshold) or not 0 <= threshold <= 1):
            raise ParameterError(f"`threshold` must be between 0 and 1, got {threshold!r}")
        mask = None if allowed is None else self._allowed(allowed)
        documents = self._documents(as_many(X))
        if self._targets.single:
            check_options(len(self.classes_), memory, None, None)
            found = [_best(self._shares(block), int(k), mask) for block in self._score_blocks(documents)]
            ids, shares = np.concatenate([ids for ids, _ in found]), np.concatenate([best for _, best in found])
        else:
            ids, scores = self.model_.top_k(documents, int(k), memory=memory, allowed=mask)
            shares = self.model_.probabilities(scores)
        labels = self.classes_[ids]
        if mask is None and threshold is None:
            return labels, shares
        none = (ids < 0) | (shares < (threshold or 0))
        labels = labels.astype(object)
        labels[none], shares[none] = None, 0
        return labels, shares

    def decision_function(self, X: Any) -> npt.NDArray[np.float32]:
        """Scores of all labels.

        The result is dense, 4 bytes a document and label: for many labels give few documents at a time, or use
        `suggest` or `predict`, which need no more memory for more documents.

        Returns
        -------
        ndarray of shape (n, n_labels)
            For one of two classes a row, shape (n,): above 0 for the second.
        """
        scores = self._all_scores(X)
        if self._targets.single and len(self.classes_) <= 2:
            return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores[:, 0]
        return scores

    def predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        """Calibrated probabilities of all labels, dense as in `decision_function`.

        Returns
        -------
        ndarray of shape (n, n_labels)
            With one class a row they add up to 1: what is known of each class, given that one of them is true.
        """
        scores = self._all_scores(X)
        return self._shares(scores) if self._targets.single else self.model_.probabilities(scores)

    def predict(self, X: Any) -> Any:
        """Labels of documents.

        Returns
        -------
        csr_matrix of shape (n, n_labels), float32
            Ones where the probability is at least `threshold` or, if `top_k` is given, at the so many most
            probable labels; columns are in the order of `classes_`. With one class a row: an ndarray of shape
            (n,) of the most probable classes.
        """
        check_is_fitted(self)
        cut = self._cut()
        documents = self._documents(X)
        if self._targets.single:
            best = [block.argmax(axis=1) for block in self._score_blocks(documents)]
            return self.classes_[np.concatenate(best)]
        if self.top_k is not None:
            ids, _ = self.model_.top_k(documents, self.top_k)
            ends = np.arange(len(ids) + 1) * ids.shape[1]
            ones, shape = np.ones(ids.size, dtype=np.float32), (len(ids), len(self.classes_))
            marked = sp.csr_matrix((ones, ids.ravel(), ends), shape=shape)
            marked.sort_indices()
            return marked
        found = [sp.csr_matrix(block >= cut, dtype=np.float32) for block in self._score_blocks(documents)]
        return sp.vstack(found, format="csr", dtype=np.float32)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of documents whose best label is right (P@1); with one class a row, the accuracy.

        Labels that the classifier does not know count as missed.
        """
        check_is_fitted(self)
        documents = self._documents(X)
        Y = self._targets.encode(y)
        _check_rows(documents, Y)
        best = np.concatenate([block.argmax(axis=1) for block in self._score_blocks(documents)])
        right = np.asarray(Y[np.arange(len(best)), best]).ravel()
        return float(np.average(right, weights=sample_weight))

    def save(self, folder: Path | str, store: str = "float32") -> None:
        """Write the classifier to a folder, as JSON and safetensors; `circlet predict` reads it too.

        `store` is float32, bf16 or int8: what weights are rounded to.
        """
        check_is_fitted(self)
        _estimator_folder.save(self, Path(folder), store)

    @classmethod
    def load(
        cls, folder: Path | str, *, device: str | None = None, encoder: torch.nn.Module | None = None
    ) -> CircletClassifier:
        """Read a classifier from a folder that `save` or `circlet train` wrote.

        Parameters
        ----------
        folder : Path or str
        device : str, optional
            In place of the one that it had.
        encoder : torch.nn.Module, optional
            One like that it was fitted with, if it had one of its own; the weights are read into a copy.

        Raises
        ------
        DataError
            If the folder is damaged, or not a model's.
        """
        given = {} if device is None else {"device": device}
        parameters, model, targets, names = _estimator_folder.load(
            Path(folder), cls._get_param_names(), given, copy.deepcopy(encoder)
        )
        loaded = cls(**{**parameters, "encoder": encoder})
        try:
            loaded._network(), loaded._training(), loaded._cut()
        except (TypeError, ValueError) as error:
            raise DataError(f"{Path(folder) / _estimator_folder.NAME}: {error}") from error
        if not model.vectorizer:
            loaded.n_features_in_ = model.n_features
        if names is not None:
            loaded.feature_names_in_ = np.array(names, dtype=object)
        return loaded._take(model, targets)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags

    # Fitting

    def _fit(self, X: Any, y: Any, classes: Any) -> CircletClassifier:
        network, training, place = self._network(), self._training(), resolve_device(self.device)
        words = {name: getattr(self, name) for name in ("word_ngrams", "char_ngrams", "min_df", "max_features")}
        vectorizer = TextVectorizer(**words)
        self._cut()
        if self.encoder is not None and not isinstance(self.encoder, torch.nn.Module):
            raise ParameterError(f"`encoder` must be a torch.nn.Module, got {type(self.encoder).__name__}")
        if y is None:
            raise DataError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        documents = self._documents(X, first=True)
        targets = Targets.of(y, classes)
        Y = targets.encode(y)
        _check_rows(documents, Y)
        texts = isinstance(documents, list)
        split = Split(None, Y, documents) if texts else Split(documents, Y)
        learned, judged = self._held_out(split, network.seed)
        model = fit_model(
            learned,
            network=network,
            training=training,
            label_names=targets.names(),
            scaling=self.scaling,
            vectorizer=vectorizer if texts else None,
            validation=judged,
            encoder=copy.deepcopy(self.encoder),
            device=place,
            reporter=_Log(training.epochs, self.verbose),
        )
        return self._take(model, targets)

    def _take(self, model: Any, targets: Targets) -> CircletClassifier:
        self.model_, self._targets, self.classes_, self.history_ = model, targets, targets.classes, model.history
        return self

    def _grow(self, targets: Targets) -> None:
        """Take in the labels that these targets have beyond the present ones."""
        if len(targets.classes) > len(self.classes_):
            self.model_.network.grow(len(targets.classes))
            self.model_.label_names = targets.names()
            self._take(self.model_, targets)

    def _network(self) -> NetworkSettings:
        seed = self.random_state
        if not isinstance(seed, (int, np.integer)):
            seed = check_random_state(seed).randint(2**31 - 1)
        if seed < 0:
            raise ParameterError(f"`random_state` must be at least 0, got {seed}")
        names = ("head", "dim", "hidden", "codebook", "slots", "loss", "dropout")
        return NetworkSettings(**{name: getattr(self, name) for name in names}, seed=int(seed))

    def _training(self) -> TrainingSettings:
        return TrainingSettings(**{name: getattr(self, name) for name in TrainingSettings.__dataclass_fields__})

    def _held_out(self, split: Split, seed: int) -> tuple[Split, Split | None]:
        size = self.validation
        if not _is_number(size) or not size >= 0:
            raise ParameterError(f"`validation` must be a share below 1 or a number of rows, got {size!r}")
        if not size or split.n < FEWEST_TO_SPLIT or (size < 1 and round(size * split.n) < 1):
            return split, None
        return Dataset("X and y", split).validation_split(size, seed)

    # Documents

    def _documents(self, X: Any, *, first: bool = False) -> Any:
        """A list of texts, or float32 rows, checked to be like those of the first fit."""
        texts = as_texts(X)
        if first and texts is not None:
            for name in ("n_features_in_", "feature_names_in_"):  # of a fit before
                self.__dict__.pop(name, None)
        elif not first and texts is None and self.model_.vectorizer is not None:
            if getattr(X, "shape", (len(X),) if isinstance(X, (list, tuple)) else None) != (0,):
                raise DataError(
                    "found feature rows; this classifier was fitted on texts and wants a list of texts"
                )
            texts = []
        if texts is None:
            return as_rows(self, X, first=first)
        if not first and self.model_.vectorizer is None:
            raise DataError("found texts; this classifier was fitted on feature rows and wants rows")
        return texts

    # Scores

    def _score_blocks(self, documents: Any) -> Iterator[npt.NDArray[np.float32]]:
        """Scores of all labels, `(some rows, n_labels)` at a time; there is at least one block."""
        model, rows = self.model_, self.model_.rows(documents)
        network = model.network.eval()
        size = min(1024, max(1, MEMORY // (12 * model.n_labels)))
        if not rows.shape[0]:
            yield np.zeros((0, model.n_labels), dtype=np.float32)
        for start in range(0, rows.shape[0], size):
            with torch.no_grad():
                output = network(as_batch(rows[start : start + size]).to(model.device))
                scores: npt.NDArray[np.float32] = network.loss.logits(output.float()).cpu().numpy()
            yield scores

    def _all_scores(self, X: Any) -> npt.NDArray[np.float32]:
        check_is_fitted(self)
        documents = self._documents(X)
        scores, start = np.empty((count(documents), len(self.classes_)), dtype=np.float32), 0
        for block in self._score_blocks(documents):
            scores[start : start + len(block)] = block
            start += len(block)
        return scores

    def _shares(self, scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Probabilities of classes of which one is true: in proportion to the odds of each by itself."""
        slope, _ = self.model_.calibration
        shares: npt.NDArray[np.float32] = softmax(slope * scores.astype(np.float64), axis=1).astype(np.float32)
        return shares

    def _allowed(self, labels: Collection[Any]) -> npt.NDArray[np.bool_]:
        """Which classes are among these labels, `(n_labels,)`."""
        if isinstance(labels, str) or not isinstance(labels, (Collection, np.ndarray)):
            raise ParameterError(f"`allowed` must be a collection of labels, got {labels!r}")
        given, classes = set(labels), self.classes_.tolist()
        unknown = given.difference(classes)
        if unknown:
            raise ParameterError(f"`allowed` has {unknown.pop()!r}, which is none of the {len(classes)} labels")
        return np.fromiter((label in given for label in classes), dtype=np.bool_, count=len(classes))

    def _cut(self) -> float:
        """The score that `threshold` is the probability of."""
        share = self.threshold
        if self.top_k is not None and (not isinstance(self.top_k, (int, np.integer)) or self.top_k < 1):
            raise ParameterError(f"`top_k` must be None or a whole number >= 1, got {self.top_k!r}")
        if not _is_number(share) or not 0 <= share <= 1:
            raise ParameterError(f"`threshold` must be between 0 and 1, got {share!r}")
        slope, intercept = self.model_.calibration if hasattr(self, "model_") else (1.0, 0.0)
        return float((logit(float(share)) - intercept) / slope)


class _Log(Reporter):
    """A line of the log per epoch."""

    def __init__(self, epochs: int, verbose: bool) -> None:
        self.epochs, self.level = epochs, logging.INFO if verbose else logging.DEBUG

    def record(self, record: dict[str, Any]) -> None:
        """An epoch has ended, with these numbers."""
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in record.items() if name != "epoch")
        logger.log(self.level, "epoch %d of %d: %s", record["epoch"], self.epochs, numbers)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _check_rows(documents: Any, Y: sp.csr_matrix) -> None:
    if count(documents) != Y.shape[0]:
        raise DataError(f"found {count(documents)} rows in X and {Y.shape[0]} in y; wanted the same number")


def _best(
    shares: npt.NDArray[np.float32], k: int, allowed: npt.NDArray[np.bool_] | None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    if allowed is not None:
        shares = np.where(allowed, shares, np.float32(-1))
    ids = np.argsort(-shares, axis=1, kind="stable")[:, :k]
    best = np.take_along_axis(shares, ids, axis=1)
    return np.where(best < 0, -1, ids), best
