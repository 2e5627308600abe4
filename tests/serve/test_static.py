from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI

from circlet.serve.app import static_routes


@pytest.fixture
def get(tmp_path):
    import asyncio

    (tmp_path / "parts").mkdir()
    (tmp_path / "index.html").write_text("<title>page</title>", encoding="utf-8")
    (tmp_path / "app.js").write_text("1", encoding="utf-8")
    (tmp_path / "parts" / "icon.svg").write_text("<svg/>", encoding="utf-8")
    (tmp_path / ".secret").write_text("no", encoding="utf-8")
    app = FastAPI()
    app.include_router(static_routes(tmp_path))

    def fetch(path, **headers):
        async def main():
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://localhost"
            ) as client:
                return await client.get(path, headers=headers)

        return asyncio.run(main())

    return fetch


def test_files(get):
    assert get("/").text == get("/page/index.html").text == "<title>page</title>"
    assert get("/").headers["Content-Type"] == "text/html; charset=utf-8"
    assert get("/page/app.js").headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert get("/page/parts/icon.svg").headers["Content-Type"] == "image/svg+xml"


def test_unchanged_files_are_not_sent_again(get):
    tag = get("/").headers["ETag"]
    answer = get("/", **{"If-None-Match": tag})
    assert (answer.status_code, answer.content) == (304, b"")
    assert get("/page/app.js", **{"If-None-Match": tag}).status_code == 200


@pytest.mark.parametrize(
    "path", ["/page/", "/page/.secret", "/page/%2e%2e/app.js", "/page//etc/passwd", "/page/parts"]
)
def test_nothing_else(get, path):
    assert get(path).status_code == 404
