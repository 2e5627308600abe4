"""The search for a project's hyperparameters: each trial trains a model and measures it by Annif's own metric."""

from __future__ import annotations

from typing import Any

import annif.eval
import optuna
from annif.backend import hyperopt
from annif.exception import NotInitializedException, OperationFailedException

__all__ = ["CircletObjective", "CircletOptimizer", "suggested"]


def suggested(trial: Any) -> dict[str, Any]:
    """The parameters of a trial, as `projects.cfg` would have them."""
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
    """Trains on the documents of the last training, and measures on those of the search."""

    @classmethod
    def objective(cls, trial: Any, args: dict[str, Any]) -> float:
        from circlet.annif.learning import fitted

        backend, params = args["backend"], {**args["params"], **suggested(trial)}
        model = fitted(backend.train_file, backend.settings(params), str(params["device"]), backend.debug)
        batch = annif.eval.EvaluationBatch(backend.project.subjects)
        subjects = backend.subject_ids(model.label_names or [])
        batch.evaluate_many(backend.batch(model, subjects, args["texts"], params), args["subject_sets"])
        return float(batch.results(metrics=[args["metric"]])[args["metric"]])


class CircletOptimizer(hyperopt.HyperparameterOptimizer):  # type: ignore[misc]
    """Looks for the sizes, rates and epochs that suit a project best."""

    def __init__(self, backend: Any, corpus: Any, metric: str) -> None:
        super().__init__(backend, corpus, metric, CircletObjective)

    def _prepare(self, n_jobs: int = 1) -> dict[str, Any]:
        backend, params = self._backend, self._backend.params
        if not backend.train_file.exists():
            raise NotInitializedException(
                f"train data file {backend.train_file} not found", backend_id=backend.backend_id
            )
        backend.settings(params)  # what is wrong with them should be said before any trial
        # Annif transforms the documents of all other commands.
        documents = list(backend.project.transform.transform_corpus(self._corpus).documents)
        return {
            "backend": backend,
            "params": params,
            "texts": [backend.text(document) for document in documents],
            "subject_sets": [document.subject_set for document in documents],
            "metric": self._metric,
        }

    def _normalize(self, hps: dict[str, Any]) -> dict[str, Any]:
        return suggested(optuna.trial.FixedTrial(hps))

    def _postprocess(self, study: Any) -> hyperopt.HPRecommendation:
        if not any(trial.state.name == "COMPLETE" for trial in study.trials):
            raise OperationFailedException(
                "no trial succeeded; the log above says why", backend_id=self._backend.backend_id
            )
        lines = [f"{name}={value}" for name, value in self._normalize(study.best_params).items()]
        return hyperopt.HPRecommendation(lines=lines, score=study.best_value)
