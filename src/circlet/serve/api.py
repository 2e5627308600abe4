"""The endpoints of the service: read a request, compute, and write the response.

There are endpoints for models and their labels, suggestions, explanations and similar documents; for feedback; and
Annif's dialect, in which each model is a project, for Annif's `http` backend and its other clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl

import anyio.to_thread
from fastapi import APIRouter, HTTPException, Query, Request, Response
from pydantic import BaseModel, ValidationError

from circlet.data.feedback import Entry
from circlet.errors import CircletError, shortened
from circlet.runtime.answers import Suggestion, rounded
from circlet.runtime.explain import Explanation
from circlet.serve import schemas
from circlet.serve.batching import Batcher, Compute, OverloadedError
from circlet.serve.feedback import Learner
from circlet.serve.guard import Limits, answer
from circlet.serve.served import Options, Served, Snapshot
from circlet.version import __version__

Body = TypeVar("Body", bound=BaseModel)
#: Most labels or entries of a list.
MOST = 1000


def parse(request: Request, kind: type[Body]) -> Body:
    """Parse the body of a request as an object of this kind; respond 422 with one sentence if it is invalid."""
    try:
        if kind is not schemas.SuggestForm:
            return kind.model_validate_json(request.state.body)
        content = request.state.body.decode("ascii")
        fields = parse_qsl(
            content,
            keep_blank_values=True,
            strict_parsing=bool(content),
            errors="strict",
            max_num_fields=1000,  # Annif sends a few, and one for each piece of a document's metadata
        )
        return kind.model_validate(dict(fields))
    except ValidationError as error:
        raise HTTPException(422, found_wanted(error.errors(include_url=False, include_context=False))) from None
    except ValueError as error:
        raise HTTPException(422, f"found no form ({error}); wanted `text=…`, URL-encoded") from None


def found_wanted(errors: Iterable[Any]) -> str:
    """Format the first of pydantic's errors in the style of the command line."""
    first = next(iter(errors))
    message = str(first["msg"]).removeprefix("Value error, ")
    # FastAPI says first where a parameter was.
    start = int(len(first["loc"]) > 1 and first["loc"][0] in ("body", "query", "path"))
    place = ".".join(map(str, first["loc"][start:]))
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


def takes(kind: type[BaseModel], media_type: str = "application/json") -> dict[str, Any]:
    """Return a route's options that describe the body that `parse` reads, for OpenAPI."""
    content = {media_type: {"schema": kind.model_json_schema()}}
    return {"openapi_extra": {"requestBody": {"required": True, "content": content}}}


class Service:
    """The state and the checks that all endpoints share."""

    def __init__(self, models: list[Served], limits: Limits) -> None:
        self.models = {model.name: model for model in models}
        self.limits, self.batcher = limits, Batcher(limits.queue)
        #: Seconds after which the service watches whether a waiting client has disconnected.
        self.watch_after = 0.1

    def model(self, name: str) -> Served:
        """Return the model with this id, or respond 404."""
        if name not in self.models:
            known = ", ".join(sorted(self.models))
            raise HTTPException(404, f"found no model {name[:80]!r}; wanted one of {known}")
        return self.models[name]

    def learner(self, name: str) -> Learner:
        """Return the learner of the model with this id, or respond 409."""
        learner = self.model(name).learner
        if learner is None:
            raise HTTPException(409, f"found {name!r}, which does not learn here; wanted `circlet serve --learn`")
        return learner

    def check_k(self, k: int) -> None:
        """Respond 422 if `k` exceeds the limit."""
        if k > self.limits.k:
            raise HTTPException(422, f"`k`: found {k:,}; wanted at most {self.limits.k}")

    def check_count(self, documents: int) -> None:
        """Respond 413 if there are too many documents."""
        if documents > self.limits.documents:
            most = self.limits.documents
            raise HTTPException(413, f"found {documents:,} documents; wanted at most {most:,} in a request")

    def check_texts(self, request: Request, texts: list[str]) -> None:
        """Respond 413 if there are too many texts, or one is too long; keep the texts for the log."""
        self.check_count(len(texts))
        longest, most = max(map(len, texts), default=0), self.limits.characters
        if longest > most:
            raise HTTPException(413, f"found a text of {longest:,} characters; wanted at most {most:,}")
        request.state.texts = texts

    def texts(self, request: Request, now: Snapshot, texts: list[str]) -> list[str]:
        """Return texts; respond 413 if they are too many or too long, or 422 if the model takes rows."""
        if now.takes == "rows":
            raise HTTPException(422, "found texts; this model was trained on feature rows and wants `rows`")
        self.check_texts(request, texts)
        return texts

    async def compute(self, request: Request, key: Any, compute: Compute, documents: list[Any]) -> Any:
        """Compute in the batcher; respond 503 if its queue is full. Drop requests whose client disconnects."""
        try:
            future = self.batcher.submit(key, compute, documents)
        except OverloadedError:
            raise HTTPException(
                503,
                f"found {self.batcher.waiting:,} documents waiting; wanted room for {len(documents):,} more: "
                "try again later",
                {"Retry-After": "1"},
            ) from None
        watching: list[asyncio.Task[None]] = []

        async def watch() -> None:
            if (await request.receive())["type"] == "http.disconnect":  # the body has come; nothing else can
                future.cancel()

        loop = asyncio.get_running_loop()
        timer = loop.call_later(self.watch_after, lambda: watching.append(loop.create_task(watch())))
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

    def close(self) -> None:
        """Stop computing and learning."""
        self.batcher.close()
        for model in self.models.values():
            if model.learner is not None:
                model.learner.close()


def api_routes(service: Service) -> APIRouter:  # noqa: PLR0915 — one after the other
    """Return the endpoints of models, labels, suggestions and explanations."""
    faults = {code: {"model": schemas.Fault} for code in (401, 404, 413, 422, 429, 503)}
    routes = APIRouter(prefix="/v1", tags=["circlet"], responses=faults)  # type: ignore[arg-type]

    async def compute_one(request: Request, function: Any, document: Any) -> Any:
        """Call a function on one document in the computing thread."""
        (found,) = await service.compute(request, object(), function, [document])
        return found

    @routes.get("/health", response_model=schemas.Health)
    async def health(request: Request) -> Response:
        """Whether the service is up; only clients that may use the models get their names."""
        names = sorted(service.models) if request.state.trusted else []
        return answer({"status": "ok", "version": __version__, "models": names})

    @routes.get("/models", response_model=schemas.Models)
    async def models() -> Response:
        """The models that are served."""
        return answer({"models": [each.summary() for each in service.models.values()]})

    @routes.get("/models/{model}", response_model=schemas.Card)
    async def card(model: str) -> Response:
        """Facts about a model, its training, and the settings chosen for it."""
        return answer(service.model(model).card())

    @routes.get("/models/{model}/labels", response_model=schemas.Labels)
    async def labels(
        model: str,
        query: Annotated[str, Query(max_length=1000)] = "",
        limit: Annotated[int, Query(ge=0, le=MOST)] = 20,
    ) -> Response:
        """Labels that start with the query, then those that contain it; frequent ones first in each group."""
        now = service.model(model).current
        found, total = await anyio.to_thread.run_sync(lambda: now.search.find(query, limit))
        return answer({"labels": found, "total": total})

    @routes.get("/models/{model}/near", response_model=schemas.Near)
    async def near(
        request: Request, model: str, label: str, k: Annotated[int, Query(ge=1, le=MOST)] = 10
    ) -> Response:
        """The labels most similar to a label."""
        now = service.model(model).current
        (own,) = own_labels(now, [label])
        found, similarities = await compute_one(request, lambda _: [now.tagger.near_labels(own, k)], own)
        pairs = zip(found, similarities, strict=True)
        return answer({"label": str(own), "near": [{"label": str(a), "similarity": rounded(b)} for a, b in pairs]})

    @routes.post("/models/{model}/suggest", response_model=schemas.Suggestions, **takes(schemas.SuggestRequest))
    async def suggest(request: Request, model: str) -> Response:
        """The best labels of documents, with probabilities."""
        asked, now = parse(request, schemas.SuggestRequest), service.model(model).current
        service.check_k(asked.k)
        allowed = None
        if asked.allowed is not None:
            own_labels(now, asked.allowed)
            allowed = tuple(sorted(set(asked.allowed)))
        least = now.tagger.ranking_threshold(
            "auto" if asked.threshold is None else asked.threshold, favor_rare=asked.favor_rare
        )
        key, function = now.suggesting(Options(asked.k, least.value or None, asked.favor_rare, allowed))
        if asked.rows is not None:
            documents: list[Any] = rows(now, asked.rows)
        else:
            documents = service.texts(request, now, [asked.text] if asked.text is not None else asked.texts or [])
        found = await service.compute(request, key, function, documents)
        results = [{"labels": [suggestion(each) for each in row]} for row in found]
        used = {"threshold": least.value, "threshold_from": least.origin}
        return answer({"model": model, "version": now.version, **used, "results": results})

    @routes.post("/models/{model}/explain", response_model=schemas.Explanations, **takes(schemas.ExplainRequest))
    async def explain(request: Request, model: str) -> Response:
        """The words of a text that speak for and against its labels."""
        asked, now = parse(request, schemas.ExplainRequest), service.model(model).current
        service.check_k(max(asked.k, len(asked.labels or ())))
        wanted = None if asked.labels is None else own_labels(now, asked.labels)
        (text,) = service.texts(request, now, [asked.text])
        found = await compute_one(request, lambda each: now.tagger.explain(each, asked.k, wanted), text)
        explanations = [explanation(each) for each in found]
        return answer({"model": model, "version": now.version, "explanations": explanations})

    @routes.post(
        "/models/{model}/similar",
        response_model=schemas.SimilarDocuments,
        responses={409: {"model": schemas.Fault}},
        **takes(schemas.SimilarRequest),
    )
    async def similar(request: Request, model: str) -> Response:
        """The training documents that are most similar to a text."""
        asked, now = parse(request, schemas.SimilarRequest), service.model(model).current
        service.check_k(asked.k)
        if not now.tagger.has_index:
            raise HTTPException(
                409, "found no index of training documents; wanted a model of `circlet train --keep-index`"
            )
        (text,) = service.texts(request, now, [asked.text])
        ids, similarities = await compute_one(
            request, lambda each: [[part[0] for part in now.tagger.similar(each, asked.k)]], text
        )
        pairs = zip(ids, similarities, strict=True)
        documents = [{"id": a if isinstance(a, str) else int(a), "similarity": rounded(b)} for a, b in pairs]
        return answer({"documents": documents})

    def rows(now: Snapshot, found: list[dict[str, float]]) -> list[Any]:
        if now.takes == "texts":
            raise HTTPException(422, "found `rows`; this model was trained on texts and wants `text` or `texts`")
        service.check_count(len(found))
        n_features = now.tagger.model_.n_features
        for column in (column for row in found for column in row):
            if not column.isdecimal() or len(column) > 18 or int(column) >= n_features:
                raise HTTPException(
                    422, f"`rows`: found column {column[:40]!r}; wanted numbers from 0 to {n_features - 1}"
                )
        return [{int(column): value for column, value in row.items()} for row in found]

    return routes


def suggestion(found: Suggestion) -> dict[str, Any]:
    """Convert a suggestion for JSON, with the label's URI if it has one."""
    uri = {} if found.uri is None else {"uri": found.uri}
    return {"label": str(found.label), **uri, "probability": found.score}


def explanation(found: Explanation) -> dict[str, Any]:
    """Convert an explanation for JSON."""
    contributions = [{**vars(each), "value": rounded(each.value)} for each in found.contributions]
    return {
        "label": str(found.label),
        **{name: rounded(getattr(found, name)) for name in ("probability", "score", "base")},
        "contributions": contributions,
        "spans": [(start, end, rounded(value)) for start, end, value in found.spans()],
    }


def own_labels(now: Snapshot, names: list[str]) -> list[Any]:
    """Return the tagger's labels for names or URIs; respond 404 if one is unknown."""
    for name in names:
        if name not in now.labels:
            raise HTTPException(404, f"found no label {name[:200]!r} among {len(now.names):,}; wanted known ones")
    return [now.labels[name] for name in names]


def feedback_routes(service: Service) -> APIRouter:
    """Return the endpoints of feedback and learning."""
    faults = {code: {"model": schemas.Fault} for code in (401, 404, 409, 413, 422, 429, 503)}
    routes = APIRouter(prefix="/v1/models/{model}", tags=["learning"], responses=faults)  # type: ignore[arg-type]
    in_thread = anyio.to_thread.run_sync  # what writes to the disk, and waits for it

    def learn_soon(learner: Learner, entry: Entry) -> dict[str, Any]:
        """Start learning, and return the response for recorded or undone feedback."""
        learner.notify()
        return {"id": entry.id, "learning": learner.state()}

    @routes.post("/feedback", status_code=201, response_model=schemas.Recorded, **takes(schemas.FeedbackRequest))
    async def give(request: Request, model: str) -> Response:
        """Say which labels of a text are right and which are wrong; the model learns from it."""
        asked, learner = parse(request, schemas.FeedbackRequest), service.learner(model)
        now = service.model(model).current
        service.check_texts(request, [asked.text])
        # Known labels are stored by name, even if the client sent URIs.
        accept = [str(now.labels.get(label, label)) for label in asked.accept]
        reject = [str(label) for label in own_labels(now, asked.reject)]
        entry = await in_thread(learner.feedback.add, asked.text, accept, reject, now.version)
        return answer(await in_thread(learn_soon, learner, entry), 201)

    @routes.get("/feedback", response_model=schemas.Entries)
    async def listed(model: str, limit: Annotated[int, Query(ge=0, le=MOST)] = 20) -> Response:
        """Feedback, the latest first."""
        found = await in_thread(lambda log: log.entries(active_only=False), service.learner(model).feedback)
        names = {"accepted": "accept", "rejected": "reject"}
        latest = found[: -limit - 1 : -1]
        entries = [{names.get(key, key): value for key, value in vars(each).items()} for each in latest]
        return answer({"entries": entries})

    @routes.delete("/feedback/{entry}", response_model=schemas.Recorded)
    async def undo(model: str, entry: str) -> Response:
        """Undo feedback."""
        learner = service.learner(model)
        try:
            undone = await in_thread(learner.feedback.undo, entry)
        except CircletError as error:
            raise HTTPException(404, str(error)) from None
        return answer(await in_thread(learn_soon, learner, undone))

    @routes.get("/learning", response_model=schemas.Learning)
    async def learning(model: str) -> Response:
        """The state of learning from feedback."""
        return answer(await in_thread(service.learner(model).state))

    @routes.post("/rollback", response_model=schemas.Version)
    async def roll_back(model: str) -> Response:
        """Serve the previous version."""
        learner = service.learner(model)
        try:
            return answer({"version": await in_thread(learner.roll_back)})
        except CircletError as error:
            raise HTTPException(409, str(error)) from None

    return routes


def annif_routes(service: Service) -> APIRouter:
    """Return the endpoints in Annif's dialect."""
    routes = APIRouter(prefix="/v1/projects", tags=["Annif"])

    def project_of(model: Served) -> dict[str, Any]:
        undetermined = "und"  # nothing says which language the labels of a model are in
        return {
            "project_id": model.name,
            "name": model.name,
            "language": undetermined,
            "backend": {"backend_id": "circlet"},
            "vocab": {
                "vocab_id": model.name,
                "languages": [undetermined],
                "size": len(model.current.names),
                "loaded": True,
            },
            "vocab_language": undetermined,
            "is_trained": True,
            "modification_time": model.about["modified"],
        }

    @routes.get("")
    async def projects() -> Response:
        """The models, in the form of Annif's projects."""
        return answer({"projects": [project_of(model) for model in service.models.values()]})

    @routes.get("/{model}")
    async def project(model: str) -> Response:
        """A model, in the form of one of Annif's projects."""
        return answer(project_of(service.model(model)))

    form = takes(schemas.SuggestForm, "application/x-www-form-urlencoded")

    @routes.post("/{model}/suggest", response_model=schemas.AnnifResults, **form)
    async def suggest(request: Request, model: str) -> Response:
        """The best labels of a text, in the form of Annif's subjects; a label without a URI is its own URI."""
        asked, now = parse(request, schemas.SuggestForm), service.model(model).current
        if now.takes == "rows":
            raise HTTPException(
                422, "found a text; this model was trained on feature rows, which Annif has none of"
            )
        service.check_texts(request, [asked.text])
        limit = min(asked.limit, service.limits.k)  # Annif may ask for 1,000 by itself, and takes fewer
        if not limit:
            return answer({"results": []})
        key, function = now.suggesting(Options(limit, asked.threshold or None))
        (found,) = await service.compute(request, key, function, [asked.text])
        results = [
            {
                "uri": str(each.label) if each.uri is None else each.uri,
                "label": str(each.label),
                "notation": None,
                "score": each.score,
            }
            for each in found
        ]
        return answer({"results": results})

    return routes
