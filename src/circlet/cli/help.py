"""What `--help` shows besides docstrings: examples of every command, and flags that do not look like options.

Also how a shell completes the names of datasets and presets.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from typer.core import TyperCommand, TyperGroup

__all__ = [
    "EXAMPLES",
    "Command",
    "Group",
    "PaperGroup",
    "complete_data",
    "complete_preset",
    "epilog",
]

#: Commands that a person could run as they stand, by the command they show.
EXAMPLES: dict[str, tuple[str, ...]] = {
    "demo": ("circlet demo", "circlet demo --json"),
    "train": (
        "circlet train mine.jsonl --model mine",
        "circlet train monday.csv tuesday.csv --model mine --preset fast --for precision=0.9",
        "circlet train fulltext/ --model mine --names subjects.tsv",
        "circlet train more.jsonl --model mine --continue",
    ),
    "predict": (
        'echo "solve a sparse linear system" | circlet predict mine - -k 3',
        "circlet predict mine new.csv --output tagged.csv",
        "circlet predict mine reports/ --threshold 0 -k 10 --json",
    ),
    "evaluate": (
        "circlet evaluate mine held-out.jsonl",
        "circlet evaluate mine held-out.jsonl --plot thresholds.png --per-label labels.csv",
        "circlet evaluate eurlex eurlex-4k -k 1,10 --json",
    ),
    "info": ("circlet info mine", "circlet info mine --plot history.png", "circlet info mine --verify"),
    "compress": (
        "circlet compress mine --loss 0.5",
        "circlet compress mine --size 5MB --output tiny",
        "circlet compress mine --store int8",
    ),
    "export": ("circlet export mine tagger.onnx -k 10",),
    "embed": ("circlet embed mine.jsonl --sentence-model models/all-MiniLM-L6-v2 --output features",),
    "explain": (
        'circlet explain mine "solve a sparse linear system"',
        'circlet explain mine "solve a sparse linear system" --label algebra --json',
    ),
    "serve": (
        "circlet serve --demo --open",
        "circlet serve mine other",
        "circlet serve mine --port 9000 --no-learn",
    ),
    "tune": ("circlet tune mine.jsonl --budget 10m", "circlet tune mine.jsonl --budget 2h --preset accurate"),
    "feedback list": ("circlet feedback list mine.feedback.jsonl",),
    "feedback export": ("circlet feedback export mine.feedback.jsonl corrected.jsonl",),
    "datasets list": ("circlet datasets list", "circlet datasets list --json"),
    "datasets fetch": ("circlet datasets fetch eurlex-4k",),
    "datasets info": ("circlet datasets info pydocs", "circlet datasets info mine.csv --label-column tags"),
}


class Command(TyperCommand):
    """A command whose flags show no type in its help: `--json <bool>` looks as if it took a value."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


class Group(TyperGroup):
    """The same for a group of commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


class PaperGroup(Group):
    """The commands of the paper's package, which is imported only when one of them is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return self._group.list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return self._group.get_command(ctx, cmd_name)

    @cached_property
    def _group(self) -> TyperGroup:
        import typer.main

        from circlet_paper.reproduce import app

        return typer.main.get_group(app)


def epilog(command: str, *more: str) -> str:
    """The examples of a command, as the end of its help."""
    lines = (f"  {line}" for line in (*EXAMPLES.get(command, ()), *more))
    return "\b\n" + "\n".join(["Examples:", *lines])


def complete_data(incomplete: str) -> list[str]:
    """Names of datasets that begin so; files are the shell's business."""
    from circlet.data.catalog import ENTRIES

    return [name for name in ENTRIES if name.startswith(incomplete)]


def complete_preset(incomplete: str) -> list[str]:
    """Names of presets that begin so."""
    from circlet.settings.auto import PRESETS

    return [name for name in PRESETS if name.startswith(incomplete)]


def _without_types(params: list[Any]) -> list[Any]:
    for each in params:
        if getattr(each, "is_flag", False) and each.metavar is None:
            each.metavar = ""
    return params
