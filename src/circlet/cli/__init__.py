"""The `circlet` command: parse arguments, call the library, print results.

Nothing here imports torch before a command needs it, so that `circlet --help` answers at once.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from functools import cache
from importlib import import_module
from typing import Annotated, Any, TextIO, cast, get_args

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from circlet.cli.console import Stdout, give_up, occupy_closed_streams, out, say
from circlet.errors import CircletError, ParameterError, about_memory, shortened
from circlet.version import __version__

# The base class of all usage errors. Newer versions of typer bundle click and older ones depend on it, so there is
# no one module to import it from.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

#: The module of each command; it has a function or a group with the command's name, or an `app`.
COMMANDS = {
    "demo": "circlet.cli.demo",
    "train": "circlet.cli.train",
    "predict": "circlet.cli.predict",
    "evaluate": "circlet.cli.evaluate",
    "explain": "circlet.cli.explain",
    "serve": "circlet.cli.serve",
    "info": "circlet.cli.info",
    "compress": "circlet.cli.export",
    "export": "circlet.cli.export",
    "embed": "circlet.cli.data",
    "tune": "circlet.cli.tune",
    "datasets": "circlet.cli.data",
    "feedback": "circlet.cli.data",
    "reproduce": "circlet_paper.reproduce",
}
PAPER = "Reproduce the paper's experiments: numbers, tables and pictures."
#: Examples for the help; a command shows those that call it.
EXAMPLES = """
circlet demo
circlet demo --json
circlet train mine.jsonl --model mine
circlet train monday.csv tuesday.csv --model mine --preset fast --for precision=0.9
circlet train fulltext/ --model mine --names subjects.tsv
circlet train more.jsonl --model mine --continue
echo "solve a sparse linear system" | circlet predict mine - -k 3
circlet predict mine new.csv --output tagged.csv
circlet predict mine reports/ --threshold 0 -k 10 --json
circlet evaluate mine held-out.jsonl
circlet evaluate mine held-out.jsonl --plot thresholds.png --per-label labels.csv
circlet evaluate eurlex eurlex-4k -k 1,10 --json
circlet info mine
circlet info mine --plot history.png
circlet info mine --verify
circlet compress mine --loss 0.5
circlet compress mine --size 5MB --output tiny
circlet compress mine --store int8
circlet export mine tagger.onnx -k 10
circlet embed mine.jsonl --sentence-model models/all-MiniLM-L6-v2 --output features
circlet explain mine "solve a sparse linear system"
circlet explain mine "solve a sparse linear system" --label algebra --json
circlet serve --demo --open
circlet serve mine other
circlet serve mine --port 9000 --no-learn
circlet tune mine.jsonl --budget 10m
circlet tune mine.jsonl --budget 2h --preset accurate
circlet feedback list mine.feedback.jsonl
circlet feedback export mine.feedback.jsonl corrected.jsonl
circlet datasets list
circlet datasets list --json
circlet datasets fetch eurlex-4k
circlet datasets info pydocs
circlet datasets info mine.csv --label-column tags
""".strip().splitlines()
#: Placeholders for values, by type, unless an option has its own.
_METAVARS = {"int": "N", "float": "X", "Path": "PATH", "str": "TEXT"}


def _print_help(command: Any, ctx: Any, formatter: Any) -> None:
    from rich.padding import Padding
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    known = inspect.signature(command.callback, eval_str=True).parameters if command.callback else {}
    params = command.get_params(ctx)
    # --help itself is in the last panel.
    panels = ["Options", *(panel for each in params if (panel := getattr(each, "rich_help_panel", None)))]
    rows: dict[str, list[tuple[Text, Text]]] = {}
    usage = [ctx.command_path, "[OPTIONS]"]
    for each in params:
        kind = str(next(iter(get_args(known[each.name].annotation)), "")) if each.name in known else ""
        metavar = each.metavar or next((word for name, word in _METAVARS.items() if name in kind), "")
        if each.param_type_name == "argument":
            metavar = each.metavar or each.name.upper()
            usage.append(metavar if each.required else f"[{metavar}]")
            what, panel = Text(metavar, "bold cyan"), "Arguments"
        else:
            what = Text(", ".join([*sorted(each.opts, key=len), *each.secondary_opts]), "bold cyan")
            panel = panels[-1]
            if not each.is_flag:
                what.append(f" {metavar}", "not bold yellow")
        about = Text(each.help or "")
        if default := _default(each):
            about.append(f" [{default}]", "dim")
        rows.setdefault(getattr(each, "rich_help_panel", None) or panel, []).append((what, about))
    if commands := getattr(command, "commands", {}):
        usage.append("COMMAND [ARGS]...")
        for name in commands:  # importing the paper's experiments only for their line would take long
            line = PAPER if name == "reproduce" else _paragraphs(commands[name].help)[0]
            rows.setdefault("Commands", []).append((Text(name, "bold cyan"), Text(line)))
    first, *details = _paragraphs(command.help)
    out.print(Padding(Text(f"Usage: {' '.join(usage)}", "bold"), 1), highlight=False)
    out.print(Padding(Text(first), (0, 1, 1, 1)), highlight=False)
    width = max(what.cell_len for each in rows.values() for what, _ in each)
    for name, pairs in rows.items():
        table = Table(box=None, show_header=False, pad_edge=False, expand=True)
        table.add_column(width=width, no_wrap=True)
        table.add_column(ratio=1)
        for pair in pairs:
            table.add_row(*pair)
        out.print(Panel(table, title=name, title_align="left", border_style="dim"), highlight=False)
    for paragraph in details:
        out.print(Padding(Text(paragraph), (1, 1, 0, 1)), highlight=False)
    examples = [line for line in EXAMPLES if f"{ctx.command_path} " in f"{line} "]
    if examples := ([] if commands else examples) or (command.epilog or "").splitlines():
        out.print()
        for example in ("Examples:", *(f"  {each}" for each in examples)):
            out.print(Text(f" {example}"), soft_wrap=True, highlight=False)


class Command(TyperCommand):
    """A command whose help starts with the first paragraph of its docstring and ends with examples."""

    format_help = _print_help


class Group(TyperGroup):
    """A group of commands with the same kind of help."""

    format_help = _print_help


@cache
def _command(name: str) -> Any:
    module = import_module(COMMANDS[name])
    found = getattr(module, name, None) or module.app
    if isinstance(found, typer.Typer):
        return typer.main.get_group(found)
    alone = typer.Typer(add_completion=False)
    alone.command(name, cls=Command)(found)
    return typer.main.get_command(alone)


class _Commands(Mapping[str, Any]):
    """All commands by name; a command is imported when it runs or its help is shown."""

    def __getitem__(self, name: str) -> Any:
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Root(Group):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands: Any = _Commands()


def _default(param: Any) -> str:
    """The default of a parameter as text; empty if it is obvious."""
    is_option = param.param_type_name == "option"
    if param.required:
        return "required" if is_option else ""
    if isinstance(param.show_default, str):
        return param.show_default
    if callable(param.default) or getattr(param, "is_flag", False):
        return ""
    return str(param.default) if param.default is not None else "none" if is_option else ""


def _paragraphs(text: str | None) -> list[str]:
    return [" ".join(each.split()) for each in inspect.cleandoc(text or "").split("\n\n")]


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
    """Handle the options before a command; refuse several processes of torchrun, unless they train."""
    number, rank = os.environ.get("WORLD_SIZE", "1"), os.environ.get("RANK")
    if number != "1" and rank is not None and context.invoked_subcommand not in (None, "train"):
        if rank != "0":
            raise typer.Exit(2)  # the first process prints the error
        raise ParameterError(
            f"found {number} processes of circlet {context.invoked_subcommand}; wanted one: only train is shared"
        )


def main() -> None:
    """Run the command line; a user's mistake prints one line to stderr and exits with 2."""
    occupy_closed_streams()
    try:
        with redirect_stdout(cast(TextIO, Stdout(sys.stdout))):
            status = app(standalone_mode=False, prog_name="circlet")
            sys.stdout.flush()
    except typer.Exit as error:  # from the last flush
        status = error.exit_code
    except CircletError as error:
        _fail(str(error))
    except UsageError as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "circlet"
        if not error.format_message():  # type: ignore[attr-defined]
            sys.exit(2)  # no arguments; the help has been printed
        _fail(f"{error.format_message()} (see {command} --help)")  # type: ignore[attr-defined]
    except (KeyboardInterrupt, typer.Abort):
        say("interrupted", "yellow")
        sys.exit(130)
    except OSError as error:
        _fail(f"{error.filename or 'the system'}: {error.strerror or error}")
    except (MemoryError, RuntimeError) as error:
        reason = about_memory(error)
        if reason is None:
            raise
        _fail(f"found not enough memory ({reason}); wanted less data at a time, or smaller sizes")
    sys.exit(status or 0)


def _fail(message: str) -> None:
    one_line = " ".join(shortened(message).split())
    try:
        say(f"circlet: {one_line}", "red")
    except OSError:
        give_up(sys.stderr)  # only the exit status is left to tell
    sys.exit(2)
