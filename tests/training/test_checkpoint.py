from __future__ import annotations

import json
import os
import shutil
import sys
import threading
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
from circlet.storage.layout import CHECKPOINT, checkpoint_of
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
        (whole, history), resumed, counter = uninterrupted, make(), CtrlC()
        run = {"settings": settings(), "validation": HELD_OUT, "folder": tmp_path}
        with pytest.raises(InterruptedRunError) as caught:
            train(make(), X, Y, **run, reporter=CtrlC(at))
        assert str(tmp_path) in str(caught.value)
        assert "resume" in str(caught.value)
        assert (tmp_path / CHECKPOINT).is_file()
        again = train(resumed, X, Y, **run, resume=True, reporter=counter)
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

    def test_interrupted_again_and_again(self, uninterrupted, tmp_path):
        run = {"settings": settings(), "validation": HELD_OUT, "folder": tmp_path, "resume": True}
        for _ in range(11):
            with pytest.raises(InterruptedRunError):
                train(make(), X, Y, **run, reporter=CtrlC(1))
        resumed, counter = make(), CtrlC()
        train(resumed, X, Y, **run, reporter=counter)
        assert counter.steps == 1
        assert_same_weights(resumed, uninterrupted[0])

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
                seen.append((tmp_path / CHECKPOINT).exists())

        train(make(), X, Y, settings(), folder=tmp_path, reporter=Watch())
        assert seen == [False, True, True]
        assert [path.name for path in tmp_path.iterdir()] == [CHECKPOINT]

    def test_without_one_a_run_starts_at_the_beginning(self, uninterrupted, tmp_path):
        made = make()
        train(made, X, Y, settings(), validation=HELD_OUT, folder=tmp_path / "new", resume=True)
        assert_same_weights(made, uninterrupted[0])

    def test_it_is_not_used_without_resume(self, tmp_path):
        counter = CtrlC()
        for _ in range(2):
            train(make(), X, Y, settings(), folder=tmp_path, reporter=counter)
        assert counter.steps == 2 * 3 * STEPS

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
        assert (tmp_path / CHECKPOINT).stat().st_mode == (tmp_path / "other").stat().st_mode

    def test_removal(self, tmp_path):
        checkpoint.remove(tmp_path)
        train(make(), X, Y, settings(), folder=tmp_path)
        kept = ["checkpoint-a.safetensors", "checkpoints.safetensors", "mine.txt"]
        for name in ("checkpoint-2.safetensors", "checkpoint-13.safetensors", *kept):
            (tmp_path / name).write_text("")
        checkpoint.remove(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == kept
        (tmp_path / "checkpoint-2.safetensors").mkdir()
        with pytest.raises(OutputError, match=r"cannot remove .*checkpoint-2\.safetensors: "):
            checkpoint.remove(tmp_path)


class TestMembers:
    def test_each_has_its_own_and_the_one_that_is_trained_keeps_only_its_weights(self, tmp_path):
        for member in (0, 1):
            run = {"validation": HELD_OUT, "folder": tmp_path, "member": member, "stage": member}
            train(make(seed=member), X, Y, settings(), **run)
        for member in (0, 1):
            tensors = load_file(tmp_path / checkpoint_of(member))
            assert {name.partition(".")[0] for name in tensors} == {"network", "noise"}

    @pytest.mark.parametrize(("stage", "patience"), [(None, None), (1, None), (1, 1)])
    def test_trained_there_is_nothing_left_to_do(self, tmp_path, stage, patience):
        done, again, counter = make(), make(), CtrlC()
        run = {"settings": settings(patience=patience), "validation": HELD_OUT, "folder": tmp_path}
        run |= {"member": stage, "stage": stage}
        history = train(done, X, Y, **run)
        path = tmp_path / checkpoint_of(stage or 0)
        written = path.stat().st_mtime_ns
        assert train(again, X, Y, **run, resume=True, reporter=counter) == history
        assert [record.get("member") for record in history] == [stage and stage + 1] * len(history)
        assert counter.steps == 0
        assert_same_weights(done, again)
        assert path.stat().st_mtime_ns == written

    def test_an_interruption_names_it(self, tmp_path):
        wanted = r"interrupted in epoch 1 of member 2; .* holds a checkpoint"
        with pytest.raises(InterruptedRunError, match=wanted):
            train(make(), X, Y, settings(), folder=tmp_path, member=1, stage=1, reporter=CtrlC(1))


@pytest.fixture
def folder(tmp_path) -> Path:
    """With the checkpoint of a run that was interrupted in its second epoch."""
    with pytest.raises(InterruptedRunError):
        train(make(), X, Y, settings(), validation=HELD_OUT, folder=tmp_path, reporter=CtrlC(5))
    return tmp_path


class TestAnotherRun:
    def refused(self, folder: Path, differs: str, network: Network | None = None, **changes) -> None:
        run = {"X": X, "Y": Y, "settings": settings(), "validation": HELD_OUT, **changes}
        before = (folder / CHECKPOINT).read_bytes()
        with pytest.raises(DataError, match="found a checkpoint of another run: ") as error:
            train(network or make(), **run, folder=folder, resume=True)
        assert f"{folder / CHECKPOINT}: found a checkpoint of another run: {differs}. Wanted" in str(error.value)
        assert (folder / CHECKPOINT).read_bytes() == before

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

    def test_of_other_documents(self, folder):
        other = X.copy()
        other.data[7] += 1e-3
        moved = X.copy()
        moved.indices[moved.indptr[1] - 1] = (moved.indices[moved.indptr[1] - 1] + 1) % F
        rolled = sp.csr_matrix(np.roll(Y.toarray(), 1, axis=0))
        for changes in ({"X": other}, {"X": moved}, {"Y": rolled}, {"X": X[:-1], "Y": Y[:-1]}):
            self.refused(folder, "other documents or labels", **changes)

    def test_of_other_validation_rows_or_another_encoder(self, folder):
        for other in (None, data(2, 30), (HELD_OUT[0], data(2, 30)[1])):
            self.refused(folder, "other rows held out", validation=other)
        encoder = nn.Sequential(nn.Linear(F, 12), nn.ReLU())
        other = Network(make().settings, F, L, sparse=False, encoder=encoder)
        self.refused(folder, "weights of other shapes", other)

    def test_a_setting_that_came_later_does_not_matter_unless_it_is_used(self, folder, uninterrupted):
        @dataclass(frozen=True)
        class Later(TrainingSettings):
            warm_up: float = 0.0

        known = asdict(settings())
        self.refused(folder, "warm-up 0.0, and now 0.5", settings=Later(**known, warm_up=0.5))
        resumed = make()
        train(resumed, X, Y, Later(**known), validation=HELD_OUT, folder=folder, resume=True)
        assert_same_weights(resumed, uninterrupted[0])


class TestDamage:
    @pytest.fixture
    def path(self, folder) -> Path:
        return folder / CHECKPOINT

    def resumed(self, path: Path) -> None:
        train(make(), X, Y, settings(), validation=HELD_OUT, folder=path.parent, resume=True)

    def refused(self, path: Path) -> None:
        with pytest.raises(DataError, match=r"found no intact checkpoint \(.*; remove it to start again") as error:
            self.resumed(path)
        assert str(error.value).startswith(str(path))

    @pytest.mark.parametrize("share", [0, 0.001, 0.5, 0.999, None])
    def test_truncated_or_none(self, path, share):
        content = path.read_bytes()
        path.write_bytes(b"{}" * 100 if share is None else content[: int(share * len(content))])
        self.refused(path)

    def test_a_flipped_bit_anywhere(self, path):
        content = path.read_bytes()
        start = 8 + int.from_bytes(content[:8], "little")
        about = content.index(b"__metadata__") + len(b'__metadata__":{"about":"')
        described = range(about, content.index(b"}", content.index(b"digest", about)), 5)
        for position in (*described, start, (start + len(content)) // 2, len(content) - 1):
            damaged = bytearray(content)
            damaged[position] ^= 1 << position % 7
            path.write_bytes(damaged)
            self.refused(path)
        path.write_bytes(content)
        self.resumed(path)

    @pytest.mark.parametrize(
        "change",
        [{"epoch": 0}, {"step": 2}, {"best_value": 0.5}, {"epoch": -1}, {"total_loss": None}, {"more": 1},
         {"history": 3}, {"epoch": ...}, {"digest": ...}, {"digest": ..., "run": ..., "epoch": "1"}],
    )  # fmt: skip
    def test_another_description(self, path, change):
        with safetensors.safe_open(path, framework="pt") as stored:
            about = {**json.loads(stored.metadata()["about"]), **change}
        about = {name: value for name, value in about.items() if value is not ...}
        save_file(load_file(path), path, metadata={"about": json.dumps(about)})
        self.refused(path)

    @pytest.mark.parametrize("about", [None, "not JSON", "null", "[]", "3", "{}"])
    def test_tensors_of_something_else(self, path, about):
        save_file({"weight": torch.ones(3)}, path, metadata=None if about is None else {"about": about})
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
        assert [path.name for path in tmp_path.iterdir()] == [CHECKPOINT]
        monkeypatch.setattr(safetensors.torch, "save_file", real)
        history = train(resumed, X, Y, settings(), folder=tmp_path, resume=True)
        assert len(history) == 3
        assert_same_weights(resumed, whole)
