from __future__ import annotations

import asyncio
import logging

import pytest
from prometheus_client.parser import text_string_to_metric_families

from circlet.serve.guard import BUCKETS, HEADERS, Access, Guard, Limits, Monitor, Rates, bucket_of
from circlet.version import __version__

SUGGEST = "/v1/models/colors/suggest"
TOKEN = "a-token-of-32-characters-1234567"


class TestToken:
    @pytest.fixture
    def guarded(self, start, served):
        return start([served], access=Access(token=TOKEN))

    @pytest.mark.parametrize(
        "given", [None, "Bearer wrong", f"bearer {TOKEN}", TOKEN, f"Basic {TOKEN}", "Bearer é"]
    )
    def test_wrong(self, guarded, given):
        headers = {} if given is None else {"Authorization": given.encode()}
        for path in ("/v1/models", "/metrics", "/openapi.json", "/v1/projects", "/nowhere"):
            answer = guarded.get(path, headers=headers)
            assert answer.status_code == 401
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert "Authorization: Bearer TOKEN" in answer.json()["detail"]
        assert guarded.post(SUGGEST, json={"text": "a"}, headers=headers).status_code == 401

    def test_right_and_what_is_open(self, guarded):
        headers = {"Authorization": f"Bearer {TOKEN}"}
        assert guarded.get("/v1/models", headers=headers).status_code == 200
        assert guarded.get("/v1/health", headers=headers).json()["models"] == ["colors"]
        assert guarded.get("/v1/health").json()["models"] == []
        assert guarded.get("/page/nothing.js").status_code == 404
        assert guarded.get("/page/../v1/models").status_code in (401, 404)


class TestHost:
    @pytest.mark.parametrize(
        ("host", "status"),
        [
            *((name, 200) for name in ("localhost", "LOCALHOST:8000", "[::1]:8000", "[::1")),
            *((name, 400) for name in ("evil.example", "")),
        ],
    )
    def test_only_known_names(self, start, served, host, status):
        client = start([served], access=Access(hosts={"localhost", "::1"}))
        answer = client.get("/v1/health", headers={"Host": host})
        assert answer.status_code == status
        if status == 400:
            assert answer.json()["detail"] == f"found the host {host!r}; wanted one of ::1, localhost"


class TestOrigin:
    @pytest.mark.parametrize(
        ("headers", "status"),
        [
            ({}, 200),
            ({"Origin": "http://localhost"}, 200),
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Sec-Fetch-Site": "same-origin"}, 200),
        ],
    )
    def test_requests_that_cost_something(self, client, headers, status):
        assert client.post(SUGGEST, json={"text": "a"}, headers=headers).status_code == status
        assert client.get("/v1/models", headers=headers).status_code == 200

    def test_no_sharing_unless_named(self, client, start, served):
        headers = {"Origin": "https://friend.example"}
        assert "Access-Control-Allow-Origin" not in client.get("/v1/models", headers=headers).headers
        friendly = start([served], access=Access(token=TOKEN, origins=["https://friend.example"]))
        answer = friendly.post(SUGGEST, json={"text": "a"}, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["Access-Control-Allow-Origin"] == "https://friend.example"
        wanted = {"Method": "POST", "Headers": "Authorization"}
        asked = {**headers, **{f"Access-Control-Request-{name}": value for name, value in wanted.items()}}
        assert friendly.request("OPTIONS", SUGGEST, headers=asked).status_code == 200
        headers["Authorization"] = f"Bearer {TOKEN}"
        assert friendly.post(SUGGEST, json={"text": "a"}, headers=headers).status_code == 200
        other = {**headers, "Origin": "https://evil.example"}
        assert friendly.post(SUGGEST, json={"text": "a"}, headers=other).status_code == 403


@pytest.mark.parametrize("path", ["/", "/v1/health", "/v1/models/none", "/metrics", "/page/../../secret"])
def test_headers_of_all_answers(client, path):
    headers = client.get(path).headers
    for name, value in HEADERS:
        assert headers[name.decode()] == value.decode()
    assert headers["Cache-Control"] in ("no-store", "no-cache")
    assert "server" not in headers


def test_policy():
    policy = dict(HEADERS)[b"content-security-policy"].decode()
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert "unsafe" not in policy


def test_rate(start, served):
    client = start([served], Limits(rate=0.5))
    assert client.get("/v1/health").status_code == 200
    answer = client.get("/v1/health")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "2")
    assert answer.json()["detail"].startswith("found more than 0.5 requests per second")


def test_connections(start, served):
    client = start([served], Limits(connections=10))
    client.app.guard.connections = lambda: 11
    answer = client.get("/v1/health")
    assert (answer.status_code, answer.headers["Retry-After"], answer.headers["Connection"]) == (503, "1", "close")
    client.app.guard.connections = lambda: 10
    assert client.get("/v1/health").status_code == 200


async def chunks(*parts):
    for part in parts:
        yield part


class TestBodies:
    def test_with_and_without_a_length(self, start, served):
        client = start([served], Limits(body=50))
        for content in (b"x" * 51, chunks(b"x" * 30, b"x" * 30)):
            answer = client.post(SUGGEST, content=content)
            assert answer.status_code == 413
            assert answer.json()["detail"].endswith("bytes; wanted at most 50 in a request")
        assert client.post(SUGGEST, content=chunks(b'{"text"', b': "a"}')).status_code == 200

    def test_all_together(self, start, served):
        client = start([served], Limits(held=20))
        assert client.post(SUGGEST, content=b" " * 21).status_code == 503
        assert client.post(SUGGEST, content=b'{"text": "a"}').status_code == 200
        assert client.app.guard._held == 0
        assert client.request("GET", "/v1/health", content=b"abc").status_code == 200  # a method without a body

    def test_clients_that_leave(self):
        monitor = Monitor({}, None)
        guard = Guard(None, Limits(), Access(), monitor)

        async def receive():
            return {"type": "http.disconnect"}

        scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-length", b"5")]}
        asyncio.run(guard(scope, receive, None))
        assert monitor.requests == {("none", "POST", 499): 1}


def test_web_sockets_are_closed(client):
    sent = []

    async def main():
        async def receive():
            return {"type": "websocket.connect"}

        async def send(message):
            sent.append(message)

        await client.app({"type": "websocket", "path": "/"}, receive, send)

    client.run(main())
    assert sent == [{"type": "websocket.close", "code": 1008}]


class TestLog:
    def test_a_line_without_texts(self, client, caplog):
        with caplog.at_level(logging.INFO, "circlet.serve"):
            client.post(SUGGEST, json={"text": "secret"})
            client.get("/v1/models/colors/labels", params={"query": "secret"})
            client.get("/v1/models/a%0Ab")
        assert "secret" not in caplog.text
        lines = [record.getMessage() for record in caplog.records if record.name == "circlet.serve"]
        assert lines[0].startswith(f"127.0.0.1 POST {SUGGEST} 200 ")
        assert lines[2].startswith("127.0.0.1 GET /v1/models/a%0Ab 404 ")

    def test_texts_if_asked_for_and_nothing_if_quiet(self, start, served, caplog):
        client = start([served], log_requests=False, log_texts=True)
        with caplog.at_level(logging.INFO, "circlet.serve"):
            start([served], log_requests=False).get("/v1/health")
            client.post(SUGGEST, json={"text": "one\ntwo" + "x" * 1000})
        assert '["one\\ntwoxxx' in caplog.text
        assert "x" * 300 not in caplog.text
        assert "GET" not in caplog.text


def samples(text):
    """What a scrape found: values by name and labels."""
    families = list(text_string_to_metric_families(text))
    every = [sample for family in families for sample in family.samples]
    found = {(sample.name, *sorted(sample.labels.items())): sample.value for sample in every}
    return found, {family.name: family.type for family in families}


class TestRates:
    def test_a_burst_and_then_the_rate(self):
        own = Rates(10)
        assert [own.wait("a", 5.0) for _ in range(20)] == [0.0] * 20
        assert own.wait("a", 5.0) == pytest.approx(0.1)
        assert own.wait("a", 5.05) == pytest.approx(0.05)
        assert own.wait("a", 5.11) == 0
        assert own.wait("b", 5.11) == 0
        slow = Rates(0.1)  # lets one in
        assert [slow.wait("a", 0.0) for _ in range(2)] == [0, pytest.approx(10)]
        assert {Rates(0).wait("a", 0.0) for _ in range(10_000)} == {0.0}  # no limit

    def test_silent_clients_are_forgotten(self):
        own = Rates(1, clients=3)
        for client in "abcd":
            own.wait(client, 0.0)
        assert list(own._buckets) == ["b", "c", "d"]

    @pytest.mark.parametrize(
        ("address", "bucket"),
        [
            ("127.0.0.1", "127.0.0.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
            ("fe80::1%eth0", "fe80::/64"),
            ("x:y", "x:y"),
            ("", ""),
        ],
    )
    def test_buckets(self, address, bucket):
        assert bucket_of(address) == bucket


class TestMonitor:
    def test_a_service(self, client, served, start):
        client.post("/v1/models/colors/suggest", json={"texts": ["a", "b"]})
        client.post("/v1/models/colors/suggest", json={})
        client.get("/nowhere")
        answer = client.get("/metrics")
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        found, types = samples(answer.text)
        route = ("route", "/v1/models/{model}/suggest")
        post = ("method", "POST")
        assert found["circlet_requests_total", post, route, ("status", "200")] == 1
        assert found["circlet_requests_total", post, route, ("status", "422")] == 1
        assert found["circlet_requests_total", ("method", "GET"), ("route", "none"), ("status", "404")] == 1
        assert found["circlet_request_seconds_count", route] == 2
        assert found["circlet_request_seconds_bucket", ("le", "+Inf"), route] == 2
        assert found["circlet_documents_total",] == 2
        assert found["circlet_batches_total",] == 1
        assert found["circlet_queue_documents",] == 0
        version = ("version", served.current.version)
        assert found["circlet_model_info", ("circlet", __version__), ("model", "colors"), version] == 1
        for state in ("idle", "learning", "failed"):
            assert found["circlet_learning_state", ("model", "colors"), ("state", state)] == (state == "idle")
        assert found["circlet_feedback_taught", ("model", "colors")] == 0
        assert found["circlet_feedback_waiting", ("model", "colors")] == 0
        assert types == {
            **dict.fromkeys(("circlet_requests", "circlet_documents", "circlet_batches"), "counter"),
            "circlet_request_seconds": "histogram",
            **dict.fromkeys(("circlet_queue_documents", "circlet_model_info", "circlet_learning_state"), "gauge"),
            **dict.fromkeys(("circlet_feedback_taught", "circlet_feedback_waiting"), "gauge"),
        }
        found, _ = samples(start([served]).get("/metrics").text)  # applications share nothing
        assert not any(name == "circlet_requests_total" for name, *_ in found)

    def test_histogram(self, client):
        monitor = Monitor({}, client.app.service.batcher)
        for seconds in (0.001, 0.0011, 3.0, 100.0):
            monitor.observe('a"\n\\', "GET", 200, seconds)
        found, _ = samples(monitor.text())
        route = ("route", 'a"\n\\')
        below = {end: found["circlet_request_seconds_bucket", ("le", str(end)), route] for end in BUCKETS}
        assert [below[end] for end in (0.001, 0.0025, 2.5, 5.0, 10.0)] == [1, 2, 2, 3, 3]
        assert found["circlet_request_seconds_bucket", ("le", "+Inf"), route] == 4
        assert found["circlet_request_seconds_count", route] == 4
        assert found["circlet_request_seconds_sum", route] == 103.0021
        assert sorted(BUCKETS) == list(BUCKETS)
