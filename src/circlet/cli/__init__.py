"""The `circlet` command: parse arguments, call the library, print results.

Nothing here imports torch before a command needs it, so that `circlet --help` answers at once.
"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import Annotated, Any, TextIO, cast

import typer

from circlet.cli.console import Stdout, err, give_up, occupy_closed_streams
from circlet.cli.help import Commands, Group
from circlet.cli.options import check_processes
from circlet.errors import CircletError, about_memory, shortened
from circlet.version import __version__

# The base class of all usage errors. Newer versions of typer bundle click and older ones depend on it, so there is
# no one module to import it from.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

_OWN = "demo train predict evaluate explain serve info compress export embed tune datasets feedback"
PAPER = "Reproduce the paper's experiments: numbers, tables and pictures."
#: The module of each command.
COMMANDS = {name: f"circlet.cli.{name}" for name in _OWN.split()}
COMMANDS |= {"datasets": "circlet.cli.data", "reproduce": "circlet_paper.reproduce"}


class _Root(Group):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands: Any = Commands(COMMANDS, {"reproduce": PAPER})


app = typer.Typer(
    name="circlet",
    help="Tag documents from huge label vocabularies, with an output layer that does not grow with them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    cls=_Root,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"circlet {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Define the options that come before a command."""
    check_processes(context.invoked_subcommand)


def main() -> None:
    """Run the command line; a user's mistake is one line on stderr and exit status 2."""
    occupy_closed_streams()
    try:
        with redirect_stdout(cast(TextIO, Stdout(sys.stdout))):
            status = app(standalone_mode=False, prog_name="circlet")
            sys.stdout.flush()
    except typer.Exit as error:  # of the last flush
        status = error.exit_code
    except CircletError as error:
        _fail(str(error))
    except UsageError as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "circlet"
        if not error.format_message():  # type: ignore[attr-defined]
            sys.exit(2)  # without arguments, and the help was shown
        _fail(f"{error.format_message()} (see {command} --help)")  # type: ignore[attr-defined]
    except (KeyboardInterrupt, typer.Abort):
        err.print("interrupted", style="yellow")
        sys.exit(130)
    except OSError as error:
        _fail(f"{error.filename or 'the system'}: {error.strerror or error}")
    except (MemoryError, RuntimeError) as error:
        reason = about_memory(error)
        if reason is None:
            raise
        _fail(f"there is not enough memory ({reason}); wanted less data at a time, or smaller sizes")
    sys.exit(status or 0)


def _fail(message: str) -> None:
    one_line = " ".join(shortened(message).split())
    try:
        err.print(f"circlet: {one_line}", style="red", markup=False, highlight=False, soft_wrap=True)
    except OSError:
        give_up(sys.stderr)  # there is nowhere else to say it; the exit status does
    sys.exit(2)
