"""The options that several commands share, and one option for each setting of a run.

Also the completion of names in a shell, and the effect of --device and --threads.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from circlet.checks import bytes_of, require
from circlet.errors import ParameterError
from circlet.settings.network import Setting, shown

if TYPE_CHECKING:
    from circlet.runtime import Tagger


def complete_data(incomplete: str) -> list[str]:
    """Complete the names of datasets; the shell completes files itself."""
    from circlet.data.catalog import ENTRIES

    return [name for name in ENTRIES if name.startswith(incomplete)]


def complete_preset(incomplete: str) -> list[str]:
    """Complete the names of presets."""
    from circlet.settings import PRESETS

    return [name for name in PRESETS if name.startswith(incomplete)]


ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a model from `circlet train`.")]
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
#: The values from the options of `reads_data` and `with_settings`.
Given = dict[str, Any] | None
Device = Annotated[str, typer.Option(help="Device: auto, cpu, cuda, cuda:1, …")]
Threads = Annotated[
    int | None, typer.Option(min=1, max=4096, help="Number of CPU threads.", show_default="one per core")
]
FavorRare = Annotated[
    float,
    typer.Option(
        min=0,
        max=1,
        help="Rank rare labels higher: 0 ranks by probability, 1 by probability × inverse propensity.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def reads_data(*, names: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options for reading data; with `names`, also those for the names of labels.

    The command's parameter `read` gets the values that were given, a dictionary for `load_dataset`.
    """
    options = {
        "text_column": (str, typer.Option(help="Column or JSON key of the text.", show_default="text")),
        "label_column": (str, typer.Option(help="Column or JSON key of the labels.", show_default="labels")),
        "label_separator": (
            str,
            typer.Option(help="Separator of labels in CSV and TSV; [] for lists.", show_default="guessed"),
        ),
        "split": (int, typer.Option(min=0, help="Column of the Repository's split files.", show_default="0")),
    }
    if names:
        about = "Vocabulary with names for labels that are URIs: Annif's TSV or SKOS (.ttl, .rdf)."
        options["names"] = (Path, typer.Option(help=about))
        options["names_language"] = (
            str,
            typer.Option(help="Language of SKOS names, such as en.", show_default="that of most names"),
        )
    parameters = [_optional(name, kind, info) for name, (kind, info) in options.items()]

    def given(words: dict[str, Any]) -> dict[str, Any]:
        return {
            name: str(word) if isinstance(word, Path) else word for name, word in words.items() if word is not None
        }

    return lambda command: _taking(command, "read", parameters, given)


def with_settings(panels: Mapping[str, Sequence[str]]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each setting of a run.

    The command's parameter `settings` gets a dictionary; the value of an option that was not given is None.
    `panels` assigns the command's own parameters to panels of the help; the others are in the first one.
    """
    from circlet.settings.run import all_settings

    settings = {name: each for name, each in all_settings().items() if each.panel}
    parameters = [_parameter(name, each) for name, each in settings.items()]
    panel_of = {name: panel for panel, names in panels.items() for name in names}
    order = list(panels)

    def given(words: dict[str, Any]) -> dict[str, Any]:
        return {name: _read(name, settings[name], word) for name, word in words.items()}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        taking = _taking(command, "settings", parameters, given)
        placed = []
        for each in inspect.signature(taking).parameters.values():
            kind, info = get_args(each.annotation)
            info = copy(info)
            info.rich_help_panel = info.rich_help_panel or panel_of.get(each.name, order[0])
            placed.append((order.index(info.rich_help_panel), each.replace(annotation=Annotated[kind, info])))
        placed.sort(key=lambda each: each[0])
        taking.__signature__ = inspect.Signature([each for _, each in placed])  # type: ignore[attr-defined]
        return taking

    return decorate


def _taking(
    command: Callable[..., None],
    name: str,
    parameters: Sequence[inspect.Parameter],
    given: Callable[[dict[str, Any]], dict[str, Any]],
) -> Callable[..., None]:
    """Replace the parameter `name` of a command by other parameters; `given` turns their values into its value."""

    @wraps(command)
    def taking(*arguments: Any, **words: Any) -> None:
        own = {each.name: words.pop(each.name, None) for each in parameters}
        command(*arguments, **words, **{name: given(own)})

    all_of_them: list[inspect.Parameter] = []
    for each in inspect.signature(command, eval_str=True).parameters.values():
        all_of_them += parameters if each.name == name else [each.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
    taking.__signature__ = inspect.Signature(all_of_them)  # type: ignore[attr-defined]
    taking.__annotations__ = {}  # the signature has them
    return taking


def _optional(name: str, kind: Any, info: Any) -> inspect.Parameter:
    annotation: Any = Annotated[kind | None, info]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _parameter(name: str, setting: Setting) -> inspect.Parameter:
    """The option of a setting; without it, the preset decides."""
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
    return _optional(name, bool if setting.kind.type is bool else str, info)


def _read(name: str, setting: Setting, word: Any) -> Any:
    """Parse the value of an option; --char-ngrams keeps "none", because None means not given."""
    if not isinstance(word, str) or (word == "none" and setting.kind.type is tuple):
        return word
    try:
        return setting.kind.read(word)
    except ValueError:
        option = name.replace("_", "-")
        raise ParameterError(f"--{option}: found {word!r}; wanted {setting.kind.words}") from None


def use_torch(purpose: str, threads: int | None = None, *, extra: str = "train") -> None:
    """Raise an error if torch is not installed, before any work; else set its number of threads, if given."""
    require("torch", extra=extra, purpose=purpose)
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def bytes_given(text: str | None, option: str) -> int | None:
    """Return the bytes that an option names, such as 5MB; None if it is not given."""
    return None if text is None else bytes_of(text, option)


def load_tagger(folder: Path, device: str, threads: int | None) -> Tagger:
    """Load the tagger of a model, with this number of threads on a CPU; None for the libraries' own choice.

    On a CPU it works without torch, whose import takes longer than tagging thousands of documents. A GPU needs
    torch, and so do encoders of texts that were trained with the network.
    """
    from circlet.runtime.tagger import tagger_of
    from circlet.storage.contents import read
    from circlet.storage.model import explained

    with explained(folder):
        saved = read(folder, estimator=True)
        only_torch = saved.encoder is not None and saved.encoder.learns
        if device in ("auto", "cpu") and not only_torch:
            from circlet.runtime import RuntimeModel
            from circlet.threads import use_threads

            if threads is not None:
                use_threads(threads)
            return tagger_of(folder, saved, RuntimeModel.restore(folder, saved))
    encoder = saved.config["network"].get("encoder")
    use_torch(f"a model with encoder {encoder}" if only_torch else f"running on {device}", threads)
    from circlet.model import Model
    from circlet.training import resolve_device

    place = resolve_device(device)
    with explained(folder):
        return tagger_of(folder, saved, Model.restore(folder, saved, device=place))
