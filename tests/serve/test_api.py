"""The endpoints: what they answer, how they refuse, and requests in flight."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from circlet import __version__
from circlet.runtime import load
from circlet.serve.guard import Limits
from circlet.serve.served import Served
from circlet.storage.layout import CARD

MODEL = "/v1/models/colors"
SUGGEST = f"{MODEL}/suggest"


def test_health_and_models(client):
    assert client.get("/v1/health").json() == {"status": "ok", "version": __version__, "models": ["colors"]}
    (found,) = client.get("/v1/models").json()["models"]
    assert found == {"id": "colors", "labels": 6, "documents": 160, "takes": "texts", "version": "v1"}


def test_card(client, folder, shared, tagger):
    card, model = client.get(MODEL).json(), shared("texts")
    assert card["features"] == model.n_features
    assert card["bytes"] == sum(path.stat().st_size for path in folder.iterdir() if path.name != CARD)
    assert {part["name"] for part in card["parts"]} >= {"config.json", "weights.safetensors", "labels.txt"}
    assert card["parameters"]["total"] > 0
    assert [record["epoch"] for record in card["history"]] == [1, 2, 3]
    assert card["metric"] in card["history"][0]
    assert (card["has_index"], card["can_learn"], card["threshold"]) == (True, True, tagger.model_.threshold)


class TestLabels:
    def test_the_most_frequent_first(self, client, shared):
        found = client.get(f"{MODEL}/labels").json()
        counts = [label["documents"] for label in found["labels"]]
        assert counts == sorted(shared("texts").label_counts.tolist(), reverse=True)
        assert found["total"] == 6

    def test_a_part_of_the_name(self, client):
        found = client.get(f"{MODEL}/labels", params={"query": "BL", "limit": 1}).json()["labels"]
        assert found[0]["label"] == "dark blue"
        assert client.get(f"{MODEL}/labels", params={"query": "purple"}).json() == {"labels": [], "total": 0}


def test_near_labels(client):
    found = client.get(f"{MODEL}/near", params={"label": "日本", "k": 2}).json()
    assert found["label"] == "日本"
    assert found["near"] == [{"label": "red", "similarity": 1.0}, {"label": "green", "similarity": 0.0}]


@pytest.mark.parametrize(
    ("path", "content", "status", "words"),
    [
        ("/models/shapes", None, 404, "found no model 'shapes'; wanted one of colors"),
        ("/models/shapes/labels", None, 404, "'shapes'"),
        ("/models/shapes/near?label=red", None, 404, "'shapes'"),
        ("/models/shapes/suggest", {"text": "a"}, 404, "'shapes'"),
        ("/models/colors/labels?limit=many", None, 422, "`limit`: found 'many'"),
        ("/models/colors/labels?limit=-1", None, 422, "`limit`: found '-1'"),
        (f"/models/colors/labels?limit={10**9}", None, 422, "`limit`: found"),
        (f"/models/colors/labels?query={'x' * 2000}", None, 422, "`query`: found"),
        ("/models/colors/near?label=purple", None, 404, "found no label 'purple' among 6"),
        ("/models/colors/suggest", {"text": "a", "allowed": ["purple"]}, 404, "found no label 'purple'"),
        ("/models/colors/explain", {"text": "a", "labels": ["purple"]}, 404, "found no label 'purple'"),
        ("/models/colors/explain", {"text": "a", "k": 1000}, 422, "`k`: found 1,000; wanted at most 100"),
        ("/models/colors/explain", {}, 422, "found no `text`; wanted one"),
    ],
)
def test_mistakes(client, path, content, status, words):
    answer = client.request("GET" if content is None else "POST", f"/v1{path}", json=content)
    assert answer.status_code == status
    assert list(answer.json()) == ["detail"]
    assert words in answer.json()["detail"]


class TestSuggest:
    def test_five_labels_above_the_models_own_threshold(self, client, tagger):
        found = client.post(SUGGEST, json={"text": "label0 one", "threshold": 0}).json()
        assert (found["model"], found["version"]) == ("colors", "v1")
        assert len(found["results"][0]["labels"]) == 5
        assert client.post(SUGGEST, json={"texts": []}).json()["results"] == []
        least = tagger.model_.threshold
        (row,) = client.post(SUGGEST, json={"text": "label0 one"}).json()["results"]
        assert 0 < len(row["labels"]) < 5
        assert all(each["probability"] >= least for each in row["labels"])
        (rare,) = client.post(SUGGEST, json={"text": "label0 one", "favor_rare": 1}).json()["results"]
        assert len(rare["labels"]) == 5  # it was chosen for rankings by probability

    def test_allowed_and_threshold(self, client, tagger):
        asked = {"text": "label0 label1", "allowed": ["green", "日本", "green"], "threshold": 0.5}
        (row,) = client.post(SUGGEST, json=asked).json()["results"]
        labels, chances = tagger.suggest("label0 label1", k=5, allowed=["green", "日本"], threshold=0.5)
        assert [each["label"] for each in row["labels"]] == [label for label in labels[0] if label is not None]
        assert all(each["probability"] >= 0.5 for each in row["labels"])
        assert len(row["labels"]) == (chances[0] > 0).sum() < 5

    @pytest.mark.parametrize(
        ("body", "words"),
        [
            ('{"text": "a", "k": 0}', "`k`: found 0; wanted greater than or equal to 1"),
            ('{"text": "a", "k": 101}', "`k`: found 101; wanted at most 100"),
            ('{"text": "a", "k": "5"}', "`k`: found '5'; wanted integer"),
            ('{"text": "a", "threshold": 2}', "`threshold`: found 2"),
            ('{"text": "a", "threshold": NaN}', "`threshold`: found nan; wanted a finite number"),
            ('{"text": "a", "favor_rare": -1}', "`favor_rare`"),
            ('{"text": 5}', "`text`: found 5; wanted string"),
            ('{"texts": ["a", 5]}', "`texts.1`: found 5"),
            ('{"text": "a", "texts": ["b"]}', "wanted exactly one of"),
            ("{}", "wanted exactly one of"),
            ('{"text": "a", "top": 5}', "found `top`, which is not a known field"),
            ('{"text": "a"', "Invalid JSON"),
            ('{"text": "\\ud800"}', "Invalid JSON"),
            ("", "Invalid JSON"),
            ("[" * 5000, "Invalid JSON"),
            ('{"rows": [{"0": 1}]}', "trained on texts"),
        ],
    )
    def test_malformed(self, client, body, words):
        answer = client.post(SUGGEST, content=body)
        assert answer.status_code == 422
        assert list(answer.json()) == ["detail"]
        assert words in answer.json()["detail"]

    @pytest.mark.parametrize(
        "body", [{"texts": ["a"] * 4}, {"text": "a" * 101}, {"text": "a" * 3000}, {"rows": [{}] * 4}]
    )
    def test_too_large(self, start, served, body, shared, tmp_path):
        shared("sparse").save(tmp_path / "rows")
        limits = Limits(documents=3, characters=100, body=2000)
        client = start([served, Served.load(tmp_path / "rows", "rows")], limits)
        model = "rows" if "rows" in body else "colors"
        answer = client.post(f"/v1/models/{model}/suggest", json=body)
        assert answer.status_code == 413
        assert answer.json()["detail"].startswith("found ")


class TestUris:
    """Labels that have URIs besides their names."""

    def test_suggestions_have_both(self, client, start, named):
        asked = {"text": "label0 label1", "k": 3, "threshold": 0}
        (plain,) = client.post(SUGGEST, json=asked).json()["results"]
        assert all(list(each) == ["label", "probability"] for each in plain["labels"])
        (row,) = start([named]).post(SUGGEST, json=asked).json()["results"]
        assert all(list(each) == ["label", "uri", "probability"] for each in row["labels"])
        places = [named.current.names.index(each["label"]) for each in row["labels"]]
        assert [each["uri"] for each in row["labels"]] == [f"http://example.org/{place}" for place in places]
        assert [{**each, "uri": None} for each in row["labels"]] == [
            {**each, "uri": None} for each in plain["labels"]
        ]

    def test_requests_may_have_either(self, start, named):
        client, asked = start([named]), {"text": "label0 label1", "threshold": 0}
        names, uris = ["green", "日本"], ["http://example.org/1", "http://example.org/4"]
        by_name, by_uri, mixed = (
            client.post(SUGGEST, json={**asked, "allowed": allowed}).json()
            for allowed in (names, uris, [*names, uris[0]])
        )
        assert by_name == by_uri == mixed
        assert {each["label"] for each in by_uri["results"][0]["labels"]} == set(names)
        assert client.get(f"{MODEL}/near", params={"label": uris[0]}).json()["label"] == "green"
        answer = client.post(f"{MODEL}/explain", json={"text": "label1", "labels": uris[:1]})
        assert answer.json()["explanations"][0]["label"] == "green"
        answer = client.post(SUGGEST, json={**asked, "allowed": ["http://example.org/6"]})
        assert (answer.status_code, "among 6" in answer.json()["detail"]) == (404, True)


class TestRows:
    @pytest.fixture(params=["sparse", "dense"])
    def rows_client(self, request, shared, start, tmp_path):
        shared(request.param, names=False).save(tmp_path / "rows")
        return start([Served.load(tmp_path / "rows", "rows")]), load(tmp_path / "rows")

    def test_same_as_the_runtime(self, rows_client):
        client, tagger = rows_client
        path, asked = "/v1/models/rows/suggest", {"rows": [{"0": 2, "13": 0.5}, {}], "k": 2, "threshold": 0}
        found = client.post(path, json=asked).json()
        row = np.zeros((2, 14), dtype=np.float32)
        row[0, 0], row[0, 13] = 2, 0.5
        labels = [[each["label"] for each in row["labels"]] for row in found["results"]]
        assert labels == tagger.suggest(row, k=2)[0].astype(str).tolist()
        asked = {"rows": [{}], "allowed": ["3"], "threshold": 0}
        chance = pytest.approx(float(tagger.predict_proba(row)[1, 3]), abs=1e-5)
        assert client.post(path, json=asked).json()["results"] == [
            {"labels": [{"label": "3", "probability": chance}]}
        ]

    @pytest.mark.parametrize(
        "body", [{"text": "a"}, {"rows": [{"14": 1}]}, {"rows": [{"x": 1}]}, {"rows": [{"0": 1e300}]}]
    )
    def test_mistakes(self, rows_client, body):
        assert rows_client[0].post("/v1/models/rows/suggest", json=body).status_code == 422


class TestExplain:
    def test_the_best_labels(self, client):
        found = client.post(f"{MODEL}/explain", json={"text": "größer als", "k": 2}).json()
        assert [each["label"] for each in found["explanations"]] == ["red", "green"]
        assert found["version"] == "v1"
        assert found["explanations"][0] == {
            "label": "red",
            "probability": 0.75,
            "score": 2.0,
            "base": 0.5,
            "contributions": [{"term": "größer", "kind": "word", "value": 1.5, "spans": [[0, 6]]}],
            "spans": [[0, 6, 1.5]],
        }
        found = client.post(f"{MODEL}/explain", json={"text": "a", "labels": ["日本"]}).json()
        assert [each["label"] for each in found["explanations"]] == ["日本"]


class TestSimilar:
    def test_documents(self, client):
        found = client.post(f"{MODEL}/similar", json={"text": "a", "k": 2}).json()
        assert found == {"documents": [{"id": "doc-0", "similarity": 1.0}, {"id": "doc-1", "similarity": 1.0}]}

    def test_without_an_index(self, client, stand_in, monkeypatch):
        monkeypatch.setattr(stand_in, "has_index", False)
        answer = client.post(f"{MODEL}/similar", json={"text": "a"})
        assert answer.status_code == 409
        assert "--keep-index" in answer.json()["detail"]
        assert client.get(MODEL).json()["has_index"] is False


class TestFeedback:
    def test_feedback(self, client, served):
        given = {"text": "a fox", "accept": ["animal"], "reject": ["red"]}
        answer = client.post(f"{MODEL}/feedback", json=given)
        assert answer.status_code == 201
        assert answer.json()["learning"]["state"] == "learning"
        client.post(f"{MODEL}/feedback", json={**given, "text": "a bear"})
        entries = client.get(f"{MODEL}/feedback").json()["entries"]
        assert [entry["text"] for entry in entries] == ["a bear", "a fox"]
        assert {key: entries[1][key] for key in given} == given
        assert (entries[1]["version"], entries[1]["undone"]) == ("v1", False)
        assert len(client.get(f"{MODEL}/feedback", params={"limit": 1}).json()["entries"]) == 1
        assert client.get(f"{MODEL}/feedback", params={"limit": 0}).json() == {"entries": []}
        assert entries[1]["id"] == answer.json()["id"]
        assert served.learner.notified == 2

    def test_labels_may_be_called_by_their_uris(self, start, named):
        client, given = start([named]), {"text": "a", "accept": ["red"], "reject": ["http://example.org/0"]}
        answer = client.post(f"{MODEL}/feedback", json=given)
        assert (answer.status_code, "both accepted and rejected" in answer.json()["detail"]) == (422, True)
        given["accept"] = ["http://example.org/1", "new"]
        assert client.post(f"{MODEL}/feedback", json=given).status_code == 201
        (entry,) = named.learner.feedback.entries()
        assert (entry.accepted, entry.rejected) == (("green", "new"), ("red",))

    def test_undo(self, client):
        given = client.post(f"{MODEL}/feedback", json={"text": "a", "accept": ["red"]}).json()["id"]
        answer = client.delete(f"{MODEL}/feedback/{given}")
        assert (answer.status_code, answer.json()["id"]) == (200, given)
        assert client.get(f"{MODEL}/feedback").json()["entries"][0]["undone"] is True
        for entry in (given, "2"):
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
    def test_mistakes(self, client, served, body, status):
        assert client.post(f"{MODEL}/feedback", json=body).status_code == status
        assert served.learner.feedback.entries() == []

    def test_learning_and_rolling_back(self, client, served, tagger):
        assert client.get(f"{MODEL}/learning").json()["state"] == "idle"
        assert client.post(f"{MODEL}/rollback").status_code == 409
        served.learner.learn(tagger)
        assert client.post(SUGGEST, json={"text": "a"}).json()["version"] == "v2"
        assert client.get(f"{MODEL}/learning").json()["can_roll_back"] is True
        assert client.post(f"{MODEL}/rollback").json() == {"version": "v1"}

    def test_models_that_do_not_learn(self, client, served):
        served.learner = None
        for asked in ("GET feedback", "DELETE feedback/1", "GET learning", "POST rollback"):
            method, path = asked.split()
            assert client.request(method, f"{MODEL}/{path}").status_code == 409
        assert client.post(f"{MODEL}/feedback", json={"text": "a", "accept": ["red"]}).status_code == 409
        assert client.get(MODEL).json()["can_learn"] is False


class Gate:
    """Holds the tagger's calls until it is opened."""

    def __init__(self, answers):
        self.answers, self.entered, self.opened = answers, threading.Event(), threading.Event()

    def __call__(self, *arguments, **options):
        self.entered.set()
        assert self.opened.wait(10)
        return self.answers(*arguments, **options)

    async def held(self, client):
        """Start a request that is computed until the gate is opened."""
        first = ask(client, "one")
        await asyncio.to_thread(self.entered.wait, 10)
        return first


@pytest.fixture
def gate(tagger, monkeypatch):
    found = Gate(tagger.answers)
    monkeypatch.setattr(tagger, "answers", found)
    yield found
    found.opened.set()


def ask(client, text, **more):
    return asyncio.create_task(client.http.post(SUGGEST, json={"text": text, **more}))


def test_many_at_once_get_what_the_runtime_says(client, tagger, documents):
    texts = documents("texts")

    async def main():
        bodies = [{"text": text, "k": 1 + i % 3, "threshold": 0.1 * (i % 2)} for i, text in enumerate(texts)]
        return bodies, await asyncio.gather(*(client.http.post(SUGGEST, json=body) for body in bodies))

    for body, answer in zip(*client.run(main()), strict=True):
        assert answer.status_code == 200
        (row,) = answer.json()["results"]
        labels, chances = tagger.suggest(body["text"], k=body["k"], threshold=body["threshold"])
        kept = [label for label in labels[0] if label is not None]
        assert [each["label"] for each in row["labels"]] == kept
        assert [each["probability"] for each in row["labels"]] == pytest.approx(
            chances[0, : len(kept)].tolist(), abs=1e-4
        )
    assert client.app.service.batcher.calls < len(texts)


def test_overload_and_recovery(start, served, gate):
    client = start([served], Limits(queue=3))

    async def main():
        tasks = [await gate.held(client), *(ask(client, "two") for _ in range(5))]
        refused = [await task for task in tasks[4:]]  # three wait, and there is no room for two
        gate.opened.set()
        return [*[await task for task in tasks[:4]], *refused]

    answers = client.run(main())
    assert [answer.status_code for answer in answers] == [200] * 4 + [503] * 2
    assert answers[-1].headers["Retry-After"] == "1"
    assert answers[-1].json() == {"detail": "found 3 documents waiting; wanted room for 1 more: try again later"}
    assert client.post(SUGGEST, json={"text": "three"}).status_code == 200


def test_nothing_is_computed_for_clients_that_left(client, gate):
    client.app.service.watch_after = 0.001
    messages = []

    async def main():
        first = await gate.held(client)
        body = {"type": "http.request", "body": b'{"text": "two", "k": 2}'}
        events = iter([body, {"type": "http.disconnect"}])

        async def receive():
            return next(events)

        async def send(message):
            messages.append(message)

        scope = {
            "type": "http", "method": "POST", "path": SUGGEST, "raw_path": SUGGEST.encode(), "query_string": b"",
            "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1), "scheme": "http", "root_path": "",
        }  # fmt: skip
        await client.app(scope, receive, send)
        gate.opened.set()
        await first

    client.run(main())
    assert messages[0]["status"] == 499
    assert client.app.service.batcher.documents == 1


def test_canceled_requests_are_canceled(client, gate):

    async def main():
        first = await gate.held(client)
        second = ask(client, "two", k=2)
        while not client.app.service.batcher.waiting:
            await asyncio.sleep(0.001)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        gate.opened.set()
        assert (await first).status_code == 200

    client.run(main())


def test_a_swap_leaves_requests_in_flight_alone(client, served, gate, stand_in, folder):
    other = load(folder)
    other.__class__ = stand_in

    async def main():
        first = await gate.held(client)
        served.swap(other, "v2")
        second = ask(client, "one")
        gate.opened.set()
        return [(await each).json() for each in (first, second)]

    before, after = client.run(main())
    assert (before["version"], after["version"]) == ("v1", "v2")
    assert before["results"] == after["results"]
