"""`CircletClassifier`: a model as a scikit-learn estimator, for texts or feature rows with many labels."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from circlet.checks import is_integer
from circlet.data.dataset import Split, as_csr, names_by_uri
from circlet.encoders import FEATURES, TextEncoder, register
from circlet.errors import DataError, DTypeError, ParameterError
from circlet.estimator.targets import Targets, renamed
from circlet.model import Model
from circlet.model.model import write
from circlet.model.session import begin, fit_further, further_settings
from circlet.runtime import Tagger
from circlet.runtime.documents import as_texts, count
from circlet.settings import EFFORTS, Decision, RunSettings
from circlet.storage.contents import ESTIMATOR_FORMAT, classes_of, metrics_of, read
from circlet.storage.layout import ESTIMATOR, located
from circlet.storage.model import explained
from circlet.training import Reporter, resolve_device
from circlet.version import __version__

Auto = Literal["auto"]
logger = logging.getLogger("circlet.estimator")


class CircletClassifier(Tagger, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Tags documents with labels from vocabularies of up to millions.

    A document's labels are predicted as one vector, the superposition of the labels' codes. The size of the output
    layer does not depend on the number of labels.

    What is "auto" is decided from the data when the classifier is fitted: by rules, and the optimizer of the first
    layer by a short trial on held-out rows. ``model_.training["decided"]`` says what was decided, and why.

    Parameters
    ----------
    preset : {"default", "fast", "accurate"}
        How much is spent where a parameter is "auto".
    head : {"chrr-amplitude", "chrr", "chrr-half", "chrr-sin", "chrr-tanh", "hrr", "fc"}
        Output layer. fc is the usual layer with an output per label, and has no codes. See
        `circlet.scoring.heads`.
    dim : int or "auto", default="auto"
        Dimension of the labels' codes. By default decided from the data.
    hidden : tuple of int or "auto", default="auto"
        Widths of the hidden layers. By default decided from the data.
    codebook : {"auto", "spectral", "independent", "four-phase", "two-phase", "holographic"}
        Source of the labels' codes. auto is spectral for circular codes, and holographic for real ones.
    slots : int or None, default=None
        Maximum labels of a spectral codebook; by default 5% more than there are.
    loss : {"bce", "cosine", "absolute-cosine", "mean-bce", "softmax"}
        Loss; cosine is the paper's. With absolute-cosine, labels are ranked by the absolute value of their
        similarity. See `circlet.network.losses`.
    activation : {"relu", "leaky-relu"}
        Activation of the hidden layers.
    initial : {"he", "torch"}
        Initial weights. he is He's rule for ReLU; torch is the default of torch's layers.
    dropout : float or "auto", default="auto"
        Share of hidden units dropped in training. By default decided from the data.
    epochs : int or "auto", default="auto"
        Passes over the documents. By default decided from the data.
    batch_size : int or "auto", default="auto"
        Documents per training step. By default decided from the data.
    optimizer : {"adamw", "adam", "adadelta", "sgd"}
        Optimizer of the weights. sgd has momentum 0.9.
    first_layer : {"auto", "sgd", "same"}
        Optimizer of the weights that multiply features. sgd is plain SGD, without momentum and weight decay; same
        is the optimizer of the other weights. Adam divides a weight's step by the history of its gradient, so the
        weights of a word that occurs twice move as far as those of a word that occurs ten thousand times, and rare
        words are memorized. With SGD, a word counts as much as it occurs. In documents of only a few words, rare
        words are all there is, and Adam is better. Where no rule decides, a short trial on held-out rows does. By
        default decided from the data.
    lr : float or "auto", default="auto"
        Peak learning rate. By default decided from the data.
    schedule : {"one-cycle", "constant", "step"}
        Schedule of the learning rate. one-cycle rises for 30% of the steps, then falls to almost 0; step
        multiplies the rate by 0.7 after every epoch.
    weight_decay : float, default=0.0
        How strongly weights are pulled towards 0.
    precision : {"auto", "float32"}
        Precision of the layers. auto is bfloat16 where the device multiplies it faster.
    input_dropout : float, default=0.0
        Share of a document's features dropped in training.
    scaling : {"auto", "none", "l2", "sqrt", "tfidf", "standard"}
        Scaling of feature rows. Texts are always weighted by tf-idf. See `circlet.features.SCALINGS`. By default
        decided from the data.
    word_ngrams : (int, int) or None, default=(1, 1)
        Lengths of the shortest and longest runs of words that are features of texts. None for no words.
    char_ngrams : (int, int), "auto" or None, default="auto"
        Lengths of runs of characters to use as well, such as 3,5; or none. None uses words only. By default
        decided from the data.
    min_df : int, float or "auto", default="auto"
        Leave out words in fewer texts than this. From 0 to 1, a float is a share of the texts. By default decided
        from the data.
    max_features : int, "auto" or None, default="auto"
        Keep only this many words, the most frequent ones. None keeps all. By default decided from the data.
    validation : float, int or "auto", default="auto"
        Share or number of rows to hold out at first, to decide and to calibrate. They also choose the best epoch,
        unless `join` is true. 0 holds out none, and so do fewer than 20 rows. By default decided from the data.
    members : int, default=1
        Number of networks to train and to average. They are used as one model, and differ only in the seed.
    metric : str, default="nDCG@5"
        Metric on held-out rows that chooses the best epoch, or loss. P@1, nDCG@5, ..., or loss for the lowest
        loss.
    patience : int or None, default=None
        Stop after this many epochs without a better metric. None never stops early. Unless `join` is true, the
        weights of the best epoch are kept in either case.
    join : bool, default=True
        Train on the held-out rows, too, in the end. A short further epoch, at a low rate, has these rows and as
        many others, so that the model has learned from every row. The weights of the last epoch are then kept,
        whatever the metric says. Otherwise held-out rows are never trained on, nor are they with the loss softmax.
    remember : int, default=2000
        Training rows to keep with the model, for updates by feedback. Without them, an update would forget what
        was learned before.
    threshold : float or "auto", default="auto"
        `predict` returns the labels that are at least this probable. "auto" is what was best for `threshold_for`
        on held-out rows, or 0.5 if none were held out.
    threshold_for : str, default="f1"
        Goal of the stored threshold: f1, precision=0.9, recall=0.8, … Over all decisions on held-out rows
        together: the highest F1, or as many labels as possible of this precision, or as few as possible of this
        recall.
    top_k : int or None, default=None
        `predict` returns this many labels, the most probable, whatever the threshold.
    keep_index : bool, default=False
        Keep what is predicted for every document of `fit`, a byte per number, so that `similar` can find them.
    encoder : str, TextEncoder, torch.nn.Module or None, default="features"
        What the hidden layers take: features, which is also what None means, or the vectors that an encoder makes
        of texts, given by its name or as an object; see `circlet.encoders`. A module maps a batch of feature rows
        to `(batch, hidden[-1])`, and replaces the hidden layers; each member trains a copy of it.
    bag_of_words : bool, default=False
        Add the weighted words of texts to an encoder's vectors of them.
    embedding : int or None, default=None
        Length of a word's vector, for encoders that learn them; by default 256.
    max_words : int or None, default=None
        Words of a text that an encoder reads; by default 256.
    device : str, default="auto"
        "auto" is a GPU if there is one.
    random_state : int, RandomState, Generator or None, default=0
        All randomness follows from it. On a CPU, the same int gives the same weights.
    verbose : bool, default=False
        Log each epoch at level INFO instead of DEBUG (logger `circlet.estimator`).

    Attributes
    ----------
    classes_ : ndarray of shape (n_labels,)
        The labels: names, or column numbers of an indicator. They are sorted, except that labels added by
        `partial_fit` come last.
    model_ : circlet.model.model.Model
    history_ : list of dict
        A record per epoch.
    n_features_in_ : int
        Number of features; not set for texts.
    feature_names_in_ : ndarray of str
        Set if X was a data frame whose columns have names.

    Notes
    -----
    `GridSearchCV` and `cross_val_score` take texts or rows. With lists of labels, pass a splitter, such as
    ``cv=KFold(5)``: scikit-learn's default choice of a splitter rejects lists of lists. With `scoring=`, pass an
    indicator, such as that of `sklearn.preprocessing.MultiLabelBinarizer`.

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
        preset: str = "default",
        head: str = "chrr-amplitude",
        dim: int | Auto = "auto",
        hidden: tuple[int, ...] | Auto = "auto",
        codebook: str = "auto",
        slots: int | None = None,
        loss: str = "bce",
        activation: str = "relu",
        initial: str = "he",
        dropout: float | Auto = "auto",
        epochs: int | Auto = "auto",
        batch_size: int | Auto = "auto",
        optimizer: str = "adamw",
        first_layer: str = "auto",
        lr: float | Auto = "auto",
        schedule: str = "one-cycle",
        weight_decay: float = 0.0,
        precision: str = "auto",
        input_dropout: float = 0.0,
        scaling: str = "auto",
        word_ngrams: tuple[int, int] | None = (1, 1),
        char_ngrams: tuple[int, int] | Auto | None = "auto",
        min_df: int | float | Auto = "auto",
        max_features: int | Auto | None = "auto",
        validation: float | Auto = "auto",
        members: int = 1,
        metric: str = "nDCG@5",
        patience: int | None = None,
        join: bool = True,
        remember: int = 2000,
        threshold: float | Auto = "auto",
        threshold_for: str = "f1",
        top_k: int | None = None,
        keep_index: bool = False,
        encoder: str | TextEncoder | torch.nn.Module | None = "features",
        bag_of_words: bool = False,
        embedding: int | None = None,
        max_words: int | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | np.random.Generator | None = 0,
        verbose: bool = False,
    ) -> None:
        self.preset = preset
        self.head, self.dim, self.hidden, self.codebook, self.slots = head, dim, hidden, codebook, slots
        self.loss, self.dropout, self.epochs, self.batch_size = loss, dropout, epochs, batch_size
        self.optimizer, self.lr, self.schedule, self.weight_decay = optimizer, lr, schedule, weight_decay
        self.first_layer, self.join, self.remember = first_layer, join, remember
        self.activation, self.initial, self.precision = activation, initial, precision
        self.input_dropout, self.scaling, self.word_ngrams = input_dropout, scaling, word_ngrams
        self.char_ngrams, self.min_df, self.max_features = char_ngrams, min_df, max_features
        self.validation, self.metric, self.patience, self.threshold = validation, metric, patience, threshold
        self.members, self.threshold_for, self.top_k = members, threshold_for, top_k
        self.keep_index = keep_index
        self.encoder, self.bag_of_words = encoder, bag_of_words
        self.embedding, self.max_words = embedding, max_words
        self.device, self.random_state, self.verbose = device, random_state, verbose

    def fit(self, X: Any, y: Any) -> CircletClassifier:
        """Fit the classifier to documents and their labels, and return it.

        Parameters
        ----------
        X : list of str, or sparse matrix, array or data frame of shape (n, n_features)
            Texts, or a row of features for each document.
        y : indicator of shape (n, n_labels), list of label lists, or array of shape (n,)
            A sparse or dense matrix of zeros and ones; or lists of names, str or int; or one class per row.
        """
        return self._fit(X, y, None)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> CircletClassifier:
        """Train further on more documents; the first call is a `fit`.

        New labels get the next free codes: no weight changes its shape, and the scores of the old labels stay the
        same until this training changes them. The features, including the words of texts, and the calibration of
        probabilities stay those of the first call. Training takes 5 epochs at up to half of the first rate. The
        classifier slowly forgets what the new documents do not show, so mix in some old ones.

        Parameters
        ----------
        X : list of str, or sparse matrix, array or data frame of shape (n, n_features)
            As for `fit`.
        y : indicator of shape (n, n_labels), list of label lists, or array of shape (n,)
            As for `fit`. In an indicator, new labels are additional columns. Lists may have the names of labels or
            their URIs; a new label is its own URI.
        classes : list, optional
            Labels that may come later. Only head `fc` needs them, in the first call.
        """
        if not hasattr(self, "model_"):
            return self._fit(X, y, classes)
        documents = self._documents(X)
        names = names_by_uri(self.model_.label_names, self.model_.label_uris)
        y, classes = renamed(y, names), None if classes is None else renamed([classes], names)[0]
        targets = self._targets.extended(y, classes)
        Y = targets.encode(y)
        _check_rows(documents, Y)
        if len(targets.classes) > len(self.classes_):
            self.model_.ranker.grow(len(targets.classes))
            new = targets.names() or []
            if self.model_.label_uris is not None:  # a new label is its own URI
                self.model_.label_uris += new[len(self.model_.label_uris) :]
            self.model_.label_names = targets.names()
        self._take(self.model_, targets)  # the copy without torch no longer equals the model
        settings = further_settings(self.model_)
        fit_further(self.model_, documents, Y, settings, reporter=Log(self.verbose))
        return self

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the fraction of documents whose best label is right (P@1); with one class per row, the accuracy.

        Labels that the classifier does not know count as missed.
        """
        self._check_ready()
        documents = self._documents(X)
        Y = self._targets.encode(y)
        _check_rows(documents, Y)
        labels = self._best_labels(documents)
        right = np.asarray(Y[np.arange(len(labels)), labels]).ravel()
        return float(np.average(right, weights=sample_weight))

    def save(self, folder: Path | str, store: str = "float32") -> None:
        """Write the classifier to a folder, as JSON and safetensors; `circlet predict` can read it too.

        The folder is a model's, with `estimator.json` for the estimator's own state. `store` is the type that
        weights are stored in: float32, bf16, int8 or int4.
        """
        check_is_fitted(self)
        parameters, targets = self.get_params(deep=False), self._targets
        if isinstance(self.random_state, (np.random.RandomState, np.random.Generator)):
            parameters["random_state"] = self.model_.network.settings.seed
        if isinstance(parameters["encoder"], TextEncoder):
            parameters["encoder"] = parameters["encoder"].name
        custom = parameters["encoder"] if isinstance(parameters["encoder"], torch.nn.Module) else None
        plain = {name: _plain(value) for name, value in parameters.items() if name != "encoder" or custom is None}
        classes = None
        if targets.kind != "indicator":
            dtype, text = targets.classes.dtype, targets.classes.dtype.kind in "OU"
            classes = {
                "dtype": "str" if dtype.kind == "U" else dtype.name,
                "values": None if text else targets.classes.tolist(),  # labels that are text are in labels.txt
            }
        state = {
            "format": ESTIMATOR_FORMAT,
            "circlet": __version__,
            "parameters": {"encoder": None, **plain},
            "encoder": None if custom is None else type(custom).__name__,
            "target": targets.kind,
            "classes": classes,
            "feature_names": self._columns,
        }
        write(Path(folder), replace(self.model_.contents(), estimator=state), store)

    @classmethod
    def load(
        cls, folder: Path | str, *, device: str | None = None, encoder: torch.nn.Module | None = None
    ) -> CircletClassifier:
        """Read a classifier from a folder that `save` or `circlet train` wrote.

        Raises `DataError` if the folder is damaged, or is not a model's.

        Parameters
        ----------
        folder : Path or str
        device : str, optional
            Replaces the saved device.
        encoder : torch.nn.Module, optional
            A module like the custom encoder in `fit`; the weights are loaded into a copy.
        """
        folder, given = Path(folder), {} if device is None else {"device": device}
        with explained(folder):
            saved = read(folder, whole=True, estimator=True)
        state, path = saved.estimator, located(folder, saved.config, ESTIMATOR)
        parameters: dict[str, Any] = given
        if state is not None:
            parameters = _saved_parameters(path, state, cls().get_params(deep=False)) | given
            if state["encoder"] is not None and encoder is None:
                raise ParameterError(
                    f"{folder}: this classifier was fitted with a custom encoder, a {state['encoder']}: "
                    "load(folder, encoder=...) with one like it"
                )
        try:
            place = resolve_device(parameters.get("device", "auto"))
        except ParameterError as error:
            if device is not None:
                raise
            raise DataError(f"{path}: {error}; to use another one, load(folder, device=...)") from error
        with explained(folder):
            model = Model.restore(folder, saved, device=place, encoder=copy.deepcopy(encoder))
        if state is not None:
            classes = classes_of(path, state, model.n_features, model.n_labels, model.label_names)
            targets = Targets(state["target"], classes)
        else:
            known, parameters = model.label_names, _parameters_of(model) | given
            targets = Targets("indicator", np.arange(model.n_labels))
            if known is not None:
                targets = Targets("named", np.array(known, dtype=object))
        loaded = cls(**(parameters if encoder is None else {**parameters, "encoder": encoder}))
        try:
            loaded._settings()
            loaded._check_parameters()
        except (TypeError, ValueError) as error:
            raise DataError(f"{folder / ESTIMATOR}: {error}") from error
        if not model.vectorizer:
            loaded.n_features_in_ = model.n_features
        if state is not None and state["feature_names"] is not None:
            loaded.feature_names_in_ = np.array(state["feature_names"], dtype=object)
        return loaded._take(model, targets)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags

    def _fit(self, X: Any, y: Any, classes: Any) -> CircletClassifier:
        settings, place = self._settings(), resolve_device(self.device)
        self._check_parameters()
        text_encoder = settings.network.text_encoder
        custom = isinstance(self.encoder, torch.nn.Module) or (text_encoder is not None and text_encoder.learns)
        if not isinstance(self.keep_index, bool) or (self.keep_index and custom):
            wanted = "False with an encoder that only torch can run" if custom else "True or False"
            raise ParameterError(f"`keep_index`: found {self.keep_index!r}; wanted {wanted}")
        if y is None:
            raise DataError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        documents: Any = as_texts(X)
        if documents is None:
            documents = _rows(self, X, first=True)
        else:
            for name in ("n_features_in_", "feature_names_in_"):  # of an earlier fit
                self.__dict__.pop(name, None)
        targets = Targets.of(y, classes)
        Y = targets.encode(y)
        _check_rows(documents, Y)
        split = Split(None, Y, documents) if isinstance(documents, list) else Split(documents, Y)
        model = begin(
            split,
            settings,
            label_names=targets.names(),
            encoder=None if isinstance(self.encoder, str) else copy.deepcopy(self.encoder),
            keep_index=self.keep_index,
            device=place,
            reporter=Log(self.verbose),
        )
        return self._take(model, targets)

    def _take(self, model: Model, targets: Targets) -> CircletClassifier:
        self.model_, self._targets, self.classes_, self.history_ = model, targets, targets.classes, model.history
        # A list, because scikit-learn wants the attributes of an estimator unchanged by `predict`.
        self._copies: list[Any] = []
        return self

    def _settings(self) -> RunSettings:
        if not (isinstance(self.preset, str) and self.preset in EFFORTS):
            raise ParameterError(f"`preset`: found {self.preset!r}; wanted one of {', '.join(EFFORTS)}")
        given = {name: getattr(self, name) for name in RunSettings.names()}
        if self.encoder is None or isinstance(self.encoder, torch.nn.Module):
            given["encoder"] = FEATURES
        elif isinstance(self.encoder, TextEncoder):
            given["encoder"] = register(type(self.encoder)).name
        return RunSettings.of(given, seed=_seed_of(self.random_state), preset=self.preset)

    # Overrides of `Tagger`

    @property
    def _model(self) -> Any:
        """The fitted model without torch, unless only torch can run it, made when first needed.

        Models of dense rows use torch: its products give a row the same digits anywhere in a batch, as
        scikit-learn's checks require; NumPy's do not.
        """
        if not self._copies:
            fitted = self.model_
            stays = fitted.only_torch or not fitted.sparse or fitted.device.type != "cpu"
            self._copies.append(fitted if stays else fitted.as_runtime())
        return self._copies[0]

    def __getstate__(self) -> dict[str, Any]:
        """Leave the model without torch out of copies and pickles."""
        state: dict[str, Any] = super().__getstate__()
        return {**state, "_copies": []} if "_copies" in state else state

    @property
    def _single(self) -> bool:
        return self._targets.single

    @property
    def _columns(self) -> list[str] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else [str(name) for name in names]

    def _check_ready(self) -> None:
        check_is_fitted(self)

    def _rows(self, X: Any) -> Any:
        return _rows(self, X, first=False)


class Log(Reporter):
    """Logs each epoch, at level INFO if `verbose`, else DEBUG."""

    def __init__(self, verbose: bool) -> None:
        self.epochs, self.level = 0, logging.INFO if verbose else logging.DEBUG

    def decided(self, decisions: Sequence[Decision]) -> None:
        for each in decisions:
            logger.log(self.level, "%s: %s, %s", each.name, each.shown, each.why)

    def plan(self, epochs: int, members: int) -> None:
        self.epochs = epochs

    def record(self, record: dict[str, Any]) -> None:
        shown = {name: record[name] for name in ("loss", "lr", "seconds", "documents_per_second")}
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in (shown | metrics_of(record)).items())
        member = f"member {record['member']}, " if "member" in record else ""
        logger.log(self.level, "%sepoch %d of %d: %s", member, record["epoch"], self.epochs, numbers)


def _rows(estimator: Any, X: Any, *, first: bool) -> Any:
    """Check rows as scikit-learn does, and return them as finite float32, CSR or dense.

    Unless `first`, the number of features must be that of the first fit.
    """
    options = {"accept_sparse": "csr", "dtype": np.float32, "reset": first}
    if sp.issparse(X):
        X = as_csr(X, "X")
    try:
        with np.errstate(over="ignore"):  # values that are too large become infinite, and are rejected
            rows = validate_data(estimator, X, **options)
    except (TypeError, ValueError, OverflowError) as error:  # the last: an integer too large for any float
        # After the first sentence, scikit-learn recommends other estimators.
        sentence = str(error).split("\n", 1)[0]
        kind = DTypeError if isinstance(error, TypeError) else DataError
        raise kind(sentence if sentence.endswith(".") else str(error)) from error
    if not sp.issparse(rows):
        return rows if rows.flags.writeable else rows.copy()  # torch shares memory only with writable arrays
    rows = sp.csr_matrix(rows)
    if not rows.has_canonical_format:
        rows = rows.copy()  # the caller's matrix stays as it is
        rows.sum_duplicates()
    return rows


def _check_rows(documents: Any, Y: sp.csr_matrix) -> None:
    """Raise `DataError` unless there are as many documents as targets."""
    if count(documents) != Y.shape[0]:
        raise DataError(f"found {count(documents)} rows in X and {Y.shape[0]} in y; wanted the same number")


def _seed_of(random_state: Any) -> int:
    """Return the int itself, or draw one from a RandomState, a Generator or, for None, NumPy's global state."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    if not is_integer(random_state):
        try:
            return int(check_random_state(random_state).randint(2**31 - 1))
        except ValueError as error:
            raise ParameterError(
                f"`random_state`: found {random_state!r}; wanted an int, a RandomState, a Generator or None"
            ) from error
    if random_state < 0:
        raise ParameterError(f"`random_state`: found {random_state}; wanted at least 0")
    return int(random_state)


def _saved_parameters(path: Path, state: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters in the state of a classifier."""
    # Older versions had fewer parameters; those added since have their defaults.
    if not set(state["parameters"]) <= set(defaults):
        found = sorted(state["parameters"])
        raise DataError(f"{path}: found the parameters {found}; wanted some of {sorted(defaults)}")
    lists = ("hidden", "word_ngrams", "char_ngrams")
    return {
        name: tuple(value) if name in lists and isinstance(value, list) else value
        for name, value in {**defaults, **state["parameters"]}.items()
    }


def _parameters_of(model: Model) -> dict[str, Any]:
    """Return the parameters stored in the model itself."""
    words = {} if model.vectorizer is None else model.vectorizer.parameters()
    known = {**model.network.settings.as_dict(), **model.training, **words, "members": len(model.networks)}
    return {
        **{name: known[name] for name in RunSettings.names() if name in known},
        "hidden": tuple(model.network.settings.hidden),
        "scaling": model.scaling.kind,
        "random_state": model.network.settings.seed,
        "keep_index": model.index is not None,
    }


def _plain(value: Any) -> Any:
    """Convert a parameter for JSON."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
