"""Annif's dialect, as its OpenAPI specification has it; tests/annif/test_in_annif.py asks with Annif itself."""

from __future__ import annotations

from datetime import datetime

import pytest

from circlet.serve.guard import Limits
from circlet.serve.served import Served

PROJECT = "/v1/projects/colors"


def test_projects(client):
    (found,) = client.get("/v1/projects").json()["projects"]
    assert found == client.get(PROJECT).json()
    assert found["project_id"] == found["name"] == "colors"
    assert found["backend"] == {"backend_id": "circlet"}
    assert found["vocab"] == {"vocab_id": "colors", "languages": ["und"], "size": 6, "loaded": True}
    assert found["is_trained"] is True
    assert datetime.fromisoformat(found["modification_time"]).tzinfo is not None


def test_suggest(client, tagger):
    data = {"text": "größer label4", "limit": "2", "metadata_title": "x", "project": "colors"}
    found = client.post(f"{PROJECT}/suggest", data=data).json()
    labels, chances = tagger.suggest("größer label4", k=2)
    assert [each["uri"] for each in found["results"]] == labels[0].tolist()
    assert list(found["results"][0]) == ["uri", "label", "notation", "score"]
    assert found["results"][0]["score"] == pytest.approx(float(chances[0, 0]), abs=1e-5)
    assert found["results"][0]["notation"] is None


def test_labels_with_uris(start, named):
    data = {"text": "größer label4", "limit": "2"}
    found = start([named]).post(f"{PROJECT}/suggest", data=data).json()["results"]
    labels, _ = named.current.tagger.suggest("größer label4", k=2)
    uris = dict(zip(named.current.tagger.classes_, named.current.tagger.uris_, strict=True))
    assert [each["label"] for each in found] == labels[0].tolist()
    assert [each["uri"] for each in found] == [uris[label] for label in labels[0]]


def test_limits(start, served):
    client = start([served], Limits(k=3, characters=10))
    assert len(client.post(f"{PROJECT}/suggest", data={"text": "a", "limit": 1000}).json()["results"]) == 3
    assert client.post(f"{PROJECT}/suggest", data={"text": "a", "limit": 0}).json() == {"results": []}
    assert client.post(f"{PROJECT}/suggest", data={"text": "a", "threshold": 1}).json() == {"results": []}
    assert client.post(f"{PROJECT}/suggest", data={"text": "a" * 11}).status_code == 413


@pytest.mark.parametrize(
    "content",
    [b"", b"limit=5", b"text=a&limit=-1", b"text=a&limit=x", b"text=a&threshold=nan", b"text=%ff", b"\xff", b"a"],
)
def test_malformed(client, content):
    answer = client.post(f"{PROJECT}/suggest", content=content)
    assert answer.status_code == 422
    assert "found" in answer.json()["detail"]


def test_other_models(client, start, shared, tmp_path):
    assert client.get("/v1/projects/shapes").status_code == 404
    assert client.post("/v1/projects/shapes/suggest", data={"text": "a"}).status_code == 404
    shared("sparse").save(tmp_path / "rows")
    of_rows = start([Served.load(tmp_path / "rows", "rows")])
    assert of_rows.post("/v1/projects/rows/suggest", data={"text": "a"}).status_code == 422
