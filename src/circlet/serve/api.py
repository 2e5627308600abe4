"""The endpoints of the service: models and their labels, suggestions, explanations, similar documents."""

from __future__ import annotations

from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, HTTPException, Query, Request, Response

from circlet.serve import schemas
from circlet.serve.batching import Batcher
from circlet.serve.limits import Limits
from circlet.serve.reading import answer, check_k, check_texts, computed, described_body, parsed
from circlet.serve.served import Options, Served, Snapshot
from circlet.version import __version__

__all__ = ["Service", "api_routes"]

#: Most labels of a list.
MOST = 1000


class Service:
    """What all endpoints share.

    Parameters
    ----------
    models : list of Served
    limits : Limits
    """

    def __init__(self, models: list[Served], limits: Limits) -> None:
        self.models = {model.name: model for model in models}
        self.limits, self.batcher = limits, Batcher(limits.queue)

    def model(self, name: str) -> Served:
        """The model of this id, or 404."""
        if name not in self.models:
            known = ", ".join(sorted(self.models))
            raise HTTPException(404, f"found no model {name[:80]!r}; wanted one of {known}")
        return self.models[name]

    def close(self) -> None:
        """Stop computing and learning."""
        self.batcher.close()
        for model in self.models.values():
            if model.classroom is not None:
                model.classroom.close()


def api_routes(service: Service) -> APIRouter:  # noqa: PLR0915 — one after the other
    """The endpoints, for a service."""
    faults = {code: {"model": schemas.Fault} for code in (401, 404, 413, 422, 429, 503)}
    routes = APIRouter(prefix="/v1", tags=["circlet"], responses=faults)  # type: ignore[arg-type]

    @routes.get("/health", response_model=schemas.Health)
    async def health(request: Request) -> Response:
        """Whether the service is up; the models are named only to those who may use them."""
        names = sorted(service.models) if request.scope.get("circlet.trusted", True) else []
        return answer({"status": "ok", "version": __version__, "models": names})

    @routes.get("/models", response_model=schemas.Models)
    async def models() -> Response:
        """The models that are served."""
        return answer({"models": [each.summary() for each in service.models.values()]})

    @routes.get("/models/{model}", response_model=schemas.Card)
    async def card(model: str) -> Response:
        """What a model is, how it was trained, and what was decided for it."""
        return answer(service.model(model).card())

    @routes.get("/models/{model}/labels", response_model=schemas.Labels)
    async def labels(
        model: str,
        query: Annotated[str, Query(max_length=1000)] = "",
        limit: Annotated[int, Query(ge=0, le=MOST)] = 20,
    ) -> Response:
        """Labels that start with the query, then those that contain it; in both, the most frequent first."""
        now = service.model(model).current
        found, total = await anyio.to_thread.run_sync(lambda: now.search.find(query, limit))
        return answer({"labels": found, "total": total})

    @routes.get("/models/{model}/near", response_model=schemas.Near)
    async def near(
        request: Request, model: str, label: str, k: Annotated[int, Query(ge=1, le=MOST)] = 10
    ) -> Response:
        """Labels that are near a label."""
        now = service.model(model).current
        (own,) = own_labels(now, [label])
        found, similarities = await compute(request, lambda _: [now.tagger.near_labels(own, k)], [own])
        pairs = zip(found, similarities, strict=True)
        return answer({"label": str(own), "near": [{"label": str(a), "similarity": number(b)} for a, b in pairs]})

    @routes.post(
        "/models/{model}/suggest",
        response_model=schemas.Suggestions,
        openapi_extra=described_body(schemas.SuggestRequest),
    )
    async def suggest(request: Request, model: str) -> Response:
        """The best labels of documents, with probabilities."""
        asked, now = parsed(request, schemas.SuggestRequest), service.model(model).current
        check_k(asked.k, service.limits)
        allowed = None
        if asked.allowed is not None:
            own_labels(now, asked.allowed)
            allowed = tuple(sorted(set(asked.allowed)))
        threshold = asked.threshold
        if threshold is None:  # it was chosen for probabilities alone
            threshold = 0.0 if asked.favor_rare else now.threshold
        options = Options(asked.k, threshold, asked.favor_rare, allowed)
        found = await tagged(request, now, options, documents_of(request, now, asked))
        results = [{"labels": suggested(now, row)} for row in found]
        return answer({"model": model, "version": now.version, "results": results})

    @routes.post(
        "/models/{model}/explain",
        response_model=schemas.Explanations,
        openapi_extra=described_body(schemas.ExplainRequest),
    )
    async def explain(request: Request, model: str) -> Response:
        """What in a text speaks for and against its labels."""
        asked, now = parsed(request, schemas.ExplainRequest), service.model(model).current
        check_k(max(asked.k, len(asked.labels or ())), service.limits)
        wanted = None if asked.labels is None else own_labels(now, asked.labels)
        texts = texts_for(request, now, [asked.text])
        found = await compute(request, lambda each: now.tagger.explain(each, asked.k, wanted), texts)
        return answer(
            {"model": model, "version": now.version, "explanations": [explained(each) for each in found]}
        )

    @routes.post(
        "/models/{model}/similar",
        response_model=schemas.SimilarDocuments,
        openapi_extra=described_body(schemas.SimilarRequest),
        responses={409: {"model": schemas.Fault}},
    )
    async def similar(request: Request, model: str) -> Response:
        """The training documents that are most similar to a text."""
        asked, now = parsed(request, schemas.SimilarRequest), service.model(model).current
        check_k(asked.k, service.limits)
        if not now.tagger.has_index:
            raise HTTPException(
                409, "found no index of training documents; wanted a model of `circlet train --keep-index`"
            )
        texts = texts_for(request, now, [asked.text])
        ids, similarities = await compute(
            request, lambda each: [[part[0] for part in now.tagger.similar(each, asked.k)]], texts
        )
        pairs = zip(ids, similarities, strict=True)
        documents = [{"id": a if isinstance(a, str) else int(a), "similarity": number(b)} for a, b in pairs]
        return answer({"documents": documents})

    async def compute(request: Request, function: Any, documents: list[Any]) -> Any:
        """What a function returns for one document, in the thread that computes."""
        (found,) = await computed(request, service.batcher, object(), function, documents)
        return found

    async def tagged(request: Request, now: Snapshot, options: Options, documents: list[Any]) -> Any:
        key, function = now.suggesting(options)
        return await computed(request, service.batcher, key, function, documents)

    def documents_of(request: Request, now: Snapshot, asked: schemas.SuggestRequest) -> list[Any]:
        if asked.rows is None:
            texts = asked.texts if asked.text is None else [asked.text]
            return texts_for(request, now, texts or [])
        if now.takes == "texts":
            raise HTTPException(422, "found `rows`; this model was trained on texts and wants `text` or `texts`")
        if len(asked.rows) > service.limits.documents:
            most = service.limits.documents
            raise HTTPException(413, f"found {len(asked.rows):,} documents; wanted at most {most:,} in a request")
        return [row_of(row, now.tagger.model_.n_features) for row in asked.rows]

    def texts_for(request: Request, now: Snapshot, texts: list[str]) -> list[str]:
        if now.takes == "rows":
            raise HTTPException(422, "found texts; this model was trained on feature rows and wants `rows`")
        check_texts(request, texts, service.limits)
        return texts

    return routes


def suggested(now: Snapshot, row: list[tuple[str, float]]) -> list[dict[str, Any]]:
    """The labels of a document, ready for JSON, with their URIs if labels have URIs besides their names."""
    if now.uris is None:
        return [{"label": name, "probability": chance} for name, chance in row]
    return [{"label": name, "uri": now.uris[name], "probability": chance} for name, chance in row]


def own_labels(now: Snapshot, names: list[str]) -> list[Any]:
    """What the tagger calls these labels, given by name or URI; 404 if it does not know one."""
    for name in names:
        if name not in now.labels:
            raise HTTPException(404, f"found no label {name[:200]!r} among {len(now.names):,}; wanted known ones")
    return [now.labels[name] for name in names]


def row_of(row: dict[str, float], n_features: int) -> dict[int, float]:
    """A row's numbers by column; 422 if a column does not exist."""
    for column in row:
        if not column.isdecimal() or len(column) > 18 or int(column) >= n_features:
            raise HTTPException(
                422, f"`rows`: found column {column[:40]!r}; wanted numbers from 0 to {n_features - 1}"
            )
    return {int(column): value for column, value in row.items()}


def explained(found: Any) -> dict[str, Any]:
    """An `Explanation`, ready for JSON."""
    return {
        "label": str(found.label),
        "probability": number(found.probability),
        "score": number(found.score),
        "base": number(found.base),
        "contributions": [
            {
                "term": each.term,
                "kind": each.kind,
                "value": number(each.value),
                "spans": [[int(start), int(end)] for start, end in each.spans],
            }
            for each in found.contributions
        ],
        "spans": [[int(start), int(end), number(value)] for start, end, value in found.spans()],
    }


def number(value: Any) -> float:
    """A score, similarity or probability with as many digits as single precision has."""
    return float(f"{float(value):.7g}")
