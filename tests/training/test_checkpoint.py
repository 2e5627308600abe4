from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import scipy.sparse as sp
import torch
from safetensors.torch import load_file, save_file
from tests.training.runs import CtrlC, F, L, N, assert_same_weights, data, make, settings, timeless
from torch import nn

from circlet.errors import DataError, OutputError
from circlet.network import Network
from circlet.settings.run import OPTIMIZERS
from circlet.training import (
    InterruptedRunError,
    Reporter,
    TrainingSettings,
    checkpoint,
    loop,
    train,
)
from circlet.training.steps import Batches

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

STEPS = 4  # of an epoch


X, Y = data()
HELD_OUT = data(1, 30)


@pytest.fixture(scope="module")
def uninterrupted() -> tuple[Network, list[dict[str, Any]]]:
    whole = make()
    return whole, train(whole, X, Y, settings(), validation=HELD_OUT)


class TestInterruption:
    @pytest.mark.parametrize("at", range(1, 3 * STEPS + 1))
    def test_a_run_interrupted_in_any_step_ends_like_one_that_was_not(self, at, uninterrupted, tmp_path):
        (whole, history), parts = uninterrupted, make()
        with pytest.raises(InterruptedRunError) as caught:
            train(parts, X, Y, settings(), validation=HELD_OUT, folder=tmp_path, reporter=CtrlC(at))
        assert str(tmp_path) in str(caught.value)
        assert "resume" in str(caught.value)
        assert (tmp_path / checkpoint.NAME).is_file()
        resumed = make()
        counter = CtrlC()
        again = train(
            resumed, X, Y, settings(), validation=HELD_OUT, folder=tmp_path, resume=True, reporter=counter
        )
        assert_same_weights(resumed, whole)
        assert timeless(again) == timeless(history)
        assert counter.steps == 3 * STEPS - at  # no step is done twice

    @pytest.mark.parametrize("optimizer", OPTIMIZERS)
    @pytest.mark.parametrize("at", [1, 4, 6])
    def test_steps_by_rows_resume(self, optimizer, at, tmp_path):
        # Fewer entries per document than elsewhere, and many features that no document has.
        wide = sp.hstack([X[:, :3], sp.csr_matrix((N, 60))], format="csr").astype(np.float32)
        chosen = settings(optimizer=optimizer, weight_decay=0.01)
        build = lambda: Network(make().settings, 63, L, sparse=True)  # noqa: E731
        assert Batches(wide, Y, chosen, 0).by_rows
        whole, resumed = build(), build()
        train(whole, wide, Y, chosen)
        with pytest.raises(InterruptedRunError):
            train(build(), wide, Y, chosen, folder=tmp_path, reporter=CtrlC(at))
        train(resumed, wide, Y, chosen, folder=tmp_path, resume=True)
        assert_same_weights(resumed, whole)
        assert torch.equal(whole.encoder.hidden[0].weight[3:], build().encoder.hidden[0].weight[3:])

    def test_interrupted_again_and_again(self, tmp_path):
        whole = make()
        train(whole, X, Y, settings())
        for _ in range(11):
            with pytest.raises(InterruptedRunError):
                train(make(), X, Y, settings(), folder=tmp_path, resume=True, reporter=CtrlC(1))
        resumed = make()
        counter = CtrlC()
        train(resumed, X, Y, settings(), folder=tmp_path, resume=True, reporter=counter)
        assert counter.steps == 1
        assert_same_weights(resumed, whole)

    def test_dense_rows_in_any_memory_order(self, tmp_path):
        dense = np.asfortranarray(X.toarray())
        build = lambda: Network(make().settings, F, L, sparse=False)  # noqa: E731
        whole, resumed = build(), build()
        train(whole, dense, Y, settings())
        with pytest.raises(InterruptedRunError):
            train(build(), dense, Y, settings(), folder=tmp_path, reporter=CtrlC(5))
        train(resumed, np.ascontiguousarray(dense), Y, settings(), folder=tmp_path, resume=True)
        assert_same_weights(resumed, whole)

    def test_the_best_weights_and_patience_are_remembered(self, tmp_path, monkeypatch):
        def scripted(values):
            script = iter(values)
            monkeypatch.setattr(loop, "evaluate", lambda *_, **__: {"P@1": next(script)})

        chosen = settings(epochs=9, patience=2, schedule="constant")
        whole, resumed = make(), make()
        train(whole, X, Y, settings(epochs=1, schedule="constant"))
        scripted([0.9, 0.1])
        with pytest.raises(InterruptedRunError):
            train(make(), X, Y, chosen, validation=HELD_OUT, folder=tmp_path, reporter=CtrlC(2 * STEPS + 1))
        scripted([0.2])
        history = train(resumed, X, Y, chosen, validation=HELD_OUT, folder=tmp_path, resume=True)
        assert [record["P@1"] for record in history] == [0.9, 0.1, 0.2]
        assert_same_weights(resumed, whole)

    def test_signals_stay_with_the_main_thread(self, tmp_path):
        done = []
        thread = threading.Thread(target=lambda: done.append(train(make(), X, Y, settings(), folder=tmp_path)))
        thread.start()
        thread.join()
        assert len(done[0]) == 3


class TestCheckpoints:
    def test_there_is_one_after_every_epoch(self, tmp_path):
        seen = []

        class Watch(Reporter):
            def epoch(self, number: int, n_steps: int, done: int) -> None:
                seen.append((tmp_path / checkpoint.NAME).exists())

        train(make(), X, Y, settings(), folder=tmp_path, reporter=Watch())
        assert seen == [False, True, True]
        assert [path.name for path in tmp_path.iterdir()] == [checkpoint.NAME]

    def test_without_one_a_run_starts_at_the_beginning(self, tmp_path):
        one, other = make(), make()
        train(one, X, Y, settings(), folder=tmp_path / "new", resume=True)
        train(other, X, Y, settings())
        assert_same_weights(one, other)

    def test_it_is_not_used_without_resume(self, tmp_path):
        counter = CtrlC()
        for _ in range(2):
            train(make(), X, Y, settings(), folder=tmp_path, reporter=counter)
        assert counter.steps == 2 * 3 * STEPS

    @pytest.fixture
    def interrupted(self, tmp_path) -> Path:
        with pytest.raises(InterruptedRunError):
            train(make(), X, Y, settings(), validation=HELD_OUT, folder=tmp_path, reporter=CtrlC(2 * STEPS + 1))
        return tmp_path / checkpoint.NAME

    def resumed(self, path: Path) -> None:
        train(make(), X, Y, settings(), validation=HELD_OUT, folder=path.parent, resume=True)

    def test_no_bit_of_its_description_changes_unnoticed(self, interrupted):
        content = interrupted.read_bytes()
        first = content.index(b"__metadata__")
        last = content.index(b"}", content.index(b"digest", first))
        for position in range(first + len(b'__metadata__":{"about":"'), last, 5):
            changed = bytearray(content)
            changed[position] ^= 1 << position % 7
            interrupted.write_bytes(changed)
            with pytest.raises(DataError, match="found no intact checkpoint"):
                self.resumed(interrupted)
        interrupted.write_bytes(content)
        self.resumed(interrupted)

    @pytest.mark.parametrize(
        "change",
        [{"epoch": 0}, {"step": 2}, {"best_value": 0.5}, {"epoch": -1}, {"total_loss": None}, {"more": 1},
         {"history": 3}, {"epoch": ...}, {"digest": ...}, {"digest": ..., "run": ..., "epoch": "1"}],
    )  # fmt: skip
    def test_another_description(self, interrupted, change):
        with safetensors.safe_open(interrupted, framework="pt") as stored:
            about = {**json.loads(stored.metadata()["about"]), **change}
        about = {name: value for name, value in about.items() if value is not ...}
        safetensors.torch.save_file(
            safetensors.torch.load_file(interrupted), interrupted, metadata={"about": json.dumps(about)}
        )
        with pytest.raises(DataError, match=r"found no intact checkpoint \(.*; remove it to start again"):
            self.resumed(interrupted)

    def test_other_names_of_labels(self, tmp_path):
        names = [f"label {i}" for i in range(L)]
        with pytest.raises(InterruptedRunError):
            train(make(), X, Y, settings(), folder=tmp_path, reporter=CtrlC(2), label_names=names)
        for others in (names[::-1], [*names[:-1], "another"], None):
            with pytest.raises(DataError, match="found a checkpoint of another run: labels with other names"):
                train(make(), X, Y, settings(), folder=tmp_path, resume=True, label_names=others)
        train(make(), X, Y, settings(), folder=tmp_path, resume=True, label_names=names)

    @pytest.mark.skipif(sys.platform == "win32", reason="no such permissions there")
    def test_its_permissions_are_the_usual_ones(self, tmp_path):
        train(make(), X, Y, settings(epochs=1), folder=tmp_path)
        (tmp_path / "other").write_bytes(b"")
        assert (tmp_path / checkpoint.NAME).stat().st_mode == (tmp_path / "other").stat().st_mode

    def test_removal(self, tmp_path):
        checkpoint.remove(tmp_path)
        train(make(), X, Y, settings(), folder=tmp_path)
        kept = ["checkpoint-a.safetensors", "checkpoints.safetensors", "mine.txt"]
        for name in ("checkpoint-2.safetensors", "checkpoint-13.safetensors", *kept):
            (tmp_path / name).write_text("")
        checkpoint.remove(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == kept


class TestMembers:
    def test_each_has_its_own_and_the_one_that_is_trained_keeps_only_its_weights(self, tmp_path):
        for member in (0, 1):
            run = {"validation": HELD_OUT, "folder": tmp_path, "member": member, "stage": member}
            train(make(seed=member), X, Y, settings(), **run)
        for member in (0, 1):
            tensors = load_file(tmp_path / checkpoint.name_of(member))
            assert {name.partition(".")[0] for name in tensors} == {"network", "noise"}

    @pytest.mark.parametrize(("stage", "patience"), [(None, None), (1, None), (1, 1)])
    def test_trained_there_is_nothing_left_to_do(self, tmp_path, stage, patience):
        done, again, counter = make(), make(), CtrlC()
        run = {"settings": settings(patience=patience), "validation": HELD_OUT, "folder": tmp_path}
        run |= {"member": stage, "stage": stage}
        history = train(done, X, Y, **run)
        path = tmp_path / checkpoint.name_of(stage or 0)
        written = path.stat().st_mtime_ns
        assert train(again, X, Y, **run, resume=True, reporter=counter) == history
        assert [record.get("member") for record in history] == [stage and stage + 1] * len(history)
        assert counter.steps == 0
        assert_same_weights(done, again)
        assert path.stat().st_mtime_ns == written

    def test_an_interruption_names_it(self, tmp_path):
        with pytest.raises(
            InterruptedRunError, match=r"interrupted in epoch 1 of member 2; .* holds a checkpoint"
        ):
            train(make(), X, Y, settings(), folder=tmp_path, member=1, stage=1, reporter=CtrlC(1))


class TestAnotherRun:
    @pytest.fixture
    def folder(self, tmp_path) -> Path:
        with pytest.raises(InterruptedRunError):
            train(make(), X, Y, settings(), validation=HELD_OUT, folder=tmp_path, reporter=CtrlC(5))
        return tmp_path

    def refused(self, folder: Path, differs: str, network: Network | None = None, **changes) -> None:
        run = {"X": X, "Y": Y, "settings": settings(), "validation": HELD_OUT, **changes}
        before = (folder / checkpoint.NAME).read_bytes()
        with pytest.raises(DataError, match="found a checkpoint of another run: ") as error:
            train(network or make(), **run, folder=folder, resume=True)
        assert f"{folder / checkpoint.NAME}: found a checkpoint of another run: {differs}. Wanted" in str(
            error.value
        )
        assert (folder / checkpoint.NAME).read_bytes() == before

    @pytest.mark.parametrize(
        ("changes", "network", "differs"),
        [
            ({"epochs": 4}, {}, "epochs 3, and now 4"),
            ({"lr": 0.03}, {}, "lr 0.02, and now 0.03"),
            ({"optimizer": "sgd", "batch_size": 8}, {}, "batch-size 16, and now 8, optimizer adamw, and now sgd"),
            ({}, {"seed": 1}, "seed 0, and now 1"),
            ({}, {"head": "hrr"}, "head chrr-amplitude, and now hrr, weights of other shapes"),
            ({}, {"loss": "cosine"}, "loss bce, and now cosine, weights of other shapes"),
            ({"input_dropout": 0.1}, {"dropout": 0.3}, "dropout 0.4, and now 0.3, input-dropout 0.2, and now 0.1"),
        ],
    )
    def test_of_other_settings(self, folder, changes, network, differs):
        self.refused(folder, differs, make(**network), settings=settings(**changes))

    def test_of_another_encoder(self, folder):
        encoder = nn.Sequential(nn.Linear(F, 12), nn.ReLU())
        other = Network(make().settings, F, L, sparse=False, encoder=encoder)
        self.refused(folder, "weights of other shapes", other)

    def test_of_other_documents(self, folder):
        other = X.copy()
        other.data[7] += 1e-3
        moved = X.copy()
        moved.indices[moved.indptr[1] - 1] = (moved.indices[moved.indptr[1] - 1] + 1) % F
        rolled = sp.csr_matrix(np.roll(Y.toarray(), 1, axis=0))
        for changes in ({"X": other}, {"X": moved}, {"Y": rolled}, {"X": X[:-1], "Y": Y[:-1]}):
            self.refused(folder, "other documents or labels", **changes)

    def test_of_other_validation_rows(self, folder):
        for other in (None, data(2, 30), (HELD_OUT[0], data(2, 30)[1])):
            self.refused(folder, "other rows held out", validation=other)

    def test_a_setting_that_came_later_does_not_matter_unless_it_is_used(self, folder):
        @dataclass(frozen=True)
        class Later(TrainingSettings):
            warm_up: float = 0.0

        known = asdict(settings())
        self.refused(folder, "warm-up 0.0, and now 0.5", settings=Later(**known, warm_up=0.5))
        whole, resumed = make(), make()
        train(whole, X, Y, settings(), validation=HELD_OUT)
        train(resumed, X, Y, Later(**known), validation=HELD_OUT, folder=folder, resume=True)
        assert_same_weights(resumed, whole)


class TestDamage:
    @pytest.fixture
    def path(self, tmp_path) -> Path:
        train(make(), X, Y, settings(), folder=tmp_path)
        return tmp_path / checkpoint.NAME

    def refused(self, path: Path) -> None:
        with pytest.raises(DataError, match="found no intact checkpoint") as error:
            train(make(), X, Y, settings(), folder=path.parent, resume=True)
        assert str(error.value).startswith(str(path))
        assert "remove it to start again" in str(error.value)

    @pytest.mark.parametrize("share", [0, 0.001, 0.5, 0.999, None])
    def test_truncated_or_none(self, path, share):
        content = path.read_bytes()
        path.write_bytes(b"{}" * 100 if share is None else content[: int(share * len(content))])
        self.refused(path)

    def test_a_flipped_bit_anywhere_in_the_tensors(self, path):
        content = path.read_bytes()
        start = 8 + int.from_bytes(content[:8], "little")
        for position in (start, (start + len(content)) // 2, len(content) - 1):
            damaged = bytearray(content)
            damaged[position] ^= 1
            path.write_bytes(damaged)
            self.refused(path)

    @pytest.mark.parametrize("run", [None, "not JSON", "null", "[]", "3", "{}"])
    def test_tensors_of_something_else(self, path, run):
        save_file({"weight": torch.ones(3)}, path, metadata=None if run is None else {"about": run})
        self.refused(path)

    def test_a_folder_in_its_place(self, path):
        path.unlink()
        path.mkdir()
        self.refused(path)


class TestUnwritable:
    def test_a_file_in_place_of_the_folder(self, tmp_path):
        (tmp_path / "model").write_text("")
        counter = CtrlC()
        with pytest.raises(OutputError, match=r"cannot write .*model: \w"):
            train(make(), X, Y, settings(), folder=tmp_path / "model", reporter=counter)
        assert counter.steps == 0  # it fails before the work

    @pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
    def test_a_folder_that_may_not_be_written_to(self, tmp_path):
        tmp_path.chmod(0o500)
        with pytest.raises(OutputError, match=str(tmp_path)):
            train(make(), X, Y, settings(), folder=tmp_path)
        tmp_path.chmod(0o700)

    def test_a_folder_that_goes_away(self, tmp_path):
        class Remove(Reporter):
            def record(self, record: dict[str, Any]) -> None:
                shutil.rmtree(tmp_path / "model")

        with pytest.raises(OutputError, match=r"cannot write .*checkpoint\.safetensors"):
            train(make(), X, Y, settings(), folder=tmp_path / "model", reporter=Remove())

    @pytest.mark.skipif(resource is None, reason="no limits on file sizes here")
    def test_a_full_disk_keeps_the_previous_checkpoint(self, tmp_path, monkeypatch):
        whole, resumed = make(), make()
        train(whole, X, Y, settings())
        real, calls = safetensors.torch.save_file, []

        def full(tensors, path, metadata):
            calls.append(path)
            limits = resource.getrlimit(resource.RLIMIT_FSIZE)
            if len(calls) == 2:  # as with a full disk: writing fails midway
                resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1]))
            try:
                real(tensors, path, metadata=metadata)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)

        monkeypatch.setattr(safetensors.torch, "save_file", full)
        with pytest.raises(OutputError, match=r"cannot write .*checkpoint\.safetensors: .*I/O error"):
            train(make(), X, Y, settings(), folder=tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [checkpoint.NAME]
        monkeypatch.setattr(safetensors.torch, "save_file", real)
        history = train(resumed, X, Y, settings(), folder=tmp_path, resume=True)
        assert len(history) == 3
        assert_same_weights(resumed, whole)


EPOCHS = 6
STEPS_OF_AN_EPOCH = 8
SCRIPT = """
import os, signal, sys
from pathlib import Path
import numpy as np, safetensors.torch, scipy.sparse as sp, torch
from circlet.data.dataset import Split
from circlet.model import fit
from circlet.settings import NetworkSettings, RunSettings, TrainingSettings
from circlet.training import Reporter

def run(folder, reporter=None):
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    X = sp.csr_matrix(random.random((300, 40), dtype=np.float32) * (random.random((300, 40)) < 0.2))
    Y = sp.csr_matrix((random.random((300, 25)) < 0.1).astype(np.float32))
    model = fit(
        Split(X[:240], Y[:240]),
        RunSettings(
            NetworkSettings(dim=64, hidden=(64,), dropout=0.3, seed=5),
            TrainingSettings(epochs=6, batch_size=32, lr=0.01, input_dropout=0.1),
        ),
        validation=Split(X[240:], Y[240:]),
        folder=Path(folder),
        resume=True,
        reporter=reporter,
    )
    model.save(folder)

def countdown(n):
    # A function whose n-th call kills the process.
    left = n
    def call():
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    return call

class Killed(Reporter):
    def __init__(self, at):
        self.call = countdown(at)
    def step(self, taken):
        self.call()

if __name__ == "__main__":
    folder, where, at = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if where == "step":
        run(folder, Killed(at))
    else:  # in the middle of writing a checkpoint, under its temporary name
        write, call = safetensors.torch.save_file, countdown(at)
        def half(tensors, path, metadata):
            write(tensors, path, metadata=metadata)
            os.truncate(path, os.path.getsize(path) // 2)
            call()
            write(tensors, path, metadata=metadata)
        safetensors.torch.save_file = half
        run(folder)
"""


@pytest.fixture(scope="module")
def run() -> Callable[[Path], None]:
    names: dict[str, Any] = {"__name__": "script"}
    exec(compile(SCRIPT, "script.py", "exec"), names)
    return names["run"]


@pytest.fixture(scope="module")
def whole(run, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    run(folder)
    return folder


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL there")
class TestKilled:
    """A real process that is killed, and resumed as if nothing had happened."""

    def kill(self, folder: Path, where: str, at: int) -> None:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, folder, where, str(at)], capture_output=True, text=True, check=False
        )
        assert done.returncode == -signal.SIGKILL, done.stderr

    def assert_same(self, found: Path, wanted: Path) -> None:
        assert sorted(path.name for path in found.iterdir()) == sorted(path.name for path in wanted.iterdir())
        weights, expected = (load_file(folder / "weights.safetensors") for folder in (found, wanted))
        assert weights.keys() == expected.keys()
        assert all(torch.equal(tensor, weights[name]) for name, tensor in expected.items())
        config, same = (json.loads((folder / "config.json").read_text()) for folder in (found, wanted))
        for about in (config, same):  # the history says how long it took
            del about["sha256"], about["files"]["history.json"]
        assert config == same
        histories = [timeless(json.loads((folder / "history.json").read_text())) for folder in (found, wanted)]
        assert histories[0] == histories[1]
        assert len(histories[0]) == EPOCHS

    def test_once(self, run, whole, tmp_path):
        self.kill(tmp_path, "write", 3)
        assert (tmp_path / checkpoint.NAME).is_file()  # of the second epoch
        assert list(tmp_path.glob(".*.part"))  # half of the third's
        run(tmp_path)
        self.assert_same(tmp_path, whole)

    @pytest.mark.slow
    @pytest.mark.parametrize("at", [1, 7, 8, 9, 23, EPOCHS * STEPS_OF_AN_EPOCH])
    def test_in_a_step(self, run, whole, tmp_path, at):
        self.kill(tmp_path, "step", at)
        assert (tmp_path / checkpoint.NAME).exists() == (at > STEPS_OF_AN_EPOCH)
        run(tmp_path)
        self.assert_same(tmp_path, whole)

    @pytest.mark.slow
    def test_again_and_again(self, run, whole, tmp_path):
        for where, at in (("step", 3), ("write", 1), ("step", 12), ("write", 2), ("step", 9), ("step", 10)):
            self.kill(tmp_path, where, at)
        run(tmp_path)
        self.assert_same(tmp_path, whole)


def test_what_can_not_be_removed_is_named(tmp_path):
    (tmp_path / "checkpoint-2.safetensors").mkdir()
    with pytest.raises(OutputError, match=r"cannot remove .*checkpoint-2\.safetensors: "):
        checkpoint.remove(tmp_path)
