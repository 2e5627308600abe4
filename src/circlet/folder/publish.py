"""How a model gets into its folder as a whole: files under new names, then `config.json`, which lists them.

Until `config.json` is replaced, the folder holds the former model; from then on, the new one. Whatever a process
that is killed leaves behind is not listed, and is removed by the next one that writes here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from circlet import files
from circlet.errors import DataError, OutputError
from circlet.folder.layout import (
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
from circlet.folder.lock import writing

__all__ = ["Publication", "new_generation", "publishing", "remove_run", "settle"]

log = logging.getLogger(__name__)


class Publication:
    """A model that is being written.

    Parameters
    ----------
    folder : Path
    generation : int
        The number of this model among those that were ever in the folder, from 1.
    """

    def __init__(self, folder: Path, generation: int) -> None:
        self.folder, self.generation = folder, generation
        self._paths: dict[str, Path] = {}

    def path(self, name: str, *, zipped: bool = False) -> Path:
        """Where to write a file of the model; the caller does."""
        self._paths[name] = self.folder / name_in(self.generation, name, zipped=zipped)
        return self._paths[name]

    def commit(self, config: dict[str, Any], card: str) -> None:
        """Let the folder hold this model; the configuration lacks only the list of its files.

        The card is for people, who look for it under the same name in every folder. So it is none of the listed
        files, and replaces the former one when the model has.
        """
        listed = {name: described(path) for name, path in self._paths.items()}
        whole = {**config, "generation": self.generation, "files": listed}
        files.write_json(self.folder / CONFIG, sealed(whole))
        try:
            files.write_text(self.folder / CARD, card)
        except OutputError as error:  # the model itself is there
            log.warning("%s", error)

    def clean_up(self) -> None:
        """Remove the files of the former model if this one is committed; otherwise those of this one."""
        # The folder itself knows. Ctrl-C may come after `config.json` was replaced, and before anybody took note.
        if _generation(self.folder) == self.generation:
            _remove_others(self.folder, set(self._paths.values()))
            remove_run(self.folder)
        else:
            for path in self._paths.values():
                _remove(path)


@contextmanager
def publishing(folder: Path) -> Iterator[Publication]:
    """Write a model, in place of any that is there; the body writes its files and commits it.

    If the body fails, the folder holds the former model as before.
    """
    with writing(folder):
        new = Publication(folder, new_generation(folder))
        try:
            yield new
        finally:
            new.clean_up()


def new_generation(folder: Path) -> int:
    """The number of the next model in a folder; no file has it yet, unless there is no model."""
    if not (folder / CONFIG).exists():
        return 1
    return 1 + max(_generation(folder), *(number for _, number in model_files(folder)), 1)


def settle(folder: Path) -> bool:
    """Finish what a killed process had begun; whether it was a run that had already saved its model.

    Files of a model that was not committed, or of one that was replaced, are removed.
    """
    try:
        config = read_config(folder)
    except DataError:
        return False
    _remove_others(folder, {located(folder, config, name) for name in config["files"]})
    try:
        run = files.read_json(folder / RUN)
    except DataError:
        return False  # there is none, or whoever resumes it will complain
    number = run.get("generation") if isinstance(run, dict) else None
    finished = type(number) is int and number <= config["generation"]
    if finished:
        remove_run(folder)
    return finished


def remove_run(folder: Path) -> None:
    """Remove the files of a run that is over; last its description, by which the others can be resumed."""
    for path in folder.glob("checkpoint*.safetensors"):
        if is_checkpoint(path.name):
            _remove(path)
    for name in (DECIDED, RUN):
        _remove(folder / name)


def _generation(folder: Path) -> int:
    """The number of the model in a folder; 0 if its configuration does not say."""
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
    except OSError as error:  # on some systems, as long as anybody uses it; the next save tries again
        log.info("%s could not be removed (%s)", path, error.strerror)
