"""The `circlet` command: parse arguments, call the library, print results.

Nothing here imports torch before a command needs it, so that `circlet --help` answers at once.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from circlet.cli import compress, datasets, demo, embed, evaluate, export, info, predict, reproduce, train
from circlet.cli.console import err
from circlet.errors import CircletError
from circlet.version import __version__

# The base class of all usage errors. Newer versions of typer bundle click and older ones depend on it, so there is
# no one module to import it from.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="circlet",
    help="Tag documents from huge label vocabularies, with an output layer that does not grow with them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    demo.demo,
    train.train,
    predict.predict,
    evaluate.evaluate,
    info.info,
    compress.compress,
    export.export,
    embed.embed,
):
    app.command()(command)
app.add_typer(datasets.app)
app.add_typer(reproduce.app)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"circlet {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Define the options that come before a command."""


def main() -> None:
    """Run the command line; a user's mistake is one line on stderr and exit status 2."""
    try:
        status = app(standalone_mode=False)
    except CircletError as error:
        _fail(str(error))
    except UsageError as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "circlet"
        _fail(f"{error.format_message()} (see {command} --help)")  # type: ignore[attr-defined]
    except (KeyboardInterrupt, typer.Abort):
        err.print("interrupted", style="yellow")
        sys.exit(130)
    sys.exit(status or 0)


def _fail(message: str) -> None:
    one_line = " ".join(message.split())
    err.print(f"circlet: {one_line}", style="red", markup=False, highlight=False, soft_wrap=True)
    sys.exit(2)
