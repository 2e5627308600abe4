"""A small model of texts behind the service, stand-ins for what explains and learns, and clients."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from functools import partialmethod
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import scipy.sparse as sp

from circlet.data.dataset import Split
from circlet.data.feedback import FeedbackLog
from circlet.errors import DataError
from circlet.model import Model, fit
from circlet.runtime import Tagger, load
from circlet.runtime.explain import Contribution, Explanation
from circlet.serve.app import App, create_app
from circlet.serve.feedback import Learner, answer_to
from circlet.serve.guard import Access, Limits
from circlet.serve.served import Served
from circlet.settings import NetworkSettings, RunSettings, TrainingSettings

NAME = "colors"


class StandIn(Tagger):
    """A tagger that can explain itself: every label is there because of the first word."""

    has_index = True  # type: ignore[assignment]

    def explain(self, X: Any, k: int = 1, labels: Any = None) -> list[list[Any]]:
        chosen = list(self.classes_[:k]) if labels is None else labels
        word = X[0].split(" ")[0]
        because = [Contribution(word, "word", 1.5, [(0, len(word))])] if word else []
        return [[Explanation(label, 2.0, 0.75, 0.5, because, 0.0) for label in chosen]]

    def near_labels(self, label: Any, k: int = 10) -> Any:
        others = [each for each in self.classes_ if each != label][:k]
        return np.array(others, dtype=object), np.linspace(1, 0, len(others), dtype=np.float32)

    def similar(self, X: Any, k: int = 5) -> Any:
        return np.array([[f"doc-{i}" for i in range(k)]], dtype=object), np.ones((1, k), dtype=np.float32)


class StandInLearner(Learner):
    """It learns when a test says so."""

    def __init__(self, feedback: FeedbackLog, on_swap: Callable[[Any, str], None]) -> None:
        self.feedback, self.on_swap = feedback, on_swap
        self.versions, self.notified, self.closed = ["v1"], 0, False

    def notify(self) -> None:
        self.notified += 1

    def learn(self, tagger: Any) -> None:
        self.versions.append(f"v{len(self.versions) + 1}")
        self.on_swap(tagger, self.versions[-1])

    def state(self) -> dict[str, Any]:
        return {
            "state": "learning" if self.notified else "idle",
            "version": self.versions[-1],
            "taught": len(self.versions) - 1,
            "waiting": len(self.feedback.entries()),
            "can_roll_back": len(self.versions) > 1,
            "message": None,
        }

    def roll_back(self) -> str:
        if len(self.versions) == 1:
            raise DataError("found no version before this one; wanted one")
        self.versions.pop()
        return self.versions[-1]

    def close(self) -> None:
        self.closed = True


@pytest.fixture(scope="session")
def folder(shared, tmp_path_factory) -> Path:
    """A model of texts with six labels."""
    place = tmp_path_factory.mktemp("served") / NAME
    shared("texts").save(place)
    return place


@pytest.fixture(scope="session")
def stand_in() -> type[StandIn]:
    return StandIn


@pytest.fixture(scope="session")
def tagger(folder) -> Any:
    """The model, with stand-ins for explanations."""
    loaded = load(folder)
    loaded.__class__ = StandIn
    return loaded


@pytest.fixture
def served(folder, tagger, log) -> Served:
    made = Served.load(folder, NAME)
    made.swap(tagger, "v1")
    made.learner = StandInLearner(log, made.swap)
    return made


@pytest.fixture
def named(folder, tmp_path, log) -> Served:
    """The model again, whose labels have URIs besides their names."""
    model = Model.load(folder)
    model.label_uris = [f"http://example.org/{number}" for number in range(model.n_labels)]
    model.save(tmp_path / NAME)
    made = Served.load(tmp_path / NAME, NAME)
    made.learner = StandInLearner(log, made.swap)
    return made


class Client:
    """A client of an application, whose event loop has a thread of its own."""

    def __init__(self, app: App) -> None:
        self.app, self.loop = app, asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=("127.0.0.1", 1))
        self.http = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(20)

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self.run(self.http.request(method, path, **more))

    get = partialmethod(request, "GET")
    post = partialmethod(request, "POST")
    delete = partialmethod(request, "DELETE")

    def close(self) -> None:
        self.run(self.http.aclose())
        self.app.service.close()
        self.run(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.fixture
def start() -> Iterator[Callable[..., Client]]:
    """Make a client of an application with these models, limits and access."""
    with ExitStack() as stack:

        def make(
            models: list[Served], limits: Limits | None = None, access: Access | None = None, **more: Any
        ) -> Client:
            client = Client(create_app(models, limits, access, **more))
            stack.callback(client.close)
            return client

        yield make


@pytest.fixture
def client(start, served) -> Client:
    return start([served])


WORDS = {"animal": "fox wolf bear deer", "food": "bread cheese apple soup", "vehicle": "car truck tram van"}


@pytest.fixture(scope="session")
def _model_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("taught") / "tagger"
    topics = sorted(WORDS)
    labels = [topics[i % 3] for i in range(90)]
    texts = [
        " ".join(
            [*(WORDS[label].split()[(i + j) % 4] for j in range(2)), *["drum", "piano", "flute"][i % 3 : i % 2]]
        )
        for i, label in enumerate(labels)
    ]
    texts = [f"{text} {['drum', 'piano', 'flute'][i % 3]}" if i % 7 == 0 else text for i, text in enumerate(texts)]
    Y = sp.csr_matrix(np.array([[label == topic for topic in topics] for label in labels], dtype=np.float32))
    settings = RunSettings(
        NetworkSettings(dim=32, hidden=(16,)), TrainingSettings(epochs=20, batch_size=16, lr=0.03), validation=0
    )
    fit(Split(None, Y, texts), settings, label_names=topics).save(folder)
    return folder


@pytest.fixture
def model_folder(_model_folder, tmp_path) -> Path:
    """The folder of a model that can learn from feedback, which a test may change."""
    return Path(shutil.copytree(_model_folder, tmp_path / "tagger"))


@pytest.fixture(scope="session")
def train_here() -> Callable[..., dict[str, Any]]:
    """Stands in for `Learner._train`: learns in this process, which has imported torch already."""

    def train(self: Learner, output: Path, corrections: list[Any]) -> dict[str, Any]:
        asked = {"folder": str(self.folder), "output": str(output), "corrections": corrections}
        return answer_to(json.dumps(asked))

    return train


@pytest.fixture
def log(tmp_path) -> FeedbackLog:
    """A log without any feedback."""
    return FeedbackLog(tmp_path / "log.jsonl")
