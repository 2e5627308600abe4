"""The application: the endpoints and the page, behind the guard."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from circlet.errors import CircletError
from circlet.serve.api import Service, annif_routes, api_routes, feedback_routes, found_wanted
from circlet.serve.guard import Access, Guard, Limits, Monitor, answer
from circlet.serve.served import Served
from circlet.version import __version__


@dataclass
class App:
    """An ASGI application that serves models."""

    service: Service
    guard: Guard
    outermost: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.outermost(scope, receive, send)


def create_app(
    models: list[Served],
    limits: Limits | None = None,
    access: Access | None = None,
    *,
    log_requests: bool = True,
    log_texts: bool = False,
) -> App:
    """Make an ASGI application for models. Its threads end with the application, or with `service.close`.

    By default, everybody who can reach the service may use it. It may log a line per request, and the texts in it.
    """
    limits, access = limits or Limits(), access or Access()
    service = Service(models, limits)
    monitor = Monitor(service.models, service.batcher)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    api = FastAPI(
        title="circlet",
        version=__version__,
        summary="Tags for documents, from huge label vocabularies.",
        lifespan=lifespan,
        docs_url=None,  # those pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    own = api_routes(service)
    for routes in (own, feedback_routes(service), annif_routes(service), static_routes()):
        api.include_router(routes)

    @api.get("/metrics", tags=["circlet"], response_class=Response)
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(monitor.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def refused(_: Request, error: Any) -> Response:
        if isinstance(error, RequestValidationError):
            return answer({"detail": found_wanted(error.errors())}, 422)
        if isinstance(error, CircletError):
            return answer({"detail": str(error)}, 422)
        detail = str(error.detail)
        if error.status_code == 404 and detail == "Not Found":
            detail = "found nothing under this path; wanted one that /openapi.json lists"
        elif error.status_code == 405:
            detail = "found a method that this path does not have; wanted one that /openapi.json lists"
        return answer({"detail": detail}, error.status_code, error.headers)

    for kind in (HTTPException, RequestValidationError, CircletError):
        api.add_exception_handler(kind, refused)
    template = "/v1/models/{model}/suggest"
    (suggest,) = (route for route in own.routes if isinstance(route, APIRoute) and route.path == template)
    path = re.compile(template.replace("{model}", "([^/]+)"))

    async def direct(scope: Scope, receive: Receive, send: Send) -> None:
        """Call the most important endpoint without FastAPI's router, which takes longer than everything else."""
        found = path.fullmatch(scope["path"]) if scope.get("method") == "POST" else None
        if found is None:
            await api(scope, receive, send)
            return
        scope["route"], request = suggest, Request(scope, receive)
        try:
            response = await suggest.endpoint(request, found[1])
        except (HTTPException, CircletError) as error:
            response = await refused(request, error)
        await response(scope, receive, send)

    guard = Guard(direct, limits, access, monitor, log_requests=log_requests, log_texts=log_texts)
    if not access.origins:
        return App(service, guard, guard)
    shared = CORSMiddleware(
        guard,
        allow_origins=sorted(access.origins),
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["Authorization", "Content-Type"],
        expose_headers=["Retry-After"],
    )
    return App(service, guard, shared)


def static_routes(folder: Path = Path(__file__).parent / "page") -> APIRouter:
    """Serve the page at / and its files below /page/. They are read once: no client's path reaches the disk."""
    # Python's own table is the system's, which may have other types.
    types = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
    #: By name: content, type and tag.
    files: dict[str, tuple[bytes, str, str]] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix in types:
            content = path.read_bytes()
            files[path.name] = content, types[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    routes = APIRouter(include_in_schema=False)

    @routes.api_route("/", methods=["GET", "HEAD"])
    async def index(request: Request) -> Response:
        return await file(request, "index.html")

    @routes.api_route("/page/{name:path}", methods=["GET", "HEAD"])
    async def file(request: Request, name: str) -> Response:
        if name not in files:
            raise HTTPException(404, "found no such page; wanted / or, for programs, /v1/models")
        content, kind, tag = files[name]
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=kind)

    return routes
