"""Requests of every wrong kind: whatever comes in, it is answered or refused, and never fails inside."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from typing import Any

import pytest

from circlet.serve.guard import Access, Limits

#: What requests may be answered with.
EXPECTED = {200, 201, 304, 400, 403, 404, 405, 409, 413, 422, 429, 503}
PATHS = [
    "/", "/metrics", "/openapi.json", "/v1/health", "/v1/models", "/v1/models/colors", "/v1/models/colors/labels",
    "/v1/models/colors/near", "/v1/models/colors/suggest", "/v1/models/colors/explain",
    "/v1/models/colors/similar",
    "/v1/models/colors/feedback", "/v1/models/colors/feedback/1", "/v1/models/colors/learning",
    "/v1/models/colors/rollback", "/v1/projects", "/v1/projects/colors", "/v1/projects/colors/suggest",
    "/v1/models/none/suggest", "/page/app.js", "/page/../x", "/v1/models/%00", "/v1//models", "/v1/models/日本",
]  # fmt: skip
FIELDS = [
    "text", "texts", "rows", "k", "threshold", "allowed", "favor_rare", "labels", "accept", "reject", "limit",
    "label", "query", "model", "", "日本",
]  # fmt: skip
TEXTS = [
    "", "a", "label0 one", "größer 日本", "\x00", "\u202e", "a" * 3000, "red", "\n", "1", "NaN", "null", "'; --",
    "<script>", "../../etc/passwd", "😀", "٣",
]  # fmt: skip
NUMBERS = [
    0, 1, 2, 5, 100, 101, -1, 2**31, 2**63, 10**40, 0.5, -0.0, 1e-320, 1e308, float("nan"), float("inf"), 1.0,
]  # fmt: skip
HEADERS = [
    {}, {}, {}, {"Content-Type": "text/plain"}, {"Origin": "http://evil.example"}, {"Origin": "http://localhost"},
    {"Host": "evil.example"}, {"Content-Length": "99999999999999999999"}, {"Content-Length": "-1"},
    {"Content-Length": "x"}, {"Authorization": "Bearer x"}, {"If-None-Match": "*"}, {"Cookie": "a=b" * 100},
]  # fmt: skip


def value(random: random.Random, depth: int = 0) -> Any:  # noqa: PLR0911
    """Something that JSON can say."""
    kind = random.randrange(8 if depth < 3 else 5)
    if kind < 2:
        return random.choice(TEXTS)
    if kind == 2:
        return random.choice(NUMBERS)
    if kind == 3:
        return random.choice([None, True, False])
    if kind == 4:
        return ["red", "a", "label0"][: random.randrange(4)]
    if kind == 5:
        return [value(random, depth + 1) for _ in range(random.randrange(4))]
    if kind == 6:
        return {
            random.choice([*FIELDS, *TEXTS, "0", "13"]): value(random, depth + 1)
            for _ in range(random.randrange(4))
        }
    return random.choice([[{}], {}, [], [[]], [{"0": 1}]])


def body(random: random.Random) -> bytes:
    """Good fields and bad ones; sometimes bytes that are no JSON at all."""
    fields = {name: value(random) for name in random.sample(FIELDS, random.randrange(4))}
    if random.random() < 0.7:
        fields["text"] = random.choice(TEXTS)
    encoded = json.dumps(fields, ensure_ascii=random.random() < 0.5).encode()
    chance = random.random()
    if chance < 0.1:
        return bytes(random.randrange(256) for _ in range(random.randrange(40)))
    if chance < 0.2:
        cut = random.randrange(len(encoded) + 1)
        return encoded[:cut] + random.choice([b"", b"\xff", b"\\ud800", b"[" * 300, b'"']) + encoded[cut:]
    if chance < 0.3:
        return b"&".join(
            b"%s=%s" % (name.encode(), random.choice([b"a", b"1", b"%ff", b"+", b""])) for name in fields
        )
    return encoded


def request(random: random.Random) -> dict[str, Any]:
    method = random.choice(["GET", "POST", "POST", "POST", "DELETE", "PUT", "OPTIONS", "HEAD", "BREW"])
    made: dict[str, Any] = {"method": method, "path": random.choice(PATHS), "headers": random.choice(HEADERS)}
    if random.random() < 0.3:
        made["params"] = {name: random.choice([*TEXTS, *map(str, NUMBERS)]) for name in random.sample(FIELDS, 2)}
    if method in ("POST", "PUT", "DELETE"):
        made["content"] = body(random)
    return made


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_never_a_fault_inside(start, served, count):
    client = start(
        [served], Limits(rate=0, body=4000, characters=2000), Access(hosts={"localhost"}), log_requests=False
    )
    chosen, statuses = random.Random(0), Counter[int]()

    async def main():
        for number in range(count):
            asked = request(chosen)
            answer = await client.http.request(asked.pop("method"), asked.pop("path"), **asked)
            statuses[answer.status_code] += 1
            assert answer.status_code in EXPECTED, (number, asked, answer.text)
            if answer.status_code >= 400 and answer.content:
                assert list(answer.json()) == ["detail"], (number, asked, answer.text)

    asyncio.run_coroutine_threadsafe(main(), client.loop).result(600)
    assert {200, 404, 405, 422} <= set(statuses)
    assert client.post("/v1/models/colors/suggest", json={"text": "a"}).status_code == 200
