"""Write a model into its folder atomically: files under new names first, then `config.json`, which lists them.

Until `config.json` is replaced, the folder has the old model; from then on, the new one. Files that a killed
process leaves behind are not listed, and the next writer removes them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from circlet import files
from circlet.errors import DataError, OutputError
from circlet.storage.layout import (
    CARD,
    CONFIG,
    DECIDED,
    RUN,
    described,
    is_checkpoint,
    located,
    model_files,
    name_in,
    read_config,
    sealed,
)
from circlet.storage.lock import writing

__all__ = ["Publication", "new_generation", "publishing", "remove_run", "settle"]

log = logging.getLogger(__name__)


class Publication:
    """A model being written.

    Parameters
    ----------
    folder : Path
    generation : int
        The number of this model among all models that the folder ever had, from 1.
    """

    def __init__(self, folder: Path, generation: int) -> None:
        self.folder, self.generation = folder, generation
        self._paths: dict[str, Path] = {}

    def path(self, name: str, *, zipped: bool = False) -> Path:
        """Return the path where the caller writes a file of the model."""
        self._paths[name] = self.folder / name_in(self.generation, name, zipped=zipped)
        return self._paths[name]

    def commit(self, config: dict[str, Any], card: str) -> None:
        """Replace the folder's model; `config` is complete except for the list of files.

        The card has the same name in every folder, where people look for it. So it is not listed, and replaces the
        old card after the model was replaced.
        """
        listed = {name: described(path) for name, path in self._paths.items()}
        whole = {**config, "generation": self.generation, "files": listed}
        files.write_json(self.folder / CONFIG, sealed(whole))
        try:
            files.write_text(self.folder / CARD, card)
        except OutputError as error:  # the model itself is complete
            log.warning("%s", error)

    def clean_up(self) -> None:
        """Remove the files of the old model if this one is committed, or else the files of this one."""
        # Ask the folder: Ctrl-C may come just after `config.json` was replaced, before a flag could be set.
        if _generation(self.folder) == self.generation:
            _remove_others(self.folder, set(self._paths.values()))
            remove_run(self.folder)
        else:
            for path in self._paths.values():
                _remove(path)


@contextmanager
def publishing(folder: Path) -> Iterator[Publication]:
    """Write a model, replacing the one in the folder; the body writes the files and commits.

    If the body fails, the old model stays.
    """
    with writing(folder):
        new = Publication(folder, new_generation(folder))
        try:
            yield new
        finally:
            new.clean_up()


def new_generation(folder: Path) -> int:
    """Return a number for the next model in a folder that no file has yet; 1 if there is no model."""
    if not (folder / CONFIG).exists():
        return 1
    return 1 + max(_generation(folder), *(number for _, number in model_files(folder)), 1)


def settle(folder: Path) -> bool:
    """Clean up after a killed process; return whether its run had already saved the model.

    Files of models that were not committed, or were replaced, are removed.
    """
    try:
        config = read_config(folder)
    except DataError:
        return False
    _remove_others(folder, {located(folder, config, name) for name in config["files"]})
    try:
        run = files.read_json(folder / RUN)
    except DataError:
        return False  # there is no run, or resuming it will raise the error
    number = run.get("generation") if isinstance(run, dict) else None
    finished = type(number) is int and number <= config["generation"]
    if finished:
        remove_run(folder)
    return finished


def remove_run(folder: Path) -> None:
    """Remove the files of a finished run; its description last, because resuming needs it."""
    for path in folder.glob("checkpoint*.safetensors"):
        if is_checkpoint(path.name):
            _remove(path)
    for name in (DECIDED, RUN):
        _remove(folder / name)


def _generation(folder: Path) -> int:
    """Return the number of the model in a folder; 0 if its configuration has none."""
    try:
        config = files.read_json(folder / CONFIG)
    except DataError:
        return 0
    found = config.get("generation") if isinstance(config, dict) else None
    return found if type(found) is int and 0 < found < 10**17 else 0


def _remove_others(folder: Path, own: set[Path]) -> None:
    for path, _ in list(model_files(folder)):
        if path not in own:
            _remove(path)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:  # in use, on some systems; the next save tries again
        log.info("%s could not be removed (%s)", path, error.strerror)
