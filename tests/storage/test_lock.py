from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest

from circlet.errors import OutputError
from circlet.storage.layout import LOCK
from circlet.storage.lock import writing


def test_it_says_who_holds_it_and_goes_away(tmp_path):
    with writing(tmp_path):
        found = json.loads((tmp_path / LOCK).read_text(encoding="utf-8"))
        assert found["pid"] == os.getpid()
        assert set(found) == {"pid", "host", "since"}
        with writing(tmp_path):  # a run that saves its model
            pass
        assert (tmp_path / LOCK).exists()
    assert list(tmp_path.iterdir()) == []


def test_another_thread_is_refused(tmp_path):
    refused = []

    def write() -> None:
        try:
            with writing(tmp_path, patience=0):
                pass
        except OutputError as error:
            refused.append(str(error))

    with writing(tmp_path):
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
            with writing(tmp_path):
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
            writing(tmp_path, patience=0),
        ):
            pass
        with writing(tmp_path, patience=60, wait=wait):
            assert not (tmp_path / "held").exists()
        assert waited(child) == 0

    def test_it_vanishes_with_its_process(self, tmp_path, forked, waited):
        def die() -> None:
            with writing(tmp_path):
                os._exit(7)

        assert waited(forked(die)) == 7
        assert (tmp_path / LOCK).exists()
        with writing(tmp_path, patience=0):
            assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()
        assert list(tmp_path.iterdir()) == []

    def test_what_killed_processes_left_is_removed(self, tmp_path, forked, waited):
        gone = forked(lambda: None)
        waited(gone)
        (tmp_path / f".weights.safetensors.{gone}.part").touch()
        (tmp_path / f".weights.safetensors.{gone}.xabc.part").mkdir()
        (tmp_path / f".weights.safetensors.{gone}.xabc.part" / ".tmp").touch()
        (tmp_path / f".weights.safetensors.{os.getppid()}.part").touch()
        (tmp_path / "mine.1.part").touch()
        with writing(tmp_path):
            pass
        kept = [f".weights.safetensors.{os.getppid()}.part", "mine.1.part"]
        assert sorted(path.name for path in tmp_path.iterdir()) == kept


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="links are followed there")
def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "model" / LOCK).symlink_to(tmp_path / "mine.txt")
    with pytest.raises(OutputError, match=r"cannot write .*\.lock"), writing(tmp_path / "model"):
        pass
    assert (tmp_path / "mine.txt").read_text() == "mine"
    (tmp_path / "model" / LOCK).unlink()
    os.mkfifo(tmp_path / "model" / LOCK)
    with pytest.raises(OutputError, match=r"\.lock: found a folder, pipe or device"), writing(tmp_path / "model"):
        pass


@pytest.mark.parametrize("within", ["", "model"])
def test_a_link_to_itself_is_refused(tmp_path, within):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(OutputError, match="cannot write"), writing(loop / within):
        pass


class TestNewFolders:
    def test_an_empty_one_does_not_stay(self, tmp_path):
        with writing(tmp_path / "a" / "b"):
            pass
        assert list(tmp_path.iterdir()) == []
        (tmp_path / "a").mkdir()
        with writing(tmp_path / "a"):
            pass
        assert (tmp_path / "a").is_dir()  # it was there before

    def test_one_that_is_used_does(self, tmp_path):
        with writing(tmp_path / "a" / "b"):
            (tmp_path / "a" / "b" / "c").touch()
        assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["c"]

    def test_a_file_in_its_place(self, tmp_path):
        (tmp_path / "a").touch()
        with pytest.raises(OutputError, match=r"cannot write .*a"), writing(Path(tmp_path / "a")):
            pass
