"""The backend inside Annif's own objects; `test_in_annif.py` runs this file where Annif is installed."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

annif = pytest.importorskip("annif", reason="Annif is not installed")

import optuna  # noqa: E402
from annif.corpus import Document, DocumentFileTSV, DocumentList, SubjectSet  # noqa: E402
from annif.exception import (  # noqa: E402
    ConfigurationException,
    NotEnabledException,
    NotInitializedException,
    NotSupportedException,
    OperationFailedException,
)
from annif.registry import AnnifRegistry  # noqa: E402
from annif.vocab import VocabFileTSV  # noqa: E402

from circlet.annif import backend, register  # noqa: E402
from circlet.annif.parameters import DEFAULTS, settings_of  # noqa: E402
from circlet.storage.layout import read_config  # noqa: E402
from circlet.storage.publish import folder_lock  # noqa: E402


@pytest.fixture
def project(world):
    """Open a project of the world, as a new process would."""
    register()
    vocabulary = VocabFileTSV(str(world / "vocabulary.tsv"), "en")

    def get(name):
        registry = AnnifRegistry(str(world / "projects.cfg"), str(world / "data"), False)
        found = registry.get_project(name)
        if not (world / "data/vocabs").exists():
            found.vocab.load_vocabulary(vocabulary)
        return found

    return get


def corpus(world, project, name):
    return DocumentFileTSV(str(world / name), project.subjects)


def trained(world, project, **params):
    project.train(corpus(world, project, "train.tsv"), {"circlet": params})
    return project


@pytest.fixture
def plain(world, project):
    """A project that is trained."""
    return trained(world, project("plain"))


def suggested(project, text, **params):
    (found,) = project.suggest([Document(text)], {"circlet": params})
    return [(project.subjects[each.subject_id].labels["en"], each.score) for each in found]


def test_trains_and_suggests_with_probabilities(world, project):
    plain = project("plain")
    assert not plain.is_trained
    with pytest.raises(NotInitializedException):
        plain.suggest([Document("catsly")])
    trained(world, plain)
    found = suggested(project("plain"), "catsly trainsful")
    assert {name for name, _ in found[:2]} == {"cats", "trains"}
    assert all(0 < score <= 1 for _, score in found)
    # Never subjects that no document has.
    found = {name for name, _ in suggested(plain, "catsly snowly")}
    assert found == {"cats", "dogs", "trains", "bread", "music", "rivers", "stars", "paper"}
    assert plain.is_trained
    assert plain.modification_time is not None
    assert read_config(plain.backend.model_folder)["store"] == "int8"


def test_a_batch_equals_single_documents(plain):
    texts = ["catsly", "", "unheard of", "dogsness starsward"]
    batch = plain.suggest([Document(text) for text in texts])
    assert batch.array.shape == (4, len(plain.subjects))
    for row, text in enumerate(texts):
        alone = plain.suggest([Document(text)]).array
        np.testing.assert_allclose(batch.array[[row]].toarray(), alone.toarray(), rtol=1e-5)
    assert np.diff(batch.array.indptr)[[1, 2]].tolist() == [0, 0]  # nothing is known about these texts


def test_limit_and_favored_subjects(plain):
    assert len(suggested(plain, "catsly trainsful", limit="3")) == 3
    usual, favored = (dict(suggested(plain, "catsly", favor_rare=degree)) for degree in ("0", "1"))
    assert set(usual) == set(favored)
    assert max(favored.values()) <= 1
    ratios = {name: favored[name] / usual[name] for name in usual}
    assert max(ratios.values()) == pytest.approx(1)
    assert min(ratios.values()) < 0.99


def test_subjects_that_the_vocabulary_loses_or_renumbers(world, project, plain):
    lines = (world / "vocabulary.tsv").read_text().splitlines()
    (world / "other.tsv").write_text("\n".join(reversed([line for line in lines if "dogs" not in line])) + "\n")
    plain.vocab.load_vocabulary(VocabFileTSV(str(world / "other.tsv"), "en"), force=True)
    found = suggested(project("plain"), "catsly dogsly", limit="7")
    assert found[0][0] == "cats"
    assert len(found) == 7
    assert "dogs" not in {name for name, _ in found}


def test_a_project_that_excludes_subjects(world, project):
    filtered = trained(world, project("filtered"))
    assert "cats" not in {name for name, _ in suggested(filtered, "catsly dogsness")}


def test_cached_documents_are_learned_again(world, project):
    plain = project("plain")
    with pytest.raises(NotInitializedException, match="train data file"):
        plain.train("cached")
    trained(world, plain)
    first = suggested(plain, "catsly")
    plain.train("cached", {"circlet": {"members": "2"}})
    assert len(read_config(plain.backend.model_folder)["members"]) == 2
    plain.train("cached")
    assert suggested(plain, "catsly") == first


def test_learns_new_subjects_and_keeps_the_old(world, project):
    learning = trained(world, project("learning"))
    other = project("learning")
    assert suggested(other, "catsly")[0][0] == "cats"
    assert read_config(learning.backend.model_folder)["store"] == "float32"
    # Their words are new to the model, except for the parts that it knows them by.
    known = [Document(f"{word} catsly dogsful", SubjectSet([8])) for word in ("rivers", "music")]
    learning.learn(DocumentList(known * 4), {"circlet": {"learn-epochs": "30"}})
    assert suggested(learning, "rivers catsly dogsful")[0][0] == "snow"
    assert suggested(other, "rivers catsly dogsful")[0][0] == "snow"  # which sees that the folder has changed
    assert suggested(other, "paperness starsly")[0][0] in ("paper", "stars")
    learning.train("cached")
    assert "snow" in {name for name, _ in suggested(learning, "rivers catsly dogsful")}


def test_a_model_without_room_says_so(world, project):
    lines = (world / "vocabulary.tsv").read_text()
    more = "".join(f"<http://example.org/more/{i}>\tmore {i}\n" for i in range(200))
    learning = trained(world, project("learning"), dim="32", slots="66")
    (world / "vocabulary.tsv").write_text(lines + more)
    learning.vocab.load_vocabulary(VocabFileTSV(str(world / "vocabulary.tsv"), "en"))
    learning = project("learning")
    documents = [Document("catsly", SubjectSet([subject])) for subject in range(10, 200)]
    with pytest.raises(ConfigurationException, match="bias for 66 labels"):
        learning.learn(DocumentList(documents))
    assert suggested(learning, "catsly")[0][0] == "cats"


def test_documents_that_nothing_can_be_learned_from(world, plain):
    with pytest.raises(NotEnabledException):
        plain.learn(corpus(world, plain, "new.tsv"))
    useless = [Document("no subject"), Document(" ", SubjectSet([0]))]
    for documents in ([], useless):
        with pytest.raises(NotSupportedException, match="found no documents"):
            plain.train(DocumentList(documents))
    plain.train("cached")  # the documents of before are still there


def test_wrong_parameters(world, project):
    plain = project("plain")
    for name, value, message in (
        ("epochs", "many", "epochs: found 'many'"),
        ("preset", "best", "preset"),
        ("device", "abacus", "device"),
        ("store", "int3", "int3"),
    ):
        with pytest.raises(ConfigurationException, match=message):
            trained(world, plain, **{name: value})
        assert not project("plain").is_trained
    trained(world, plain)
    for name, value in (("limit", "ten"), ("favor_rare", "2"), ("favor_rare", "much")):
        with pytest.raises(ConfigurationException, match=name):
            suggested(plain, "catsly", **{name: value})


def test_one_training_at_a_time_and_a_damaged_model(project, plain):
    with ThreadPoolExecutor(1) as other, folder_lock(plain.backend.model_folder):
        failed = other.submit(plain.train, "cached").exception()
    assert isinstance(failed, OperationFailedException)
    assert "is writing into it" in str(failed)
    (plain.backend.model_folder / "config.json").write_text("{}")
    with pytest.raises(OperationFailedException, match=r"config\.json"):
        project("plain").suggest([Document("catsly")])


def test_the_analyzer_of_a_project_makes_the_words(world, project):
    plain = project("plain")
    assert plain.backend.text(Document("Some Words")) == "Some Words"

    class Stemmer:
        def tokenize_words(self, text):
            return [word[:4] for word in text.lower().split()]

    plain.analyzer_spec, plain._analyzer = "stemmer", Stemmer()
    assert plain.backend.text(Document("Catsly Trainsful")) == "cats trai"
    trained(world, plain)
    assert suggested(plain, "catsxyz")[0][0] == "cats"


class TestSearch:
    def test_every_trial_is_a_configuration(self):
        best = {"epochs": 12, "dim": 900, "hidden": "512", "dropout": 0.123456, "input_dropout": 0.0}
        best |= {"lr": 0.0012345, "first_layer": "sgd"}
        found = backend.trial_parameters(optuna.trial.FixedTrial(best))
        assert found == {**best, "dropout": 0.12, "lr": 0.0012}
        settings = settings_of({**DEFAULTS, **found})
        assert settings.network.hidden == (512,)
        assert (settings.training.epochs, settings.training.lr) == (12, 0.0012)

    def test_finds_the_best_of_few_trials(self, world, plain, monkeypatch):
        test = corpus(world, plain, "test.tsv")
        trial = lambda trial: {"epochs": trial.suggest_int("epochs", 1, 12), "hidden": "64"}  # noqa: E731
        monkeypatch.setattr(backend, "trial_parameters", trial)
        results = io.StringIO()
        found = plain.hyperopt(test, 3, 1, "NDCG", results)
        lines = results.getvalue().splitlines()
        assert lines[0].split("\t")[:3] == ["trial", "value", "epochs"]
        assert len(lines) == 4
        assert found.score == max(float(line.split("\t")[1]) for line in lines[1:])
        assert found.lines[0].startswith("epochs=")
        assert plain.suggest([Document("catsly")]).array.nnz  # the project's own model is as it was
        monkeypatch.setattr(backend, "trial_parameters", lambda trial: {"epochs": "many"})
        with pytest.raises(OperationFailedException, match="no trial succeeded"):
            plain.hyperopt(test, 1, 1, "NDCG", None)

    def test_documents_are_transformed_as_for_suggestions(self, world, plain):
        plain.transform_spec, plain._transform = "limit(4)", None
        prepared = plain.backend.get_hp_optimizer(corpus(world, plain, "test.tsv"), "NDCG")._prepare()
        assert {len(text) for text in prepared["texts"]} == {4}

    def test_what_is_missing_or_wrong_is_said_before_any_trial(self, world, project, plain):
        test = corpus(world, plain, "test.tsv")
        with pytest.raises(NotInitializedException, match="train data file"):
            project("learning").hyperopt(test, 1, 1, "NDCG", None)
        plain.config["members"] = "few"
        with pytest.raises(ConfigurationException, match="members"):
            plain.hyperopt(test, 1, 1, "NDCG", None)
