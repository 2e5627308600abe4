from __future__ import annotations

import errno
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from circlet import files
from circlet.errors import OutputError
from circlet.model import Model
from circlet.storage.layout import (
    CARD,
    CHECKPOINT,
    DECIDED,
    HISTORY,
    LABELS,
    LOCK,
    RUN,
    WEIGHTS,
    name_in,
    read_config,
)
from circlet.storage.publish import folder_lock, new_generation, publishing, remove_run, settle


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def names_of(number: int) -> list[str]:
    """The files of a model of a generation."""
    return sorted(["config.json", CARD, *(name_in(number, name) for name in (HISTORY, LABELS, WEIGHTS))])


def test_each_model_has_names_of_its_own(tmp_path, untrained):
    for number in (1, 2, 3):
        assert new_generation(tmp_path) == number
        untrained(seed=number).save(tmp_path)
        assert names(tmp_path) == names_of(number)
        assert read_config(tmp_path)["generation"] == number
        assert Model.load(tmp_path).network.settings.seed == number


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"generation": -3}', '{"generation": "a"}'])
def test_names_that_are_there_are_not_used_again(damage, folder, untrained):
    (folder / "labels-7.txt").write_text("of a model that was never finished\n")
    (folder / "config.json").write_text(damage)
    assert new_generation(folder) == 8
    untrained().save(folder)
    assert names(folder) == names_of(8)


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
    assert names(folder) == names_of(2)


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
        before = names(folder)
        assert not settle(folder.parent)  # there is no model
        assert not settle(folder)  # there is no run
        self.start(folder, **run)
        started = names(folder)
        (folder / "labels-2.txt").write_text("of a model that was not finished\n")
        assert not settle(folder)
        assert names(folder) == started
        remove_run(folder)
        assert names(folder) == before


# The lock


def test_it_says_who_holds_it_and_goes_away(tmp_path):
    with folder_lock(tmp_path):
        found = json.loads((tmp_path / LOCK).read_text(encoding="utf-8"))
        assert found["pid"] == os.getpid()
        assert set(found) == {"pid", "host", "since"}
        with folder_lock(tmp_path):  # a run that saves its model
            pass
        assert (tmp_path / LOCK).exists()
    assert list(tmp_path.iterdir()) == []


def test_another_thread_is_refused(tmp_path):
    refused = []

    def write() -> None:
        try:
            with folder_lock(tmp_path, patience=0):
                pass
        except OutputError as error:
            refused.append(str(error))

    with folder_lock(tmp_path):
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
    (message,) = refused
    assert message.startswith(f"cannot write {tmp_path}: process {os.getpid()} on ")
    assert "is writing into it; wait for it to end, or choose another folder" in message
    write()
    assert len(refused) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork there")
class TestProcesses:
    def test_another_one_is_waited_for(self, tmp_path, forked, waited):
        def hold() -> None:
            with folder_lock(tmp_path):
                (tmp_path / "held").touch()
                while not (tmp_path / "waited for").exists():
                    time.sleep(0.01)
                (tmp_path / "held").unlink()

        def wait(seconds: float) -> None:
            (tmp_path / "waited for").touch()
            time.sleep(seconds)

        child = forked(hold)
        while not (tmp_path / "held").exists():
            time.sleep(0.01)
        with (
            pytest.raises(OutputError, match=f"process {child} on .*, since .*, is writing into it"),
            folder_lock(tmp_path, patience=0),
        ):
            pass
        with folder_lock(tmp_path, patience=60, wait=wait):
            assert not (tmp_path / "held").exists()
        assert waited(child) == 0

    def test_it_vanishes_with_its_process(self, tmp_path, forked, waited):
        def die() -> None:
            with folder_lock(tmp_path):
                os._exit(7)

        assert waited(forked(die)) == 7
        assert (tmp_path / LOCK).exists()
        with folder_lock(tmp_path, patience=0):
            assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()
        assert list(tmp_path.iterdir()) == []

    def test_what_killed_processes_left_is_removed(self, tmp_path, forked, waited):
        gone = forked(lambda: None)
        waited(gone)
        (tmp_path / f".weights.safetensors.{gone}.part").touch()
        (tmp_path / f".weights.safetensors.{gone}.xabc.part").mkdir()
        (tmp_path / f".weights.safetensors.{gone}.xabc.part" / ".tmp").touch()
        kept = [f".weights.safetensors.{os.getppid()}.part", "mine.1.part"]
        for name in kept:
            (tmp_path / name).touch()
        with folder_lock(tmp_path):
            pass
        assert names(tmp_path) == kept


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="links are followed there")
def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "model" / LOCK).symlink_to(tmp_path / "mine.txt")
    with pytest.raises(OutputError, match=r"cannot write .*\.lock"), folder_lock(tmp_path / "model"):
        pass
    assert (tmp_path / "mine.txt").read_text() == "mine"
    (tmp_path / "model" / LOCK).unlink()
    os.mkfifo(tmp_path / "model" / LOCK)
    wanted = r"\.lock: found a folder, pipe or device"
    with pytest.raises(OutputError, match=wanted), folder_lock(tmp_path / "model"):
        pass


def test_a_link_to_itself_is_refused(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for folder in (loop, loop / "model"):
        with pytest.raises(OutputError, match="cannot write"), folder_lock(folder):
            pass


def test_folders_that_were_empty(tmp_path):
    with folder_lock(tmp_path / "a" / "b"):
        pass
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a").mkdir()
    with folder_lock(tmp_path / "a"):
        pass
    assert (tmp_path / "a").is_dir()  # it was there before
    with folder_lock(tmp_path / "a" / "b"):
        (tmp_path / "a" / "b" / "c").touch()
    assert names(tmp_path / "a" / "b") == ["c"]
    with pytest.raises(OutputError, match=r"cannot write .*c"), folder_lock(tmp_path / "a" / "b" / "c"):
        pass
