"""circlet as a backend of Annif, the subject indexing toolkit of the National Library of Finland.

`circlet-annif` is Annif's command line, and `create_app` its web service; both also have the backend `circlet`.
See docs/annif.md. This package imports neither Annif nor torch until they are needed.
"""

from __future__ import annotations

import multiprocessing
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

from circlet.checks import require
from circlet.compat import annif_backends
from circlet.errors import CircletError, MissingExtraError

__all__ = ["create_app", "main", "register"]


def register() -> None:
    """Add the backend to Annif's own list of backends, for which Annif has no entry points.

    Raises
    ------
    CircletError
        If Annif is not installed, or is a version that keeps its backends elsewhere.
    """
    require("annif", extra="annif", purpose="circlet-annif")
    import annif.backend

    known = annif_backends(annif.backend)
    if known is None:
        from importlib.metadata import version

        raise CircletError(
            f"found Annif {version('annif')}, which does not list its backends where 1.4 does; "
            "wanted a version that circlet knows: pip install 'circlet[annif]'"
        )
    known["circlet"] = lambda: import_module("circlet.annif.backend").CircletBackend


def main() -> None:
    """Run Annif's command line."""
    try:
        register()
    except CircletError as error:
        print(f"circlet-annif: {error}", file=sys.stderr)  # noqa: T201 — a command's own error
        sys.exit(2)
    from annif.cli import cli

    cli(prog_name="circlet-annif")


def create_app(config_name: str | None = None) -> Any:
    """Make Annif's web service, for `uvicorn --factory circlet.annif:create_app`."""
    register()
    import annif

    return annif.create_app(config_name)


# If multiprocessing spawns workers instead of forking them, each imports the main module and runs no command. At
# that time, a worker has a name of its own, but no parent.
if multiprocessing.current_process().name != "MainProcess":
    with suppress(MissingExtraError):
        register()
