"""The search inside Annif; `test_in_annif.py` runs this file where Annif is installed."""

from __future__ import annotations

import io

import pytest

pytest.importorskip("annif", reason="Annif is not installed")

import optuna
from annif.corpus import Document, DocumentFileTSV
from annif.exception import ConfigurationException, NotInitializedException, OperationFailedException
from annif.registry import AnnifRegistry
from annif.vocab import VocabFileTSV

from circlet.annif import backend, register
from circlet.annif.parameters import DEFAULTS, settings_of

BEST = {
    "epochs": 12,
    "dim": 900,
    "hidden": "512",
    "dropout": 0.123456,
    "input_dropout": 0.0,
    "lr": 0.0012345,
    "first_layer": "sgd",
}


@pytest.fixture
def project(world):
    register()
    registry = AnnifRegistry(str(world / "projects.cfg"), str(world / "data"), False)
    found = registry.get_project("plain")
    found.vocab.load_vocabulary(VocabFileTSV(str(world / "vocabulary.tsv"), "en"))
    return found


def corpus(world, project, name):
    return DocumentFileTSV(str(world / name), project.subjects)


def test_every_trial_is_a_configuration():
    found = backend.suggested(optuna.trial.FixedTrial(BEST))
    assert found == {**BEST, "dropout": 0.12, "lr": 0.0012}
    settings = settings_of({**DEFAULTS, **found})
    assert settings.network.hidden == (512,)
    assert (settings.training.epochs, settings.training.lr) == (12, 0.0012)


def test_finds_the_best_of_few_trials(world, project, monkeypatch):
    monkeypatch.setattr(
        backend, "suggested", lambda trial: {"epochs": trial.suggest_int("epochs", 1, 12), "hidden": "64"}
    )
    project.train(corpus(world, project, "train.tsv"))
    results = io.StringIO()
    found = project.hyperopt(corpus(world, project, "test.tsv"), 3, 1, "NDCG", results)
    lines = results.getvalue().splitlines()
    assert lines[0].split("\t")[:3] == ["trial", "value", "epochs"]
    assert len(lines) == 4
    scores = [float(line.split("\t")[1]) for line in lines[1:]]
    assert found.score == max(scores)
    assert found.lines[0].startswith("epochs=")
    assert project.suggest([Document("catsly")]).array.nnz  # the project's own model is as it was


def test_documents_are_transformed_as_for_suggestions(world, project):
    project.train(corpus(world, project, "train.tsv"))
    project.transform_spec, project._transform = "limit(4)", None
    prepared = project.backend.get_hp_optimizer(corpus(world, project, "test.tsv"), "NDCG")._prepare()
    assert {len(text) for text in prepared["texts"]} == {4}


def test_what_is_missing_or_wrong_is_said_before_any_trial(world, project):
    test = corpus(world, project, "test.tsv")
    with pytest.raises(NotInitializedException, match="train data file"):
        project.hyperopt(test, 1, 1, "NDCG", None)
    project.train(corpus(world, project, "train.tsv"))
    project.config["members"] = "few"
    with pytest.raises(ConfigurationException, match="members"):
        project.hyperopt(test, 1, 1, "NDCG", None)


def test_trials_that_all_fail(world, project, monkeypatch):
    project.train(corpus(world, project, "train.tsv"))
    monkeypatch.setattr(backend, "suggested", lambda trial: {"epochs": "many"})
    with pytest.raises(OperationFailedException, match="no trial succeeded"):
        project.hyperopt(corpus(world, project, "test.tsv"), 1, 1, "NDCG", None)
