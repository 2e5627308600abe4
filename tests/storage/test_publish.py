from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from circlet import files
from circlet.errors import OutputError
from circlet.model import Model
from circlet.storage.layout import CARD, CHECKPOINT, DECIDED, HISTORY, LABELS, RUN, WEIGHTS, name_in, read_config
from circlet.storage.publish import new_generation, publishing, remove_run, settle


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_each_model_has_names_of_its_own(tmp_path, untrained):
    for number in (1, 2, 3):
        assert new_generation(tmp_path) == number
        untrained(seed=number).save(tmp_path)
        own = [CARD, *(name_in(number, name) for name in (HISTORY, LABELS, WEIGHTS))]
        assert names(tmp_path) == sorted(["config.json", *own])
        assert read_config(tmp_path)["generation"] == number
        assert Model.load(tmp_path).network.settings.seed == number


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"generation": -3}', '{"generation": "a"}'])
def test_names_that_are_there_are_not_used_again(damage, folder, untrained):
    (folder / "labels-7.txt").write_text("of a model that was never finished\n")
    (folder / "config.json").write_text(damage)
    assert new_generation(folder) == 8
    untrained().save(folder)
    own = [CARD, *(name_in(8, name) for name in (HISTORY, LABELS, WEIGHTS))]
    assert names(folder) == sorted(["config.json", *own])


def test_ctrl_c_right_after_the_commit(folder, untrained, monkeypatch):
    real = files.write_json

    def interrupted(path: Path, content: Any) -> None:
        real(path, content)
        if path.name == "config.json":
            raise KeyboardInterrupt

    monkeypatch.setattr(files, "write_json", interrupted)
    with pytest.raises(KeyboardInterrupt):
        untrained(seed=3).save(folder)
    assert Model.load(folder).network.settings.seed == 3
    own = [CARD, *(name_in(2, name) for name in (HISTORY, LABELS, WEIGHTS))]
    assert names(folder) == sorted(["config.json", *own])


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_fails_at_any_time(error, tmp_path, untrained, monkeypatch, state):
    untrained(texts=True).save(tmp_path)
    before, content, real = names(tmp_path), state(tmp_path), os.replace
    for at in range(20):
        calls: list[Any] = []

        def failing(*arguments: Any, at: int = at, calls: list[Any] = calls) -> None:
            calls.append(arguments)
            if len(calls) > at:
                raise OSError(error, os.strerror(error))
            real(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", failing)
            message = ""
            try:
                untrained(texts=True, seed=3).save(tmp_path)
            except OutputError as caught:
                message = str(caught)
        if not message:
            break
        assert message.startswith("cannot write ")
        assert message.endswith(os.strerror(error))
        assert names(tmp_path) == before
        assert state(tmp_path) == content
    assert at > 5
    assert state(tmp_path) != content


def test_a_folder_without_a_model_is_left_as_it_was(tmp_path):
    (tmp_path / "mine.txt").touch()

    def fail() -> None:
        with publishing(tmp_path) as new:
            new.path(WEIGHTS).touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert names(tmp_path) == ["mine.txt"]


class TestRuns:
    FILES = (CHECKPOINT, "checkpoint-2.safetensors", DECIDED, RUN)

    def start(self, folder: Path, **run: Any) -> None:
        for name in self.FILES:
            (folder / name).touch()
        files.write_json(folder / RUN, run)

    def test_one_that_has_saved_its_model(self, folder, untrained):
        self.start(folder, generation=2)
        untrained(seed=3).save(folder)
        done = names(folder)
        assert not set(done) & set(self.FILES)
        self.start(folder, generation=2)
        (folder / "labels.txt").write_text("of the former model\n")
        assert settle(folder)
        assert names(folder) == done

    @pytest.mark.parametrize("run", [{"generation": 2}, {}, {"generation": "1"}])
    def test_one_that_has_not(self, run, folder):
        self.start(folder, **run)
        before = names(folder)
        (folder / "labels-2.txt").write_text("of a model that was not finished\n")
        assert not settle(folder)
        assert names(folder) == before

    def test_none(self, tmp_path, folder):
        assert not settle(tmp_path)
        assert not settle(folder)

    def test_removed(self, folder):
        before = names(folder)
        self.start(folder)
        remove_run(folder)
        assert names(folder) == before
