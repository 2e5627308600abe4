"""How endpoints read a request and write their answer: bodies that the guard has kept, JSON without detours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar

from fastapi import HTTPException, Request, Response
from pydantic import BaseModel, ValidationError

from circlet.errors import shortened
from circlet.serve.batching import Batcher, Compute, OverloadedError
from circlet.serve.limits import Limits

__all__ = ["answer", "check_k", "check_texts", "computed", "described_body", "found_wanted", "parsed"]

#: Where the guard leaves a request's body.
BODY = "circlet.body"
#: Where endpoints leave the texts of a request, for the log, if that was asked for.
TEXTS = "circlet.texts"
#: Seconds until it is watched whether a client that waits is still there.
WATCH = 0.1

Body = TypeVar("Body", bound=BaseModel)


def parsed(request: Request, kind: type[Body]) -> Body:
    """The body of a request as an object of this kind; 422 with one sentence if it is none."""
    try:
        return kind.model_validate_json(request.scope[BODY])
    except ValidationError as error:
        raise HTTPException(422, found_wanted(error.errors(include_url=False, include_context=False))) from None


def found_wanted(errors: Iterable[Any]) -> str:
    """The first of pydantic's errors, in the words of the command line."""
    first = next(iter(errors))
    message = str(first["msg"]).removeprefix("Value error, ")
    place = ".".join(str(each) for each in first["loc"] if each not in ("body", "query", "path"))
    if first["type"] in ("value_error", "json_invalid"):
        return shortened(message)
    if first["type"] == "missing":
        return shortened(f"found no `{place}`; wanted one")
    if first["type"] == "extra_forbidden":
        return shortened(f"found `{place}`, which is not a known field; wanted none or another name")
    found = repr(first.get("input"))
    found = found if len(found) <= 80 else f"{found[:80]}…"
    wanted = message.removeprefix("Input should be ").removeprefix("a valid ")
    return shortened(f"`{place}`: found {found}; wanted {wanted[:1].lower()}{wanted[1:]}")


@cache
def described_body(kind: type[BaseModel]) -> dict[str, Any]:
    """What OpenAPI says about a body that `parsed` reads."""
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": kind.model_json_schema()}}}
    }


def answer(content: Any, status: int = 200) -> Response:
    """A JSON response, without the checks that FastAPI would make of our own numbers."""
    encoded = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    return Response(encoded, status, media_type="application/json")


def check_texts(request: Request, texts: list[str], limits: Limits) -> None:
    """413 if there are too many texts, or one is too long; leaves them for the log."""
    if len(texts) > limits.documents:
        raise HTTPException(
            413, f"found {len(texts):,} documents; wanted at most {limits.documents:,} in a request"
        )
    longest = max(map(len, texts), default=0)
    if longest > limits.characters:
        raise HTTPException(413, f"found a text of {longest:,} characters; wanted at most {limits.characters:,}")
    request.scope[TEXTS] = texts


def check_k(k: int, limits: Limits) -> None:
    """422 if more is asked for than may be."""
    if k > limits.k:
        raise HTTPException(422, f"`k`: found {k:,}; wanted at most {limits.k}")


async def computed(request: Request, batcher: Batcher, key: Any, compute: Compute, documents: list[Any]) -> Any:
    """What the batcher computes of documents; 503 if it has no room. Clients that leave are dropped."""
    try:
        future = batcher.submit(key, compute, documents)
    except OverloadedError:
        raise HTTPException(
            503,
            f"found {batcher.waiting:,} documents waiting; wanted room for {len(documents):,} more: "
            "try again later",
            {"Retry-After": "1"},
        ) from None
    watching: list[asyncio.Task[None]] = []

    async def watch() -> None:
        if (await request.receive())["type"] == "http.disconnect":  # the body has come; nothing else can
            future.cancel()

    loop = asyncio.get_running_loop()
    timer = loop.call_later(WATCH, lambda: watching.append(loop.create_task(watch())))
    try:
        return await future
    except asyncio.CancelledError:
        if not watching or not future.cancelled() or not watching[0].done():
            raise
        raise HTTPException(499, "the client left before its answer was ready") from None
    finally:
        timer.cancel()
        for task in watching:
            task.cancel()
