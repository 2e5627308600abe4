"""The application: endpoints, the page, and the guard in front of them."""

from __future__ import annotations

import hashlib
import mimetypes
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from circlet.errors import CircletError
from circlet.serve.api import Service, annif_routes, answer, api_routes, found_wanted, teaching_routes
from circlet.serve.guard import Access, Guard, Limits, Monitor
from circlet.serve.served import Served
from circlet.version import __version__

__all__ = ["App", "create_app", "static_routes"]


class App:
    """An ASGI application that serves models.

    Attributes
    ----------
    service : Service
    guard : Guard
    """

    def __init__(self, service: Service, guard: Guard, outermost: Any) -> None:
        self.service, self.guard, self._outermost = service, guard, outermost

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._outermost(scope, receive, send)


def create_app(
    models: list[Served],
    limits: Limits | None = None,
    access: Access | None = None,
    *,
    log_requests: bool = True,
    log_texts: bool = False,
) -> App:
    """Make an ASGI application for models; its thread ends with the lifespan or `service.close`.

    Parameters
    ----------
    models : list of Served
    limits : Limits, optional
    access : Access, optional
        Who may use the service; by default everybody who can reach it.
    log_requests, log_texts : bool
        Whether to log a line per request, and the texts in it.
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
    for routes in (own, teaching_routes(service), annif_routes(service), static_routes()):
        api.include_router(routes)

    @api.get("/metrics", tags=["circlet"], response_class=Response)
    async def metrics() -> Response:
        """Counts for Prometheus."""
        return Response(monitor.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @api.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> Response:
        detail = str(error.detail)
        if error.status_code == 404 and detail == "Not Found":
            detail = "found nothing under this path; wanted one that /openapi.json lists"
        elif error.status_code == 405:
            detail = "found a method that this path does not have; wanted one that /openapi.json lists"
        found = answer({"detail": detail}, error.status_code)
        found.headers.update(error.headers or {})
        return found

    @api.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> Response:
        return answer({"detail": found_wanted(error.errors())}, 422)

    @api.exception_handler(CircletError)
    async def mistaken(_: Request, error: CircletError) -> Response:
        return answer({"detail": str(error)}, 422)

    path = "/v1/models/{model}/suggest"
    (suggest,) = (route for route in own.routes if isinstance(route, APIRoute) and route.path == path)
    direct = _Direct(api, suggest, {HTTPException: refused, CircletError: mistaken})
    guard = Guard(direct, limits, access, monitor, log_requests=log_requests, log_texts=log_texts)
    if not access.origins:
        return App(service, guard, guard)
    from starlette.middleware.cors import CORSMiddleware

    shared = CORSMiddleware(
        guard,
        allow_origins=sorted(access.origins),
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["Authorization", "Content-Type"],
        expose_headers=["Retry-After"],
    )
    return App(service, guard, shared)


class _Direct:
    """Calls the most important endpoint without FastAPI's router, which takes longer than everything else.

    Parameters
    ----------
    app : ASGI application
        Handles all other requests.
    route : APIRoute
        POST, with a model in its path.
    handlers : dict
        The handlers of each kind of error.
    """

    def __init__(self, app: Any, route: APIRoute, handlers: dict[type[Exception], Any]) -> None:
        self.app, self.route, self.handlers = app, route, handlers
        self._path = re.compile(route.path.replace("{model}", "([^/]+)"))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        found = self._path.fullmatch(scope["path"]) if scope.get("method") == "POST" else None
        if found is None:
            await self.app(scope, receive, send)
            return
        scope["route"], request = self.route, Request(scope, receive)
        try:
            response = await self.route.endpoint(request, found[1])
        except tuple(self.handlers) as error:
            handler = next(answer for kind, answer in self.handlers.items() if isinstance(error, kind))
            response = await handler(request, error)
        await response(scope, receive, send)


def static_routes(folder: Path = Path(__file__).parent / "page") -> APIRouter:
    """Serve the page at / and its files below /page/, all read once: no client's path reaches the disk."""
    # Systems differ in these types.
    types = {".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
    #: By name: content, type and tag.
    files: dict[str, tuple[bytes, str, str]] = {}
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        if path.is_file() and not path.name.startswith("."):
            kind = types.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
            kind, content = f"{kind}; charset=utf-8" if kind.startswith("text/") else kind, path.read_bytes()
            tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
            files[path.relative_to(folder).as_posix()] = content, kind, tag
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
