from __future__ import annotations

import pytest

from circlet.errors import ParameterError
from circlet.runtime import load
from circlet.serve import learning
from circlet.serve.served import Served

MODEL = "/v1/models/colors"


def test_feedback(client, served):
    given = {"text": "a fox", "accept": ["animal"], "reject": ["red"]}
    answer = client.post(f"{MODEL}/feedback", json=given)
    assert answer.status_code == 201
    assert answer.json()["id"] == "1"
    assert answer.json()["learning"]["state"] == "learning"
    client.post(f"{MODEL}/feedback", json={**given, "text": "a bear"})
    entries = client.get(f"{MODEL}/feedback").json()["entries"]
    assert [entry["text"] for entry in entries] == ["a bear", "a fox"]
    assert {key: entries[1][key] for key in given} == given
    assert (entries[1]["version"], entries[1]["undone"]) == ("v1", False)
    assert len(client.get(f"{MODEL}/feedback", params={"limit": 1}).json()["entries"]) == 1
    assert client.get(f"{MODEL}/feedback", params={"limit": 0}).json() == {"entries": []}
    assert served.classroom.learner.notified == 2


def test_labels_may_be_called_by_their_uris(start, named):
    given = {"text": "a", "accept": ["http://example.org/1", "new"], "reject": ["http://example.org/0"]}
    assert start([named]).post(f"{MODEL}/feedback", json=given).status_code == 201
    (entry,) = named.classroom.log.kept
    assert (entry.accepted, entry.rejected) == (["green", "new"], ["red"])


def test_one_label_called_by_both_of_its_names(start, named, log):
    named.classroom.log = log
    given = {"text": "a", "accept": ["red"], "reject": ["http://example.org/0"]}
    answer = start([named]).post(f"{MODEL}/feedback", json=given)
    assert (answer.status_code, "both accepted and rejected" in answer.json()["detail"]) == (422, True)
    assert len(log) == 0


def test_undo(client):
    client.post(f"{MODEL}/feedback", json={"text": "a", "accept": ["red"]})
    answer = client.delete(f"{MODEL}/feedback/1")
    assert (answer.status_code, answer.json()["id"]) == (200, "1")
    assert client.get(f"{MODEL}/feedback").json()["entries"][0]["undone"] is True
    for entry in ("1", "2"):
        assert client.delete(f"{MODEL}/feedback/{entry}").status_code == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"text": "a"}, 422),
        ({"text": "", "accept": ["red"]}, 422),
        ({"text": "a", "accept": ["red"], "reject": ["red"]}, 422),
        ({"text": "a", "accept": ["two\nlines"]}, 422),
        ({"text": "a", "accept": [" "]}, 422),
        ({"text": "a", "reject": ["purple"]}, 404),
        ({"text": "a" * 500_001, "accept": ["red"]}, 413),
    ],
)
def test_mistakes(client, served, body, status):
    assert client.post(f"{MODEL}/feedback", json=body).status_code == status
    assert served.classroom.log.kept == []


def test_learning_and_rolling_back(client, served, tagger):
    assert client.get(f"{MODEL}/learning").json()["state"] == "idle"
    assert client.post(f"{MODEL}/rollback").status_code == 409
    served.classroom.learner.learn(tagger)
    assert client.post(f"{MODEL}/suggest", json={"text": "a"}).json()["version"] == "v2"
    assert client.get(f"{MODEL}/learning").json()["can_roll_back"] is True
    assert client.post(f"{MODEL}/rollback").json() == {"version": "v1"}


def test_models_that_do_not_learn(client, served):
    served.classroom = None
    for method, path in (("GET", "feedback"), ("DELETE", "feedback/1"), ("GET", "learning"), ("POST", "rollback")):
        assert client.request(method, f"{MODEL}/{path}").status_code == 409
    assert client.post(f"{MODEL}/feedback", json={"text": "a", "accept": ["red"]}).status_code == 409
    assert client.get(MODEL).json()["can_learn"] is False


class TestClassrooms:
    @pytest.fixture
    def modules(self, monkeypatch, stand_ins):
        log, learner = stand_ins
        monkeypatch.setattr(learning, "FeedbackLog", log)
        monkeypatch.setattr(learning, "Learner", learner)
        monkeypatch.setattr(learning, "why_not", lambda folder: None)
        return learning

    def test_open_and_close(self, folder, modules):
        model = Served.load(folder, "colors")
        learning.open_classroom(model, folder)
        assert model.classroom.log.path == folder.with_name("colors.feedback.jsonl")
        assert model.current.version == "v1"  # the learner knows better than the folder
        model.classroom.learner.learn(load(folder))
        assert model.current.version == "v2"
        model.classroom.close()
        assert model.classroom.learner.closed

    def test_models_that_can_t(self, folder, modules, monkeypatch):
        monkeypatch.setattr(modules, "why_not", lambda folder: "the model takes rows")
        with pytest.raises(ParameterError, match="--learn: the model takes rows"):
            learning.open_classroom(Served.load(folder, "colors"), folder)

    def test_places_that_can_t_be_written(self, folder, monkeypatch):
        monkeypatch.setattr("os.access", lambda path, mode: False)
        assert "can't be written" in learning.why_not(folder)
