from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from fastapi import FastAPI

from circlet.errors import DataError
from circlet.serve.app import static_routes


def test_openapi_describes_everything_with_examples_that_work(client):
    spec = client.get("/openapi.json").json()
    assert set(spec["paths"]) == {
        "/metrics", "/v1/health", "/v1/models", "/v1/models/{model}", "/v1/models/{model}/labels",
        "/v1/models/{model}/near", "/v1/models/{model}/suggest", "/v1/models/{model}/explain",
        "/v1/models/{model}/similar", "/v1/models/{model}/feedback", "/v1/models/{model}/feedback/{entry}",
        "/v1/models/{model}/learning", "/v1/models/{model}/rollback", "/v1/projects", "/v1/projects/{model}",
        "/v1/projects/{model}/suggest",
    }  # fmt: skip
    body = spec["paths"]["/v1/models/{model}/suggest"]["post"]["requestBody"]["content"]["application/json"]
    assert body["schema"]["examples"][0]["k"] == 3
    assert "$ref" not in json.dumps(body)
    for path in ("suggest", "explain", "similar"):
        body = spec["paths"][f"/v1/models/{{model}}/{path}"]["post"]["requestBody"]["content"]["application/json"]
        for example in body["schema"]["examples"]:
            assert client.post(f"/v1/models/colors/{path}", json=example).status_code == 200


def test_unknown_paths_and_methods(client):
    for path in ("/docs", "/v1/", "/v1/models/"):
        answer = client.get(path)
        assert answer.status_code == 404
        assert answer.json()["detail"].startswith("found n")
    answer = client.request("PUT", "/v1/models")
    assert answer.status_code == 405
    assert answer.json()["detail"].startswith("found a method")


def test_errors_of_the_library_are_the_client_s(client, tagger, monkeypatch):
    def fail(*_, **__):
        raise DataError("found something else; wanted a text")

    monkeypatch.setattr(tagger, "explain", fail)
    answer = client.post("/v1/models/colors/explain", json={"text": "a"})
    assert (answer.status_code, answer.json()) == (422, {"detail": "found something else; wanted a text"})


@pytest.fixture
def get(tmp_path):
    files = {"index.html": "<title>page</title>", "app.js": "1", "icon.svg": "<svg/>", ".secret": "no"}
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    app = FastAPI()
    app.include_router(static_routes(tmp_path))

    def fetch(path, **headers):
        async def main():
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await client.get(path, headers=headers)

        return asyncio.run(main())

    return fetch


def test_files(get):
    assert get("/").text == get("/page/index.html").text == "<title>page</title>"
    assert get("/").headers["Content-Type"] == "text/html; charset=utf-8"
    assert get("/page/app.js").headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert get("/page/icon.svg").headers["Content-Type"] == "image/svg+xml"
    tag = get("/").headers["ETag"]
    answer = get("/", **{"If-None-Match": tag})  # what is unchanged is not sent again
    assert (answer.status_code, answer.content) == (304, b"")
    assert get("/page/app.js", **{"If-None-Match": tag}).status_code == 200


@pytest.mark.parametrize("path", ["/page/", "/page/.secret", "/page/%2e%2e/app.js", "/page//etc/passwd"])
def test_nothing_else(get, path):
    assert get(path).status_code == 404
