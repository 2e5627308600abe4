"""The service in a thread of this process, and a small model for it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import uvicorn

from circlet.serve.app import create_app
from circlet.serve.guard import Access
from circlet.serve.served import Served
from circlet.serve.server import bound

PYDOCS = "pydocs"


def train(folder: Path) -> None:
    """Train a tagger of Python's documentation, in seconds, with an index."""
    words = ("train", "pydocs", "--model", str(folder), "--preset", "fast", "--keep-index")
    subprocess.run([sys.executable, "-m", "circlet", *words], check=True, capture_output=True)


class Service:
    """Starts and stops on one port. The model in the folder `pydocs` learns from feedback."""

    def __init__(self, *folders: Path, token: str | None = None) -> None:
        self.folders, self.token, self.port = folders, token, 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        models = [Served.load(folder, folder.name) for folder in self.folders]
        for model, folder in zip(models, self.folders, strict=True):
            if model.name == PYDOCS:
                model.learn(folder)
        app = create_app(models, access=Access(token=self.token), log_requests=False)
        listening = bound("127.0.0.1", self.port)
        self.port = listening.getsockname()[1]
        self._server = uvicorn.Server(uvicorn.Config(app, lifespan="on", log_config=None))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listening]})
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()
