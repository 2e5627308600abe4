"""The page's files, read once: no path that a client names reaches the disk."""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request, Response

__all__ = ["static_routes"]

FOLDER = Path(__file__).parent / "page"
INDEX = "index.html"
#: What systems disagree about.
TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def static_routes(folder: Path = FOLDER) -> APIRouter:
    """The page at /, and its files below /page/."""
    found = sorted(folder.rglob("*")) if folder.is_dir() else []
    files = {
        path.relative_to(folder).as_posix(): _File(path)
        for path in found
        if path.is_file() and not path.name.startswith(".")
    }
    routes = APIRouter(include_in_schema=False)

    @routes.api_route("/", methods=["GET", "HEAD"])
    async def index(request: Request) -> Response:
        return answered(request, INDEX)

    @routes.api_route("/page/{name:path}", methods=["GET", "HEAD"])
    async def file(request: Request, name: str) -> Response:
        return answered(request, name)

    def answered(request: Request, name: str) -> Response:
        if name not in files:
            raise HTTPException(404, "found no such page; wanted / or, for programs, /v1/models")
        return files[name].response(request)

    return routes


class _File:
    def __init__(self, path: Path) -> None:
        self.content = path.read_bytes()
        kind = TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        self.type = f"{kind}; charset=utf-8" if kind.startswith("text/") else kind
        self.tag = f'"{hashlib.sha256(self.content).hexdigest()[:20]}"'

    def response(self, request: Request) -> Response:
        headers = {"ETag": self.tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == self.tag:
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.type)
