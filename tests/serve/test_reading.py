"""Requests in flight: the same answers as alone, overload, clients that leave."""

from __future__ import annotations

import asyncio
import threading

import pytest

from circlet.serve import api
from circlet.serve.guard import Limits

SUGGEST = "/v1/models/colors/suggest"


@pytest.fixture
def gate(tagger, monkeypatch):
    """Hold the tagger's first call until the event is set."""
    entered, opened, suggest = threading.Event(), threading.Event(), tagger.suggest

    def held(*arguments, **options):
        entered.set()
        assert opened.wait(10)
        return suggest(*arguments, **options)

    monkeypatch.setattr(tagger, "suggest", held)
    yield entered, opened
    opened.set()


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
    client, (entered, opened) = start([served], Limits(queue=3)), gate

    async def main():
        tasks = [asyncio.create_task(client.http.post(SUGGEST, json={"text": "one"}))]
        await asyncio.to_thread(entered.wait, 10)
        tasks += [asyncio.create_task(client.http.post(SUGGEST, json={"text": "two"})) for _ in range(5)]
        refused = [await task for task in tasks[4:]]  # three wait, and there is no room for two
        opened.set()
        return [*[await task for task in tasks[:4]], *refused]

    answers = client.run(main())
    assert [answer.status_code for answer in answers] == [200] * 4 + [503] * 2
    assert answers[-1].headers["Retry-After"] == "1"
    assert answers[-1].json() == {"detail": "found 3 documents waiting; wanted room for 1 more: try again later"}
    assert client.post(SUGGEST, json={"text": "three"}).status_code == 200


def test_nothing_is_computed_for_clients_that_left(client, gate, monkeypatch):
    entered, opened = gate
    monkeypatch.setattr(api, "WATCH", 0.001)
    messages = []

    async def main():
        first = asyncio.create_task(client.http.post(SUGGEST, json={"text": "one"}))
        await asyncio.to_thread(entered.wait, 10)
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
        opened.set()
        await first

    client.run(main())
    assert messages[0]["status"] == 499
    assert client.app.service.batcher.documents == 1


def test_canceled_requests_are_canceled(client, gate):
    entered, opened = gate

    async def main():
        first = asyncio.create_task(client.http.post(SUGGEST, json={"text": "one"}))
        await asyncio.to_thread(entered.wait, 10)
        second = asyncio.create_task(client.http.post(SUGGEST, json={"text": "two", "k": 2}))
        while not client.app.service.batcher.waiting:
            await asyncio.sleep(0.001)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        opened.set()
        assert (await first).status_code == 200

    client.run(main())


def test_a_swap_leaves_requests_in_flight_alone(client, served, gate, stand_in, folder):
    from circlet.runtime import load

    entered, opened = gate
    other = load(folder)
    other.__class__ = stand_in

    async def main():
        first = asyncio.create_task(client.http.post(SUGGEST, json={"text": "one"}))
        await asyncio.to_thread(entered.wait, 10)
        served.swap(other, "v2")
        second = asyncio.create_task(client.http.post(SUGGEST, json={"text": "one"}))
        opened.set()
        return [(await each).json() for each in (first, second)]

    before, after = client.run(main())
    assert (before["version"], after["version"]) == ("v1", "v2")
    assert before["results"] == after["results"]
