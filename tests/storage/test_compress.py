from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from safetensors.torch import save_file
from torch import nn

from circlet import CircletClassifier, files
from circlet.data.dataset import Split
from circlet.errors import DataError, OutputError, ParameterError
from circlet.model import Model, fit
from circlet.runtime.compression import compress
from circlet.settings import NetworkSettings, RunSettings, TrainingSettings
from circlet.storage.layout import CHECKPOINT, checkpoint_of
from circlet.storage.tensors import STORES


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class TestCompress:
    @pytest.mark.parametrize("store", STORES)
    @pytest.mark.parametrize("members", [1, 2])
    def test_the_same_as_saving_in_fewer_bits(self, members, store, tmp_path, untrained):
        model = untrained(members=members)
        model.save(tmp_path / "model")
        compress(tmp_path / "model", tmp_path / "new" / "copy", store)
        model.save(tmp_path / "saved", store)
        assert tree(tmp_path / "new" / "copy") == tree(tmp_path / "saved")

    def test_only_the_model_is_copied(self, folder, tmp_path):
        run = (CHECKPOINT, checkpoint_of(1), "run.json")
        for name in ("README.md", *run, ".weights.safetensors.1.part"):
            (folder / name).write_text("mine")
        (folder / "estimator.json").symlink_to(folder / "README.md")
        before = tree(folder)
        compress(folder, tmp_path / "copy", "bf16")
        assert tree(folder) == before
        found = sorted(path.name for path in (tmp_path / "copy").iterdir())
        assert found == ["MODEL_CARD.md", "config.json", "history.json", "labels.txt", "weights.safetensors"]

    def test_int8_to_int8_is_a_copy(self, folder, tmp_path):
        compress(folder, tmp_path / "one", "int8")
        compress(tmp_path / "one", tmp_path / "two", "int8")
        assert tree(tmp_path / "one") == tree(tmp_path / "two")

    def test_nothing_is_ever_replaced(self, folder, tmp_path):
        before = tree(folder)
        (tmp_path / "file").write_text("mine")
        (tmp_path / "empty").mkdir()
        for output in (folder, tmp_path / "file", tmp_path / "empty"):
            with pytest.raises(ParameterError, match=r"exists already: choose another folder, or remove it"):
                compress(folder, output, "int8")
        assert tree(folder) == before

    @pytest.mark.parametrize("step", ["write_tensors", "write_json"])
    @pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
    def test_nothing_is_left_half_written(self, step, error, folder, tmp_path, monkeypatch):
        def fail(*_: Any) -> None:
            raise error

        monkeypatch.setattr(files, step, fail)
        wanted = OutputError if isinstance(error, OSError) else KeyboardInterrupt
        with pytest.raises(wanted):
            compress(folder, tmp_path / "copy", "int8")
        assert [path.name for path in tmp_path.iterdir()] == ["model"]

    def test_leftovers_of_a_killed_process_do_not_matter(self, folder, tmp_path):
        (tmp_path / f".copy.{os.getpid()}.part").mkdir()
        compress(folder, tmp_path / "copy", "int8")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "model"]

    def test_damaged_models_are_refused(self, folder, tmp_path, change_config):
        path = folder / "weights.safetensors"
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        with pytest.raises(DataError, match=r"weights\.safetensors: found other content"):
            compress(folder, tmp_path / "copy", "int8")
        save_file({"head.output.weight": torch.full((2, 2), torch.nan)}, path)
        change_config(folder)
        with pytest.raises(DataError, match=r"weights\.safetensors: found nan at row 0, column 0 of head"):
            compress(folder, tmp_path / "copy", "int8")
        with pytest.raises(DataError, match="is not a circlet model"):
            compress(tmp_path / "nowhere", tmp_path / "copy", "int8")
        assert [path.name for path in tmp_path.iterdir()] == ["model"]

    def test_a_custom_encoder(self, tmp_path):
        make = lambda: nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.BatchNorm1d(8))  # noqa: E731
        X = np.random.default_rng(0).random((60, 8), dtype=np.float32)
        settings = RunSettings(NetworkSettings(dim=16, hidden=(8,)), TrainingSettings(epochs=1))
        fit(Split(X, sp.csr_matrix(X > 0.5)), settings, encoder=make()).save(tmp_path / "model")
        compress(tmp_path / "model", tmp_path / "copy", "int8")
        assert Model.load(tmp_path / "copy", encoder=make()).top_k(X, 2)[0].shape == (60, 2)


@pytest.fixture(scope="module")
def classifier() -> CircletClassifier:
    texts, labels = ["red fox", "fast car"] * 15, [["animal"], ["vehicle"]] * 15
    return CircletClassifier(dim=16, hidden=(8,), epochs=1, device="cpu", random_state=0).fit(texts, labels)


class TestEstimator:
    def test_compressed(self, classifier, tmp_path):
        classifier.save(tmp_path / "model")
        compress(tmp_path / "model", tmp_path / "copy", "int8")
        loaded = CircletClassifier.load(tmp_path / "copy")
        assert loaded.get_params() == classifier.get_params()

    def test_another_description(self, classifier, tmp_path, change_config):
        classifier.save(tmp_path / "model")
        files.write_json(tmp_path / "model" / "estimator.json", [1])
        with pytest.raises(DataError, match=r"estimator\.json: found other content"):
            compress(tmp_path / "model", tmp_path / "copy", "int8")
        change_config(tmp_path / "model")
        with pytest.raises(DataError, match=r"estimator\.json: found no description of a classifier"):
            compress(tmp_path / "model", tmp_path / "copy", "int8")
        assert not (tmp_path / "copy").exists()
