"""Feedback and learning: what clients say about suggestions is kept, and the model learns from it meanwhile.

`circlet.serve.feedback` keeps the feedback, and `circlet.serve.learning` learns; here are the endpoints, and where
a model's feedback is.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, HTTPException, Query, Request, Response

from circlet.errors import CircletError, ParameterError
from circlet.serve import learning, schemas
from circlet.serve.api import MOST, Service, own_labels
from circlet.serve.feedback import FeedbackLog
from circlet.serve.reading import answer, check_texts, described_body, parsed
from circlet.serve.served import Served

__all__ = ["Classroom", "open_classroom", "teaching_routes", "why_not"]


class Classroom:
    """A model's feedback, and who learns from it.

    Parameters
    ----------
    log : FeedbackLog
    learner : Learner
    """

    def __init__(self, log: FeedbackLog, learner: learning.Learner) -> None:
        self.log, self.learner = log, learner

    def state(self) -> dict[str, Any]:
        """What it is learning now."""
        state: dict[str, Any] = self.learner.state()
        return state

    def record(self, text: str, accept: list[str], reject: list[str], version: str) -> dict[str, Any]:
        """Keep feedback, and learn from it soon."""
        entry = self.log.add(text, accept, reject, version)
        self.learner.notify()
        return {"id": entry.id, "learning": self.state()}

    def undo(self, identifier: str) -> dict[str, Any]:
        """Take feedback back, and learn without it soon."""
        entry = self.log.undo(identifier)
        self.learner.notify()
        return {"id": entry.id, "learning": self.state()}

    def entries(self, limit: int) -> list[dict[str, Any]]:
        """The latest entries, undone ones included, the last first."""
        found = self.log.entries(active_only=False)
        return [
            {
                "id": each.id,
                "time": each.time,
                "text": each.text,
                "accept": each.accepted,
                "reject": each.rejected,
                "version": each.version,
                "undone": each.undone,
            }
            for each in reversed(found[len(found) - limit :] if limit < len(found) else found)
        ]

    def roll_back(self) -> str:
        """Serve the version before."""
        version: str = self.learner.roll_back()
        return version

    def close(self) -> None:
        """Stop learning."""
        self.learner.close()


def why_not(folder: Path) -> str | None:
    """Why a model can't learn from feedback here; None if it can."""
    if not os.access(folder.resolve().parent, os.W_OK):
        return f"{folder.resolve().parent} can't be written; wanted a place for what is learned"
    return learning.why_not(folder)


def open_classroom(model: Served, folder: Path) -> None:
    """Let a model learn from feedback; raises a `CircletError` if that is impossible."""
    if reason := why_not(folder):
        raise ParameterError(f"--learn: {reason}")
    log, before = FeedbackLog(feedback_file(folder)), model.current
    learner = learning.Learner(folder, log, on_swap=model.swap)
    if model.current is before:  # nothing was learned earlier
        model.swap(before.tagger, learner.state()["version"])
    model.classroom = Classroom(log, learner)


def feedback_file(folder: Path) -> Path:
    """Where a model's feedback is kept: beside its folder, which may be replaced as a whole."""
    place = folder.resolve()
    return place.with_name(f"{place.name}.feedback.jsonl")


def teaching_routes(service: Service) -> APIRouter:
    """The endpoints, for a service."""
    faults = {code: {"model": schemas.Fault} for code in (401, 404, 409, 413, 422, 429, 503)}
    routes = APIRouter(prefix="/v1/models/{model}", tags=["learning"], responses=faults)  # type: ignore[arg-type]
    in_thread = anyio.to_thread.run_sync  # what writes to the disk, and waits for it

    def classroom_of(model: str) -> Classroom:
        classroom: Classroom | None = service.model(model).classroom
        if classroom is None:
            raise HTTPException(409, f"the model {model!r} does not learn here; wanted `circlet serve --learn`")
        return classroom

    @routes.post(
        "/feedback",
        status_code=201,
        response_model=schemas.Recorded,
        openapi_extra=described_body(schemas.FeedbackRequest),
    )
    async def give(request: Request, model: str) -> Response:
        """Say which labels of a text are right and which are wrong; the model learns from it."""
        asked, classroom = parsed(request, schemas.FeedbackRequest), classroom_of(model)
        now = service.model(model).current
        check_texts(request, [asked.text], service.limits)
        # Known labels are kept by name, whatever the client calls them.
        accept = [str(now.labels.get(label, label)) for label in asked.accept]
        reject = [str(label) for label in own_labels(now, asked.reject)]
        return answer(await in_thread(classroom.record, asked.text, accept, reject, now.version), 201)

    @routes.get("/feedback", response_model=schemas.Entries)
    async def listed(model: str, limit: Annotated[int, Query(ge=0, le=MOST)] = 20) -> Response:
        """The latest feedback, the last first."""
        return answer({"entries": await in_thread(classroom_of(model).entries, limit)})

    @routes.delete("/feedback/{entry}", response_model=schemas.Recorded)
    async def undo(model: str, entry: str) -> Response:
        """Take feedback back."""
        classroom = classroom_of(model)
        try:
            return answer(await in_thread(classroom.undo, entry))
        except CircletError as error:
            raise HTTPException(404, str(error)) from None

    @routes.get("/learning", response_model=schemas.Learning)
    async def learning(model: str) -> Response:
        """What the model is learning now."""
        return answer(await in_thread(classroom_of(model).state))

    @routes.post("/rollback", response_model=schemas.Version)
    async def roll_back(model: str) -> Response:
        """Serve the version before."""
        classroom = classroom_of(model)
        try:
            return answer({"version": await in_thread(classroom.roll_back)})
        except CircletError as error:
            raise HTTPException(409, str(error)) from None

    return routes
