"""`circlet serve`: how it starts, and how it refuses to."""

from __future__ import annotations

import shutil
import socket
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from circlet.cli import serve as command
from circlet.serve import feedback, server
from circlet.serve.guard import Limits
from circlet.serve.served import Served


@pytest.fixture
def ran(monkeypatch):
    """Serve nothing; gives what would have been served."""
    found = types.SimpleNamespace()

    def run(app, listening, started, proxies=None):
        found.app, found.address, found.proxies = app, listening.getsockname(), proxies
        started()
        app.service.close()

    monkeypatch.setattr(server, "run", run)
    return found


@pytest.fixture
def token(tmp_path):
    path = tmp_path / "token"
    path.write_text("0123456789abcdef\n", encoding="utf-8")
    return path


@pytest.fixture
def serves(works, ran) -> Callable[..., types.SimpleNamespace]:
    """Start to serve on any port, without learning unless that is said; gives what would have been served."""

    def run(*words: object, learning: tuple[str, ...] = ("--no-learn",)) -> types.SimpleNamespace:
        ran.finished = works("serve", *words, "--port", 0, *learning)
        return ran

    return run


def test_what_it_says(serves, model):
    ran = serves(model, "--rate", 5, "--proxy", "10.0.0.1")
    said = f"serving topics on http://127.0.0.1:{ran.address[1]} (Ctrl-C stops)\nstopped\n"
    assert ran.finished.stderr == said
    assert list(ran.app.service.models) == ["topics"]
    assert ran.app.guard.access.hosts == {"localhost", "127.0.0.1", "::1"}
    assert ran.app.guard.access.token is None
    assert ran.app.guard.limits.rate == 5
    assert ran.proxies == ["10.0.0.1"]


def test_several_models_in_a_browser(serves, model, monkeypatch, tmp_path):
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    shutil.copytree(model, tmp_path / "other")
    ran = serves(model, tmp_path / "other", "--open")
    assert list(ran.app.service.models) == ["topics", "other"]
    assert opened == [f"http://127.0.0.1:{ran.address[1]}"]
    assert ran.app.guard.limits == Limits()  # the usual ones


@pytest.mark.usefixtures("ran")
class TestBeyondThisMachine:
    def test_needs_a_token(self, refused, serves, model, token):
        line = refused("serve", model, "--host", "0.0.0.0", "--port", 0)
        assert "wanted --token-file FILE, or --insecure" in line
        options = (model, "--host", "0.0.0.0", "--token-file", token)
        access = serves(*options, "--allow-origin", "https://a.example").app.guard.access
        assert (access.token, access.hosts) == ("0123456789abcdef", None)
        assert access.origins == ("https://a.example",)
        assert serves(*options, "--allow-host", "Tags.example").app.guard.access.hosts == {"tags.example"}

    def test_insecure(self, serves, model):
        ran = serves(model, "--host", "0.0.0.0", "--insecure", learning=())
        assert ran.app.service.models["topics"].learner is None  # nothing is learned from strangers

    @pytest.mark.parametrize("content", ["", "short", "with a space in it", "ä" * 20])
    def test_bad_tokens(self, refused, model, token, content):
        token.write_text(content, encoding="utf-8")
        assert "wanted" in refused("serve", model, "--port", 0, "--token-file", token)
        assert "none.txt" in refused("serve", model, "--port", 0, "--token-file", token.with_name("none.txt"))


@pytest.mark.usefixtures("ran")
class TestMistakes:
    def test_no_model(self, refused):
        assert refused("serve").endswith("wanted one or more folders, or --demo")

    def test_two_of_one_name_and_a_damaged_one(self, refused, model, tmp_path):
        other = Path(shutil.copytree(model, tmp_path / "topics"))
        assert "found two models called topics" in refused("serve", model, other, "--port", 0)
        (other / "labels.txt").write_text("x\n", encoding="utf-8")
        assert "labels.txt" in refused("serve", other, "--port", 0)

    def test_port_in_use(self, refused, model):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            assert f"cannot listen on 127.0.0.1 port {port}: " in refused("serve", model, "--port", port)

    @pytest.mark.parametrize("origin", ["example.org", "https://example.org/", "ftp://example.org"])
    def test_origins(self, refused, model, origin):
        assert "--allow-origin" in refused("serve", model, "--port", 0, "--allow-origin", origin)

    def test_without_the_extra(self, refused, model, monkeypatch):
        monkeypatch.setitem(sys.modules, "uvicorn", None)
        assert refused("serve", model).endswith(
            "the service needs uvicorn, which is not installed: pip install 'circlet[serve]'"
        )


def test_demo_is_trained_once(serves, model, monkeypatch, tmp_path):
    trained = []

    def train(data, folder, *, keep_index, resume):
        trained.append((data, keep_index, resume))
        shutil.copytree(model, folder)

    monkeypatch.setattr("circlet.cli.train.train", train)
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / name)
    for _ in range(2):
        ran = serves("--demo")
    assert trained == [(["pydocs"], True, False)]
    assert list(ran.app.service.models) == ["pydocs"]
    assert command.demo_model().is_relative_to(tmp_path / "circlet" / "models")


@pytest.mark.parametrize(
    ("options", "against", "learns"),
    [([], None, True), (["--learn"], None, True), (["--no-learn"], None, False), ([], "no", False)],
)
def test_unless_told_otherwise_or_something_speaks_against_it(
    serves, model, monkeypatch, options, against, learns
):
    learning: list[str] = []
    monkeypatch.setattr(Served, "learn", lambda model, folder: learning.append(model.name))
    monkeypatch.setattr(feedback, "why_not", lambda folder: against)
    serves(model, learning=options)
    assert learning == (["topics"] if learns else [])
