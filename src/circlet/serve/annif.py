"""Annif's dialect: each model is a project too, so that Annif's `http` backend and other clients of it can ask."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, HTTPException, Request, Response
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from circlet.serve.api import Service
from circlet.serve.reading import BODY, answer, check_texts, computed, found_wanted
from circlet.serve.served import Options, Served

__all__ = ["annif_routes"]

#: Fields of a form; Annif sends a few, and one for each piece of a document's metadata.
FIELDS = 1000
#: Nothing says which language the labels of a model are in: this is the code for "undetermined".
LANGUAGE = "und"


class SuggestForm(BaseModel):
    """The fields of Annif's form that matter here; others, such as a document's metadata, are ignored."""

    model_config = ConfigDict(extra="ignore", json_schema_extra={"examples": [{"text": "a fox", "limit": 10}]})
    text: str
    limit: int = Field(10, ge=0, description="Most labels.")
    threshold: FiniteFloat = Field(0.0, ge=0, le=1, description="Leave out labels with a lower score.")


class AnnifResult(BaseModel):
    """A suggested subject."""

    uri: str
    label: str
    notation: str | None
    score: float


class AnnifResults(BaseModel):
    """Suggested subjects, best first."""

    results: list[AnnifResult]


def annif_routes(service: Service) -> APIRouter:
    """The endpoints, for a service."""
    routes = APIRouter(prefix="/v1/projects", tags=["Annif"])

    @routes.get("")
    async def projects() -> Response:
        """The models, as Annif lists its projects."""
        return answer({"projects": [project_of(model) for model in service.models.values()]})

    @routes.get("/{model}")
    async def project(model: str) -> Response:
        """A model, as Annif describes a project."""
        return answer(project_of(service.model(model)))

    form = {"schema": SuggestForm.model_json_schema()}
    body = {"required": True, "content": {"application/x-www-form-urlencoded": form}}

    @routes.post("/{model}/suggest", response_model=AnnifResults, openapi_extra={"requestBody": body})
    async def suggest(request: Request, model: str) -> Response:
        """The best labels of a text, as Annif suggests subjects; labels without URIs are their own."""
        asked, now = form_of(request), service.model(model).current
        if now.takes == "rows":
            raise HTTPException(
                422, "found a text; this model was trained on feature rows, which Annif has none of"
            )
        check_texts(request, [asked.text], service.limits)
        limit = min(asked.limit, service.limits.k)  # Annif may ask for 1,000 by itself, and takes fewer
        if not limit:
            return answer({"results": []})
        key, compute = now.suggesting(Options(limit, asked.threshold))
        (found,) = await computed(request, service.batcher, key, compute, [asked.text])
        results = [
            {"uri": now.uris[name] if now.uris else name, "label": name, "notation": None, "score": score}
            for name, score in found
        ]
        return answer({"results": results})

    return routes


def form_of(request: Request) -> SuggestForm:
    """The fields of a form; 422 if they are not as they should be."""
    try:
        content = request.scope[BODY].decode("ascii")
        fields = dict(
            parse_qsl(
                content,
                keep_blank_values=True,
                strict_parsing=bool(content),
                errors="strict",
                max_num_fields=FIELDS,
            )
        )
        return SuggestForm.model_validate(fields)
    except ValidationError as error:
        raise HTTPException(422, found_wanted(error.errors(include_url=False, include_context=False))) from None
    except ValueError as error:
        raise HTTPException(422, f"found no form ({error}); wanted `text=…`, URL-encoded") from None


def project_of(model: Served) -> dict[str, Any]:
    """A model, as Annif describes a project."""
    return {
        "project_id": model.name,
        "name": model.name,
        "language": LANGUAGE,
        "backend": {"backend_id": "circlet"},
        "vocab": {
            "vocab_id": model.name,
            "languages": [LANGUAGE],
            "size": len(model.current.names),
            "loaded": True,
        },
        "vocab_language": LANGUAGE,
        "is_trained": True,
        "modification_time": model.about["modified"],
    }
