"""The options of commands: those that several share, and one for each setting of a run.

Also how a shell completes names, and what --device and --threads mean for a model.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from circlet.errors import ParameterError
from circlet.extras import require
from circlet.settings.fields import Setting, shown

if TYPE_CHECKING:
    from circlet.runtime import Tagger


def complete_data(incomplete: str) -> list[str]:
    """Names of datasets that begin so; files are the shell's business."""
    from circlet.data.catalog import ENTRIES

    return [name for name in ENTRIES if name.startswith(incomplete)]


def complete_preset(incomplete: str) -> list[str]:
    """Names of presets that begin so."""
    from circlet.settings import PRESETS

    return [name for name in PRESETS if name.startswith(incomplete)]


ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder that `circlet train` wrote.")]
Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="A dataset's name, or a file or folder with data.", autocompletion=complete_data
    ),
]
SeveralData = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA...",
        help="A dataset's name, or a file or folder with data; or several files with texts.",
        autocompletion=complete_data,
    ),
]
TextColumn = Annotated[str, typer.Option(help="Column or JSON key of the text.")]
LabelColumn = Annotated[str, typer.Option(help="Column or JSON key of the labels.")]
LabelSeparator = Annotated[
    str | None,
    typer.Option(help="What separates labels in CSV and TSV; [] for lists.", show_default="guessed"),
]
SplitColumn = Annotated[
    int, typer.Option("--split", min=0, help="Which column of the Repository's split files to use.")
]
Names = Annotated[
    Path | None,
    typer.Option(
        help="Names of labels that are URIs: a vocabulary as Annif's TSV or SKOS (.ttl, .rdf).",
        show_default="none",
    ),
]
NamesLanguage = Annotated[
    str | None, typer.Option(help="Language of SKOS names, like en.", show_default="the one most names have")
]
#: The parameters that say how data is read.
READING = ("text_column", "label_column", "label_separator", "split", "names", "names_language")
Device = Annotated[str, typer.Option(help="Where to run: auto, cpu, cuda, cuda:1, …")]
Threads = Annotated[
    int | None, typer.Option(min=1, max=4096, help="CPU threads to use.", show_default="one per core")
]
FavorRare = Annotated[
    float,
    typer.Option(
        min=0,
        max=1,
        help="Rank rare labels higher: 0 is by probability alone, 1 by probability × inverse propensity.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def with_settings(panels: Mapping[str, Sequence[str]]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each setting of a run.

    The command has a parameter `settings`, a dictionary, and gets the values that were given; None is not given.
    `panels` says in which panel of the help the command's own parameters are.
    """
    from circlet.settings.run import all_settings

    settings = {name: each for name, each in all_settings().items() if each.panel}
    panel_of = {name: panel for panel, names in panels.items() for name in names}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def parsed(*arguments: Any, **words: Any) -> None:
            given = {name: _read(name, each, words.pop(name, None)) for name, each in settings.items()}
            command(*arguments, **words, settings=given)

        own = inspect.signature(command, eval_str=True).parameters.values()
        parameters = [_placed(each, panel_of.get(each.name)) for each in own if each.name != "settings"]
        parameters += [_parameter(name, each) for name, each in settings.items()]
        order = list(panels)
        parameters.sort(key=lambda each: order.index(_info(each).rich_help_panel))
        parsed.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
        )
        parsed.__annotations__ = {}
        return parsed

    return decorate


def _info(parameter: inspect.Parameter) -> Any:
    return get_args(parameter.annotation)[1]


def _placed(parameter: inspect.Parameter, panel: str | None) -> inspect.Parameter:
    """The same parameter in a panel of the help."""
    kind, info = get_args(parameter.annotation)
    info = copy(info)
    info.rich_help_panel = panel
    return parameter.replace(annotation=Annotated[kind, info])


def _parameter(name: str, setting: Setting) -> inspect.Parameter:
    """The option of a setting; leaving it out leaves the setting to the preset."""
    words = f"{setting.help}: {', '.join(setting.kind.choices)}." if setting.kind.choices else setting.help
    usual = setting.usual
    if setting.kind.type is bool:
        usual = setting.option.split("/")[not usual].removeprefix("--")
    info = typer.Option(
        *([setting.option] if setting.option else []),
        help=words,
        show_default=shown(usual),
        metavar=setting.kind.metavar,
        rich_help_panel=setting.panel,
    )
    kind: Any = setting.kind.type | None
    annotation: Any = Annotated[kind, info]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _read(name: str, setting: Setting, word: Any) -> Any:
    """The value that a word stands for; "none" stays, because None is not given."""
    if not isinstance(word, str) or word == "none":
        return word
    try:
        return setting.kind.read(word)
    except ValueError:
        option = name.replace("_", "-")
        raise ParameterError(f"--{option}: wanted {setting.kind.words}, got {word!r}") from None


def use_torch(purpose: str, threads: int | None = None, *, extra: str = "train") -> None:
    """Refuse a command that needs torch if it is not installed; else let torch use this many threads.

    The first thing that such a command does: nothing is read or written in vain. None leaves the choice to torch.
    """
    require("torch", extra=extra, purpose=purpose)
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def check_processes(command: str | None) -> None:
    """Refuse a command that torchrun started several times, unless it can share its work."""
    number, rank = os.environ.get("WORLD_SIZE", "1"), os.environ.get("RANK")
    if number == "1" or rank is None or command in (None, "train"):
        return
    if rank != "0":
        raise typer.Exit(2)  # the first process says why
    raise ParameterError(f"found {number} processes of circlet {command}; only train shares its work: start one")


def load_tagger(folder: Path, device: str, threads: int | None) -> Tagger:
    """A tagger for the model in a folder, with so many threads on a CPU; None leaves the choice to the libraries.

    On a CPU it works without torch, which takes longer to import than thousands of documents take to be tagged. A
    GPU needs torch, and so do encoders that read texts.
    """
    from circlet.folder.contents import explained, read
    from circlet.folder.layout import reads_texts
    from circlet.runtime.tagger import tagger_of

    with explained(folder):
        saved = read(folder, estimator=True)
        words = reads_texts(saved.config)
        if device in ("auto", "cpu") and not words:
            from circlet.runtime import RuntimeModel
            from circlet.threads import use_threads

            if threads is not None:
                use_threads(threads)
            return tagger_of(folder, saved, RuntimeModel.restore(folder, saved))
    encoder = saved.config["network"].get("encoder")
    use_torch(f"a model with encoder {encoder}" if words else f"running on {device}", threads)
    from circlet.devices import resolve_device
    from circlet.model import Model

    place = resolve_device(device)
    with explained(folder):
        return tagger_of(folder, saved, Model.restore(folder, saved, place))
