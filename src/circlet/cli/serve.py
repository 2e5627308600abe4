"""`circlet serve`: models behind HTTP, and a page to use and teach them."""

from __future__ import annotations

import logging
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from circlet.checks import require
from circlet.cli import options
from circlet.cli.console import err
from circlet.errors import DataError, ParameterError
from circlet.serve.guard import Limits

if TYPE_CHECKING:
    import socket

    from circlet.serve.guard import Access
    from circlet.serve.served import Served

#: What is accepted unless options say otherwise.
LIMITS = Limits()
#: A token that can't be guessed has at least so many characters.
SHORTEST = 16


def serve(
    models: Annotated[
        list[Path] | None,
        typer.Argument(metavar="MODEL...", help="Folders that `circlet train` wrote; their names become ids."),
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Serve a model of Python's documentation, trained the first time.")
    ] = False,
    host: Annotated[
        str, typer.Option(help="Address to listen on; the default is this machine only.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 finds a free one.")] = 8000,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    learn: Annotated[
        bool | None,
        typer.Option(
            "--learn/--no-learn",
            help="Learn from feedback.",
            show_default="if a model takes texts, its folder can be written and torch is installed",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the token that clients must send; needed beyond this machine.", show_default="none"
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond this machine without a token.")
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Another name by which clients call the service, as behind a proxy.", show_default="none"
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(help="Pages of this origin may ask too, like https://example.org.", show_default="none"),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(help="Address of a proxy whose X-Forwarded-For says who the client is.", show_default="none"),
    ] = None,
    rate: Annotated[
        float, typer.Option(min=0, help="Requests per second of a client, in the long run; 0 is no limit.")
    ] = LIMITS.rate,
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of a request.")] = LIMITS.body,
    max_documents: Annotated[int, typer.Option(min=1, help="Documents of a request.")] = LIMITS.documents,
    max_queue: Annotated[int, typer.Option(min=1, help="Documents that may wait.")] = LIMITS.queue,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log no line per request.")] = False,
    log_texts: Annotated[bool, typer.Option("--log-texts", help="Log the texts of requests too.")] = False,
    threads: options.Threads = None,
) -> None:
    """Answer requests for labels over HTTP, and serve a page to try, understand and teach models.

    GET /v1/models lists the models, and POST /v1/models/ID/suggest takes {"text": "…"}.
    /openapi.json describes everything; /v1/projects speaks Annif's dialect. Ctrl-C stops.
    """
    for module in ("fastapi", "prometheus_client", "uvicorn"):
        require(module, extra="serve", purpose="the service")
    folders = [*(models or []), *([demo_model()] if demo else [])]
    if not folders:
        raise ParameterError("found no model; wanted one or more folders, or --demo")
    ids = _ids(folders)
    from circlet.serve.app import create_app
    from circlet.serve.server import bound, is_loopback, run, url_of
    from circlet.threads import use_threads

    if threads is not None:
        use_threads(threads)
    limits = Limits(body=max_body, documents=max_documents, queue=max_queue, rate=rate)
    with bound(host, port) as listening:
        access = _access(listening, host, token_file, allow_host, allow_origin)
        alone = is_loopback(listening)
        if not alone and access.token is None and not insecure:
            raise ParameterError(
                f"--host {host}: others can reach it; wanted --token-file FILE, or --insecure to let anybody in"
            )
        served = [_loaded(folder, name) for folder, name in zip(folders, ids, strict=True)]
        for model, folder in zip(served, folders, strict=True):
            _let_learn(model, folder, learn, safe=alone or access.token is not None)
        logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
        logging.getLogger("circlet.serve").setLevel(logging.INFO)
        app = create_app(served, limits, access, log_requests=not quiet, log_texts=log_texts)

        def announce() -> None:
            err.print(
                f"serving {', '.join(ids)} on {url_of(listening)} (Ctrl-C stops)", highlight=False, soft_wrap=True
            )
            if open_page:
                webbrowser.open(url_of(listening))

        run(app, listening, announce, proxy)
    err.print("stopped")


def demo_model() -> Path:
    """The model of `pydocs` in the user's cache; trained now if it is not there yet."""
    import platformdirs

    from circlet.cli.train import train
    from circlet.storage.layout import CHECKPOINT, CONFIG
    from circlet.version import __version__

    folder = platformdirs.user_cache_path("circlet") / "models" / __version__ / "pydocs"
    if not (folder / CONFIG).exists():
        err.print(f"training the model of the demo, once, into {folder}", highlight=False, soft_wrap=True)
        train(["pydocs"], folder, keep_index=True, resume=(folder / CHECKPOINT).exists())
    return folder


def _ids(folders: list[Path]) -> list[str]:
    """The ids of models: the names of their folders."""
    ids = [folder.resolve().name for folder in folders]
    for folder, name in zip(folders, ids, strict=True):
        if ids.count(name) > 1:
            raise ParameterError(f"found two models called {name}; wanted folders with different names")
        if not name or not name.isprintable():
            raise ParameterError(
                f"{folder}: found no name that can be an id; wanted a folder with a printable name"
            )
    return ids


def _access(
    listening: socket.socket,
    host: str,
    token_file: Path | None,
    allow_host: list[str] | None,
    allow_origin: list[str] | None,
) -> Access:
    from circlet.serve.guard import Access
    from circlet.serve.server import is_loopback

    hosts = {name.lower() for name in allow_host or []}
    if is_loopback(listening):  # a page elsewhere could call this machine by a name of its own
        hosts |= {"localhost", "127.0.0.1", "::1", host.lower(), listening.getsockname()[0]}
    for origin in allow_origin or []:
        if origin.partition("://")[0] not in ("http", "https") or origin.count("/") != 2:
            raise ParameterError(f"--allow-origin: found {origin!r}; wanted one like https://example.org")
    token = None if token_file is None else _token(token_file)
    return Access(token, hosts or None, tuple(allow_origin or ()))


def _token(path: Path) -> str:
    from circlet import files

    try:
        token = files.read_bytes(path, "token").decode("ascii").strip()
    except UnicodeDecodeError:
        raise DataError(f"{path}: found bytes that are not ASCII; wanted a token") from None
    if len(token) < SHORTEST or not token.isprintable() or " " in token:
        raise DataError(
            f"{path}: found a token of {len(token)} characters; wanted one line of at least {SHORTEST}, no spaces"
        )
    return token


def _loaded(folder: Path, name: str) -> Served:
    from circlet.serve.served import Served

    return Served.load(folder, name)


def _let_learn(model: Served, folder: Path, learn: bool | None, *, safe: bool) -> None:
    """Let a model learn if that was asked for, or if nothing speaks against it."""
    from circlet.serve.feedback import why_not

    if learn or (learn is None and safe and why_not(folder) is None):
        model.learn(folder)
