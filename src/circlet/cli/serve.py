"""`circlet serve`: models over HTTP, and a page to try them and to give feedback."""

from __future__ import annotations

import logging
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from circlet.checks import require
from circlet.cli import options
from circlet.cli.console import say
from circlet.errors import DataError, ParameterError

if TYPE_CHECKING:
    import socket

    from circlet.serve.guard import Access

#: Minimum number of characters of a token, so that it can't be guessed.
SHORTEST = 16


def serve(
    models: Annotated[
        list[Path] | None,
        typer.Argument(metavar="MODEL...", help="Folders of models from `circlet train`; their names become ids."),
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Serve a model of Python's documentation; the first call trains it.")
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
            show_default="if the model reads texts, its folder is writable and torch is installed",
        ),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token that clients must send; required beyond this machine.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond this machine without a token.")
    ] = False,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Further name of the host in requests, for example behind a proxy.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(help="Allow requests from pages of this origin, such as https://example.org."),
    ] = None,
    proxy: Annotated[
        list[str] | None, typer.Option(help="Address of a proxy whose X-Forwarded-For names the client.")
    ] = None,
    rate: Annotated[
        float, typer.Option(min=0, help="Requests per second of a client on average; 0 is no limit.")
    ] = 1000.0,
    max_body: Annotated[int, typer.Option(min=1, help="Maximum bytes of a request.")] = 8 << 20,
    max_documents: Annotated[int, typer.Option(min=1, help="Maximum documents of a request.")] = 512,
    max_queue: Annotated[int, typer.Option(min=1, help="Maximum documents that wait.")] = 2048,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not log requests.")] = False,
    log_texts: Annotated[bool, typer.Option("--log-texts", help="Log the texts of requests as well.")] = False,
    threads: options.Threads = None,
) -> None:
    """Suggest labels over HTTP, and serve a page to try models, see explanations and give feedback.

    GET /v1/models lists the models, and POST /v1/models/ID/suggest takes {"text": "…"}. /openapi.json describes
    all requests; those under /v1/projects are the same as Annif's. Ctrl-C stops the service.
    """
    for module in ("fastapi", "prometheus_client", "uvicorn"):
        require(module, extra="serve", purpose="the service")
    folders = [*(models or []), *([demo_model()] if demo else [])]
    if not folders:
        raise ParameterError("found no model; wanted one or more folders, or --demo")
    ids = _ids(folders)
    from circlet.serve.app import create_app
    from circlet.serve.feedback import why_not
    from circlet.serve.guard import Limits
    from circlet.serve.served import Served
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
                f"found --host {host}, which others can reach; wanted --token-file FILE, or --insecure to let "
                "anybody in"
            )
        served = [Served.load(folder, name) for folder, name in zip(folders, ids, strict=True)]
        safe = alone or access.token is not None
        for model, folder in zip(served, folders, strict=True):
            if learn or (learn is None and safe and why_not(folder) is None):
                model.learn(folder)
        logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
        logging.getLogger("circlet.serve").setLevel(logging.INFO)
        app = create_app(served, limits, access, log_requests=not quiet, log_texts=log_texts)

        def announce() -> None:
            say(f"serving {', '.join(ids)} on {url_of(listening)} (Ctrl-C stops)")
            if open_page:
                webbrowser.open(url_of(listening))

        run(app, listening, announce, proxy)
    say("stopped")


def demo_model() -> Path:
    """Return the model of `pydocs` in the user's cache, and train it if necessary."""
    import platformdirs

    from circlet.cli.train import train
    from circlet.storage.layout import CHECKPOINT, CONFIG
    from circlet.version import __version__

    folder = platformdirs.user_cache_path("circlet") / "models" / __version__ / "pydocs"
    if not (folder / CONFIG).exists():
        say(f"training the model of the demo, once, into {folder}")
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
            raise ParameterError(f"--allow-origin: found {origin!r}; wanted an origin such as https://example.org")
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
