"""Annif's dialect, as its OpenAPI specification has it, and as a stock Annif speaks it."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from circlet.model import Model
from circlet.runtime import load
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


#: An environment that has Annif already; without it, one is made, which takes minutes.
VARIABLE = "CIRCLET_TEST_ANNIF"
CONFIGURATION = """[colors]
name=Colors
language=en
backend=http
endpoint={url}/v1/projects/colors/suggest
vocab=colors
limit=3
"""


@pytest.fixture(scope="module")
def annif(tmp_path_factory) -> Path:
    """Annif's command."""
    programs = "Scripts" if os.name == "nt" else "bin"
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen) / programs / "annif"
    folder = tmp_path_factory.mktemp("annif") / "environment"
    home = tmp_path_factory.mktemp("home")
    own = {**os.environ, "HOME": str(home), "USERPROFILE": str(home)}
    own.pop("PYTHONPATH", None)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, env=own)
    pip = [str(folder / programs / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, "annif"], capture_output=True, text=True, check=False, env=own)
    if done.returncode:
        pytest.skip(f"Annif can't be installed here: {done.stderr.strip()[-200:]}")
    return folder / programs / "annif"


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="the service is stopped by a signal")
def test_annif_suggests_what_circlet_says(annif, folder, tmp_path):
    model = Model.load(folder)
    model.label_names = [f"http://example.org/{number}" for number in range(model.n_labels)]
    folder = tmp_path / "colors"
    model.save(folder)
    service = subprocess.Popen(
        [sys.executable, "-m", "circlet", "serve", str(folder), "--port", "0", "--no-learn"],
        stderr=subprocess.PIPE,
        text=True,
    )
    home = tmp_path / "home"
    home.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*words: str, text: str = "") -> str:
        done = subprocess.run(
            [str(annif), *words], input=text, capture_output=True, text=True, encoding="utf-8", check=False,
            cwd=tmp_path, env={**environment, "HOME": str(home), "PYTHONIOENCODING": "utf-8"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        url = service.stderr.readline().split()[3]
        tagger = load(folder)
        (tmp_path / "projects.cfg").write_text(CONFIGURATION.format(url=url), encoding="utf-8")
        subjects = "".join(f"<{label}>\tcolor {label}\n" for label in tagger.classes_)
        (tmp_path / "colors.tsv").write_text(subjects, encoding="utf-8")
        run("load-vocab", "--language", "en", "colors", "colors.tsv")
        shown = run("suggest", "colors", text="größer label0 label1")
        assert "True" in run("show-project", "colors")
    finally:
        service.terminate()
        service.wait(20)
        service.stderr.close()
    labels, chances = tagger.suggest("größer label0 label1", k=3)
    rows = [line.split("\t") for line in shown.splitlines()]
    assert [row[:2] for row in rows] == [[f"<{label}>", f"color {label}"] for label in labels[0]]
    assert [float(row[2]) for row in rows] == pytest.approx(chances[0].tolist(), abs=1e-3)
