"""The backend `circlet` of Annif: train, learn, suggest, and search for hyperparameters.

The model's labels are the URIs of subjects, since Annif's ids belong to one vocabulary on one machine. circlet
makes features of the documents' text. If the project has an analyzer, the text consists of the analyzer's words.

Suggestions come from circlet's runtime, which needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import annif.eval
import annif.util
import numpy as np
import numpy.typing as npt
import optuna
from annif.backend import backend, hyperopt
from annif.exception import (
    ConfigurationException,
    NotInitializedException,
    NotSupportedException,
    OperationFailedException,
)
from annif.suggestion import SuggestionBatch
from scipy.sparse import csr_array

from circlet.annif.parameters import DEFAULTS, number, settings_of
from circlet.checks import require
from circlet.data.records import Record, iter_records, write_records
from circlet.encoders import features_of
from circlet.errors import CircletError, ParameterError
from circlet.features.rows import Entries
from circlet.runtime import Tagger, load
from circlet.settings import RunSettings
from circlet.storage.layout import CONFIG
from circlet.storage.publish import folder_lock
from circlet.storage.tensors import check_store


class _Loaded(NamedTuple):
    """A model, the time its folder was written, and the id of each label's subject, or −1."""

    written: tuple[int, int]
    tagger: Tagger
    subjects: npt.NDArray[np.int64]


class CircletBackend(hyperopt.AnnifHyperoptBackend, backend.AnnifLearningBackend):  # type: ignore[misc]
    """circlet as an Annif backend; `circlet.annif.parameters` has its parameters."""

    name = "circlet"

    DEFAULT_PARAMETERS = DEFAULTS

    # default for uninitialized instances
    _loaded: _Loaded | None = None

    @property
    def model_folder(self) -> Path:
        """The model's folder."""
        return Path(self.datadir) / "circlet-model"

    @property
    def train_file(self) -> Path:
        """The file of all documents that the model has learned from. Annif takes no `*-train*` for a model."""
        return Path(self.datadir) / "circlet-train.jsonl.gz"

    def initialize(self, parallel: bool = False) -> None:
        """Load the model if none is loaded, or if another process has trained it since.

        Loading before a fork is safe, and saves memory: the weights are mapped, and no thread outlives a call.
        """
        try:
            found = (self.model_folder / CONFIG).stat()
        except FileNotFoundError:
            raise NotInitializedException(
                f"model {self.model_folder} not found", backend_id=self.backend_id
            ) from None
        written = found.st_mtime_ns, found.st_ino
        if self._loaded is None or self._loaded.written != written:
            self.debug(f"loading model from {self.model_folder}")
            with self._explained():
                tagger = load(self.model_folder)
            self._loaded = _Loaded(written, tagger, self.subject_ids(tagger.model_.label_names or []))

    def get_hp_optimizer(self, corpus: Any, metric: str) -> CircletOptimizer:
        return CircletOptimizer(self, corpus, metric)

    def settings(self, params: dict[str, Any]) -> RunSettings:
        """Return the settings of a training with these parameters."""
        with self._explained():
            return settings_of(params)

    def subject_ids(self, uris: list[str]) -> npt.NDArray[np.int64]:
        """Return the ids of subjects; −1 if the vocabulary has lost one, or the project excludes it."""
        found = (self.project.subjects.by_uri(uri, warnings=False) for uri in uris)
        return np.array([-1 if subject is None else subject for subject in found], dtype=np.int64)

    def batch(
        self, tagger: Tagger, subjects: npt.NDArray[np.int64], texts: list[str], params: Any
    ) -> SuggestionBatch:
        """Return a tagger's suggestions for texts, without a threshold: Annif applies the requested one.

        Scores are probabilities. Annif ranks by scores, so if rare subjects are favored, each probability is
        multiplied by the subject's weight, of at most 1.
        """
        with self._explained():
            limit, favor_rare = number(params, "limit"), number(params, "favor_rare", float)
            allowed = subjects >= 0
            ids, chances = tagger.ranked(
                texts, limit, allowed=None if allowed.all() else allowed, favor_rare=favor_rare
            )
            if (gain := tagger.model_.gain(favor_rare)) is not None:
                weights = np.asarray(gain.weights)
                chances *= (weights / weights.max())[ids]
        entries = features_of(tagger.model_.vectorizer.entries(texts))
        # A text without a known word would get frequent subjects.
        known = np.diff(entries.starts) > 0 if isinstance(entries, Entries) else np.full(len(texts), True)
        shown = (ids >= 0) & (chances > 0) & known[:, None]
        rows = np.nonzero(shown)[0]
        shape = (len(texts), len(self.project.subjects))
        return SuggestionBatch(
            csr_array((chances[shown], (rows, subjects[ids[shown]])), shape=shape, dtype=np.float32)
        )

    def text(self, document: Any) -> str:
        """Return the text that the model sees."""
        if not self.project.analyzer_spec:
            return str(document.text)
        return " ".join(self.project.analyzer.tokenize_words(document.text))

    def _suggest_batch(self, documents: list[Any], params: dict[str, Any]) -> SuggestionBatch:
        assert self._loaded is not None  # `suggest` has initialized it
        _, tagger, subjects = self._loaded
        return self.batch(tagger, subjects, [self.text(document) for document in documents], params)

    def _train(self, corpus: Any, params: dict[str, Any], jobs: int = 0) -> None:
        settings, store = self.settings(params), self._store(params)
        # Only one process may train at a time, or the work of another would be lost.
        with self._explained(), folder_lock(self.model_folder, patience=0):
            check_store(store)
            self._need_torch(jobs)
            from circlet.annif.training import fitted

            if corpus != "cached":
                self.info("creating train file")
                write_records(self.train_file, self._records(corpus), "jsonl")
            elif self.train_file.exists():
                self.info("reusing cached training data from previous run")
            else:
                raise NotInitializedException(
                    f"train data file {self.train_file} not found", backend_id=self.backend_id
                )
            # Every subject that is learned later needs a free slot.
            room = len(self.project.subjects) if self._learns else 0
            model = fitted(self.train_file, settings, str(params["device"]), self.info, room)
            model.save(self.model_folder, store)

    def _learn(self, corpus: Any, params: dict[str, Any]) -> None:
        self.initialize()
        with self._explained(), folder_lock(self.model_folder):
            self._need_torch()
            from circlet.annif.training import learn

            new = list(self._records(corpus))
            epochs, device = number(params, "learn-epochs"), str(params["device"])
            learn(self.model_folder, new, epochs=epochs, device=device, say=self.info)
            # So that `train --cached` also learns the new documents.
            known = iter_records(self.train_file, "jsonl") if self.train_file.exists() else iter(())
            write_records(self.train_file, chain(known, new), "jsonl")

    def _records(self, corpus: Any) -> Iterator[Record]:
        """Return the documents that have text and subjects, with URIs as labels; raise an error if none has."""

        def records() -> Iterator[Record]:
            for line, document in enumerate(corpus.documents, 1):
                uris = tuple(self.project.subjects[subject].uri for subject in document.subject_set)
                text = self.text(document)
                if uris and text.strip():
                    yield Record(line, text, uris)

        found = records()
        first = next(found, None)
        if first is None:
            raise NotSupportedException("found no documents with text and subjects", backend_id=self.backend_id)
        return chain([first], found)

    @property
    def _learns(self) -> bool:
        return bool(annif.util.boolean(self.params.get("allow_learn", False)))

    def _store(self, params: dict[str, Any]) -> str:
        """Return how to store weights: small, unless small steps follow, which rounding would undo."""
        store = str(params["store"])
        return store if store != "auto" else "float32" if self._learns else "int8"

    def _need_torch(self, jobs: int = 0) -> None:
        for module in ("torch", "sklearn"):
            require(module, extra="train", purpose="training")
        if jobs:
            import torch

            torch.set_num_threads(jobs)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn circlet's errors into Annif's, which its command line and its service show in one line."""
        try:
            yield
        except ParameterError as error:
            raise ConfigurationException(str(error), backend_id=self.backend_id) from error
        except CircletError as error:
            raise OperationFailedException(str(error), backend_id=self.backend_id) from error


def trial_parameters(trial: Any) -> dict[str, Any]:
    """Return the parameters of a trial, as `projects.cfg` would have them."""
    return {
        "epochs": trial.suggest_int("epochs", 3, 30, log=True),
        "dim": trial.suggest_int("dim", 400, 8000, log=True),
        "hidden": trial.suggest_categorical("hidden", ["512", "1024", "2048"]),
        "dropout": round(trial.suggest_float("dropout", 0.0, 0.8), 2),
        "input_dropout": round(trial.suggest_float("input_dropout", 0.0, 0.4), 2),
        "lr": float(f"{trial.suggest_float('lr', 3e-4, 3e-3, log=True):.2g}"),
        "first_layer": trial.suggest_categorical("first_layer", ["sgd", "same"]),
    }


class CircletObjective(hyperopt.HPObjective):  # type: ignore[misc]
    """Trains on the documents of the last training, and evaluates on those of the search."""

    @classmethod
    def objective(cls, trial: Any, args: dict[str, Any]) -> float:
        from circlet.annif.training import fitted

        backend, params = args["backend"], {**args["params"], **trial_parameters(trial)}
        model = fitted(backend.train_file, backend.settings(params), str(params["device"]), backend.debug)
        batch = annif.eval.EvaluationBatch(backend.project.subjects)
        subjects = backend.subject_ids(model.label_names or [])
        batch.evaluate_many(backend.batch(Tagger(model), subjects, args["texts"], params), args["subject_sets"])
        return float(batch.results(metrics=[args["metric"]])[args["metric"]])


class CircletOptimizer(hyperopt.HyperparameterOptimizer):  # type: ignore[misc]
    """Searches for the best sizes, rates and epochs of a project."""

    def __init__(self, backend: Any, corpus: Any, metric: str) -> None:
        super().__init__(backend, corpus, metric, CircletObjective)

    def _prepare(self, n_jobs: int = 1) -> dict[str, Any]:
        backend, params = self._backend, self._backend.params
        if not backend.train_file.exists():
            raise NotInitializedException(
                f"train data file {backend.train_file} not found", backend_id=backend.backend_id
            )
        backend.settings(params)  # raises errors before any trial
        # Annif transforms documents for all commands but this.
        documents = list(backend.project.transform.transform_corpus(self._corpus).documents)
        return {
            "backend": backend,
            "params": params,
            "texts": [backend.text(document) for document in documents],
            "subject_sets": [document.subject_set for document in documents],
            "metric": self._metric,
        }

    def _normalize(self, hps: dict[str, Any]) -> dict[str, Any]:
        return trial_parameters(optuna.trial.FixedTrial(hps))

    def _postprocess(self, study: Any) -> hyperopt.HPRecommendation:
        if not any(trial.state.name == "COMPLETE" for trial in study.trials):
            raise OperationFailedException(
                "no trial succeeded; see the log above", backend_id=self._backend.backend_id
            )
        lines = [f"{name}={value}" for name, value in self._normalize(study.best_params).items()]
        return hyperopt.HPRecommendation(lines=lines, score=study.best_value)
