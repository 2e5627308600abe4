"""The service's stand-in for tests of its page: the same paths, answers and headers, over `FakeModel`.

`python -m tests.serve.page.fake_server` serves it on port 8000, to work on the page without a model.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.serve.page.fake_model import FakeModel

PAGE = Path(__file__).parents[3] / "src/circlet/serve/page"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class RefusedError(Exception):
    """An answer that is an error, with the service's `detail` and headers."""

    def __init__(self, status: int, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers


class FakeServer:
    """Starts and stops on one port. `answering` may raise `RefusedError` or wait before a path is answered."""

    def __init__(self, *models: FakeModel, token: str | None = None, port: int = 0) -> None:
        self.models = {model.id: model for model in models or (FakeModel("pydocs"),)}
        self.token = token
        self.port = port
        self.answering: Callable[[str, dict[str, Any]], None] = lambda path, body: None
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        self.http = ThreadingHTTPServer(("127.0.0.1", self.port), _handler(self))
        self.http.daemon_threads = True
        self.port = self.http.server_address[1]
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()

    def answer(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> tuple[int, Any]:
        self.answering(path, body)
        with self.lock:
            if path == "/v1/health":
                return 200, {"status": "ok", "version": "0", "models": list(self.models)}
            if path == "/v1/models":
                return 200, {"models": [model.summary() for model in self.models.values()]}
            match = re.fullmatch(r"/v1/models/([^/]+)(?:/(\w+))?(?:/([^/]+))?", path)
            if not match or unquote(match[1]) not in self.models:
                raise RefusedError(404, f"found no {path} here")
            return self._of_model(
                self.models[unquote(match[1])], f"{method} {match[2] or ''}", match[3], query, body
            )

    def _of_model(  # noqa: PLR0911 - a table of what the service does
        self, model: FakeModel, action: str, rest: str | None, query: dict[str, str], body: dict[str, Any]
    ) -> tuple[int, Any]:
        head = {"model": model.id, "version": model.version}
        match action:
            case "GET ":
                return 200, model.card()
            case "GET labels":
                return 200, model.labels(query.get("query", ""), int(query.get("limit", 20)))
            case "GET near":
                return 200, {"label": query["label"], "near": model.near(query["label"], int(query.get("k", 10)))}
            case "POST suggest":
                texts = body["texts"] if "texts" in body else [body["text"]]
                chosen = {name: body[name] for name in ("k", "threshold", "favor_rare") if name in body}
                return 200, {**head, "results": [{"labels": model.suggest(text, **chosen)} for text in texts]}
            case "POST explain":
                unknown = [label for label in body["labels"] if label not in model.weights()]
                if unknown:
                    raise RefusedError(404, f"found no label {unknown[0]} in {model.id}")
                return 200, {
                    **head,
                    "explanations": [model.explain(body["text"], each) for each in body["labels"]],
                }
            case "POST similar" if model.has_index:
                return 200, {"documents": model.similar(body["text"], body.get("k", 5))}
            case "POST feedback":
                entry = model.teach(body["text"], body["accept"], body["reject"])
                return 201, {"id": entry.id, "learning": model.learning()}
            case "GET feedback":
                newest = model.entries[::-1][: int(query.get("limit", 20))]
                return 200, {"entries": [entry.as_dict() for entry in newest]}
            case "DELETE feedback":
                model.undo(next(entry for entry in model.entries if entry.id == rest))
                return 200, {"id": rest, "learning": model.learning()}
            case "GET learning":
                return 200, model.learning(poll=True)
            case "POST rollback" if len(model.versions) > 1:
                model.roll_back()
                return 200, {"version": model.version}
        raise RefusedError(409, f"{model.id} cannot do that: {action}")


def _handler(server: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            parts = urlsplit(self.path)
            if not parts.path.startswith("/v1/"):
                self.send_page(parts.path)
                return
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else {}
            headers: dict[str, str] = {}
            try:
                if server.token and self.headers.get("Authorization") != f"Bearer {server.token}":
                    raise RefusedError(401, "found no valid token; wanted Authorization: Bearer")
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                status, answer = server.answer(self.command, parts.path, query, body)
            except RefusedError as error:
                status, answer = error.status, {"detail": error.detail}
                headers = {name.replace("_", "-"): value for name, value in error.headers.items()}
            self.reply(status, "application/json", json.dumps(answer).encode(), headers)

        do_GET = do_POST = do_DELETE = answer  # noqa: N815 - http.server looks for these names

        def send_page(self, path: str) -> None:
            file = PAGE / ("index.html" if path == "/" else path.removeprefix("/page/"))
            if not file.is_file() or file.parent != PAGE:
                self.reply(404, "application/json", b'{"detail": "no such file"}', {})
                return
            headers = {"Content-Security-Policy": POLICY}
            self.reply(200, f"{TYPES[file.suffix]}; charset=utf-8", file.read_bytes(), headers)

        def reply(self, status: int, kind: str, content: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                self.wfile.write(content)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the page did not want this answer any more

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that http.server gives
            """Keep quiet."""

    return Handler


if __name__ == "__main__":
    served = FakeServer(FakeModel("pydocs"), FakeModel("eurlex", has_index=False, can_learn=False), port=8000)
    served.start()
    print(served.url)
    while True:
        time.sleep(60)
