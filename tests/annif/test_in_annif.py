"""A day in Annif: its commands and its service with this backend, in an environment of Annif's own.

The environment is made once, in `.venv-annif`, which git ignores. Documents are titles of yso-finna-en, or
generated ones where that folder is missing.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import pytest

from circlet.data import load_dataset
from circlet.data.records import Record, iter_records, write_records

ROOT = Path(__file__).parents[2]
TITLES = ROOT.parent / "shared/data/yso-finna-en"
PLACE = ROOT / ".venv-annif"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="not a source checkout"),
]

PROJECTS = """
[circlet-en]
name=circlet English
language=en
backend=circlet
vocab=subjects
preset=fast
allow_learn=true
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> str:
    """An interpreter with Annif and this checkout."""
    made_of = b"".join((ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt"))
    digest, stamp = hashlib.sha256(made_of + sys.version.encode()).hexdigest(), PLACE / "made-of"
    interpreter = PLACE / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not stamp.exists() or stamp.read_text() != digest:
        # pip asks compilers for their versions, and some of them write into the user's folder.
        home = {**os.environ, "HOME": str(tmp_path_factory.mktemp("home"))}
        subprocess.run([sys.executable, "-m", "venv", "--clear", PLACE], env=home, check=True)
        pip = [interpreter, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--constraint", "constraints.txt"]
        wanted = ["--editable", ".[annif]", "pytest", "hypothesis"]
        done = subprocess.run(
            [*pip, *wanted], cwd=ROOT, env=home, capture_output=True, text=True, timeout=1200, check=False
        )
        if done.returncode:
            pytest.skip(f"Annif can't be installed here: {done.stderr.strip().splitlines()[-1]}")
        stamp.write_text(digest)
    return str(interpreter)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """A vocabulary, and documents to train on, to evaluate on and to learn from later."""
    folder = tmp_path_factory.mktemp("annif")
    (folder / "projects.cfg").write_text(PROJECTS, encoding="utf-8")
    if TITLES.exists():
        subjects, documents = titles()
    else:
        subjects, documents = generated()
    vocabulary = "".join(f"<{uri}>\t{name}\n" for uri, name in subjects)
    (folder / "vocabulary.tsv").write_text(vocabulary, encoding="utf-8")
    # The documents of one subject come later.
    later = max({uri for record in documents for uri in record.labels}, key=str)
    old = [record for record in documents if later not in record.labels]
    write_records(folder / "train.tsv", old[300:], "annif")
    write_records(folder / "test.tsv", old[:300], "annif")
    write_records(folder / "new.tsv", [record for record in documents if later in record.labels], "annif")
    return folder


def titles() -> tuple[list[list[str]], list[Record]]:
    """All subjects of the ontology, and titles that have some of 30 frequent ones."""
    train = load_dataset(TITLES).train
    subjects = [line.split("\t") for line in (TITLES / "labels.tsv").read_text(encoding="utf-8").splitlines()]
    frequent = np.argsort(-np.bincount(train.Y.indices))[:30]
    Y = train.Y[:, frequent]
    rows = np.flatnonzero(np.diff(Y.indptr))[:2500]
    return subjects, [
        Record(
            0, " ".join(train.texts[row].split()), tuple(subjects[frequent[each]][0] for each in Y[row].indices)
        )
        for row in rows
    ]


def generated() -> tuple[list[list[str]], list[Record]]:
    """Subjects with words of their own; ten of them have no document."""
    random, found = np.random.default_rng(0), []
    subjects = [[f"http://example.org/{number}", f"subject {number}"] for number in range(40)]
    for number in range(1500):
        chosen = random.choice(30, 1 + number % 2, replace=False).tolist()
        words = [f"word{each}x{random.integers(4)}" for each in chosen] + [f"noise{random.integers(50)}"]
        found.append(Record(number, " ".join(words), tuple(subjects[each][0] for each in chosen)))
    return subjects, found


@pytest.fixture(scope="module")
def annif(python, corpus) -> Callable[..., str]:
    """Run one of Annif's commands in the corpus's folder; gives what it prints."""

    def run(*arguments: str, stdin: str = "", script: str = "") -> str:
        start = [script] if script else ["-m", "circlet.annif"]
        done = subprocess.run(
            [python, *start, *arguments], cwd=corpus, input=stdin, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def trained(annif, corpus) -> Path:
    annif("load-vocab", "subjects", "vocabulary.tsv", "--language", "en")
    annif("train", "circlet-en", "train.tsv", "--jobs", "1")
    return corpus


def scores(annif, corpus, *arguments) -> dict[str, float]:
    annif("eval", "circlet-en", "test.tsv", "--metrics-file", "metrics.json", *arguments)
    return json.loads((corpus / "metrics.json").read_text())


def test_the_backend_passes_its_own_tests_there(python):
    # What Annif's own dependencies warn about is not this project's to mend.
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore::DeprecationWarning"]
    command = [python, "-m", "pytest", "tests/annif", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout.splitlines()[-1]


def test_the_project_is_listed_as_trained(trained, annif):
    (line,) = [line for line in annif("list-projects").splitlines() if line.startswith("circlet-en")]
    assert "True" in line
    assert "Backend:           circlet" in annif("show-project", "circlet-en")


def test_suggestions_need_no_torch(trained, annif):
    (record, *_) = iter_records(trained / "train.tsv", "annif")
    (trained / "blocked.py").write_text(
        "import sys\nsys.modules['torch'] = None\nfrom circlet.annif import main\nmain()\n"
    )
    lines = annif("suggest", "circlet-en", "--limit", "3", stdin=record.text, script="blocked.py")
    uris = [line.partition("\t")[0].strip("<>") for line in lines.splitlines()]
    assert len(uris) == 3
    assert set(record.labels) & set(uris)


def test_evaluation_alone_and_in_processes(trained, annif):
    found = scores(annif, trained)
    assert found["Documents_evaluated"] == 300
    assert found["NDCG"] > 0.5
    shared = scores(annif, trained, "--jobs", "2")
    assert shared["NDCG"] == pytest.approx(found["NDCG"], abs=1e-4)
    (trained / "spawned.py").write_text(
        "import annif.parallel\nfrom circlet.annif import main\nannif.parallel.MP_START_METHOD = 'spawn'\n"
        "if __name__ == '__main__':\n    main()\n"
    )
    spawned = scores(partial(annif, script="spawned.py"), trained, "--jobs", "2")
    assert spawned["NDCG"] == shared["NDCG"]
    rare = scores(annif, trained, "--backend-param", "circlet.favor_rare=1.0")
    assert rare["NDCG"] != found["NDCG"]


#: A project of Annif's own backend for services.
REMOTE = """
[remote]
name=circlet serve
language=en
backend=http
endpoint={url}/v1/projects/circlet-model/suggest
vocab=subjects
limit=3
"""


@pytest.mark.skipif(os.name == "nt", reason="the service is stopped by a signal")
def test_the_http_backend_suggests_what_circlet_serve_says(trained, annif):
    (record, *_) = iter_records(trained / "train.tsv", "annif")
    model = trained / "data/projects/circlet-en/circlet-model"
    command = [sys.executable, "-m", "circlet", "serve", str(model), "--port", "0", "--no-learn"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as service:
        try:
            remote = REMOTE.format(url=service.stderr.readline().split()[3])
            (trained / "remote.cfg").write_text(remote, encoding="utf-8")
            found = annif("suggest", "remote", "--projects", "remote.cfg", stdin=record.text).splitlines()
            assert "True" in annif("show-project", "remote", "--projects", "remote.cfg")
        finally:
            service.terminate()
    own = annif("suggest", "circlet-en", "--limit", "3", stdin=record.text).splitlines()
    assert [line.split("\t")[:2] for line in found] == [line.split("\t")[:2] for line in own]
    scores = [[float(line.split("\t")[2]) for line in lines] for lines in (found, own)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-3)


def test_hyperparameters_are_found_and_used(trained, annif):
    jobs = "2" if sys.platform == "linux" else "1"  # Annif hands trials their documents by forking
    shown = annif("hyperopt", "circlet-en", "test.tsv", "-T", "2", "--jobs", jobs, "--results-file", "trials.tsv")
    _, lines, _ = shown.split("---\n")
    assert len((trained / "trials.tsv").read_text().splitlines()) == 3
    best = [option for line in lines.split() for option in ("--backend-param", f"circlet.{line}")]
    assert len(best) == 14
    annif("train", "circlet-en", "--cached", *best)
    assert scores(annif, trained)["NDCG"] > 0.5


@pytest.fixture
def serve(trained, python, free_port) -> Callable[..., AbstractContextManager[httpx.Client]]:
    """Start one of the modules that serve Annif."""

    @contextmanager
    def start(*module: str) -> Iterator[httpx.Client]:
        command = [python, "-m", *module, "--port", str(free_port)]
        with (
            (trained / "service.log").open("w") as log,
            subprocess.Popen(command, cwd=trained, stdout=log, stderr=log) as process,
        ):
            try:
                with httpx.Client(base_url=f"http://127.0.0.1:{free_port}/v1", timeout=120) as client:
                    wait_for(client, process)
                    yield client
            finally:
                process.terminate()

    return start


def wait_for(client: httpx.Client, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        try:
            client.get("/projects")
            return
        except httpx.TransportError:
            assert process.poll() is None
            time.sleep(0.2)
    raise AssertionError("the service does not answer")


def suggested(service: httpx.Client, text: str) -> list[str]:
    found = service.post("/projects/circlet-en/suggest", data={"text": text, "limit": "3"}).json()
    return [each["uri"] for each in found["results"]]


@pytest.mark.parametrize(
    "module",
    [("circlet.annif", "run"), ("uvicorn", "--factory", "circlet.annif:create_app")],
    ids=["development", "production"],
)
def test_the_service_suggests(trained, serve, module):
    (record, *_) = iter_records(trained / "train.tsv", "annif")
    with serve(*module) as service:
        (project,) = service.get("/projects").json()["projects"]
        assert project["backend"] == {"backend_id": "circlet"}
        assert project["is_trained"]
        assert set(suggested(service, record.text)) & set(record.labels)


def test_the_service_learns(trained, serve):
    new = list(iter_records(trained / "new.tsv", "annif"))
    (later,) = set.intersection(*(set(record.labels) for record in new))
    documents = [{"text": each.text, "subjects": [{"uri": uri} for uri in each.labels]} for each in new]
    with serve("circlet.annif", "run") as service:
        assert all(later not in suggested(service, record.text) for record in new[:5])
        assert service.post("/projects/circlet-en/learn", json=documents).is_success
        hits = [later in suggested(service, record.text) for record in new[:20]]
    assert sum(hits) > len(hits) / 2


def test_learning_by_command(trained, annif):
    annif("learn", "circlet-en", "new.tsv")
    (record, *_) = iter_records(trained / "new.tsv", "annif")
    assert set(record.labels) & {
        line.partition("\t")[0].strip("<>")
        for line in annif("suggest", "circlet-en", stdin=record.text).splitlines()
    }
    assert scores(annif, trained)["NDCG"] > 0.4
