"""The service itself, `circlet serve`, started and stopped like the fake one."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen


def circlet(*words: str) -> list[str]:
    return [sys.executable, "-m", "circlet", *words]


def train(folder: Path) -> None:
    """A tagger of Python's documentation, in seconds, with an index."""
    words = ("train", "pydocs", "--model", str(folder), "--preset", "fast", "--keep-index")
    subprocess.run(circlet(*words), check=True, capture_output=True)


class RealServer:
    def __init__(self, model: Path) -> None:
        self.model = model
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        command = circlet("serve", str(self.model), "--port", str(self.port))
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            if self.process.poll() is not None:
                raise RuntimeError(f"circlet serve ended with {self.process.returncode}")
            try:
                with urlopen(f"{self.url}v1/health", timeout=5):
                    return
            except (URLError, ConnectionError):
                time.sleep(0.1)
        raise TimeoutError("circlet serve does not answer")

    def stop(self) -> None:
        self.process.terminate()  # so that it can end what learns in the background
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
