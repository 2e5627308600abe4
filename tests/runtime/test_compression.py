"""Smaller copies: what they contain, how they are searched for, and what a calibration run knows of them."""

from __future__ import annotations

import os
from dataclasses import replace
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
from circlet.metrics import evaluate
from circlet.model import Model, fit
from circlet.runtime import RuntimeModel
from circlet.runtime.compression import (
    Curve,
    Tried,
    best_that_fits,
    compress,
    curve_of,
    known_losses,
    losses_by_rounding,
    sample_from,
    smallest_within,
)
from circlet.settings import NetworkSettings, RunSettings, TrainingSettings
from circlet.storage.kept_rows import Sample
from circlet.storage.layout import CHECKPOINT, checkpoint_of
from circlet.storage.packed_weights import rounded, steps_of
from circlet.storage.tensors import STORES, Stored


@pytest.fixture(scope="module")
def saved(tmp_path_factory, on_synthetic) -> Path:
    folder = tmp_path_factory.mktemp("smallest") / "model"
    on_synthetic().save(folder)
    return folder


@pytest.fixture(scope="module")
def sample(saved, synthetic) -> Sample:
    return sample_from(RuntimeModel.load(saved), synthetic)


def ndcg(folder: Path, dataset) -> float:
    ids, _ = RuntimeModel.load(folder).top_k(dataset.test.X, 5)
    return float(evaluate(dataset.test.Y, ids, k=5, metrics=("nDCG",))["nDCG@5"])


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_the_promise_is_kept(saved, sample, synthetic, tmp_path):
    sizes = []
    for loss in (0.2, 5):
        found = smallest_within(saved, sample, loss)
        found.write(tmp_path / f"{loss}")
        lost = 100 * (ndcg(saved, synthetic) - ndcg(tmp_path / f"{loss}", synthetic))
        assert lost == pytest.approx(found.chosen.loss)
        assert lost <= loss
        assert found.metric == pytest.approx(ndcg(saved, synthetic))
        assert 0 <= found.chosen.bytes - size(tmp_path / f"{loss}") < 1500
        sizes.append(size(tmp_path / f"{loss}"))
        coarser = [each for each in found.tried if each.coarseness > found.chosen.coarseness]
        assert all(each.loss > loss for each in coarser)
    assert sizes[1] < sizes[0] < 0.15 * size(saved)


def test_the_best_that_fits(saved, sample, tmp_path):
    watched: list[Tried] = []
    limit = size(saved) // 16
    found = best_that_fits(saved, sample, limit, watched.append)
    found.write(tmp_path / "copy")
    assert size(tmp_path / "copy") <= limit
    assert sorted(watched, key=lambda each: each.coarseness) == found.tried
    finer = [each for each in found.tried if each.coarseness < found.chosen.coarseness]
    assert finer
    assert all(each.bytes > limit for each in finer)


def test_by_what_a_calibration_run_lost(saved, tmp_path):
    curve = Curve(0.05, 4.0)
    found = smallest_within(saved, curve, 0.2)
    assert found.metric is None
    assert found.tried == [found.chosen]
    assert (found.chosen.coarseness, found.chosen.loss) == pytest.approx((2, 0.2))
    found.write(tmp_path / "copy")
    assert 0 <= found.chosen.bytes - size(tmp_path / "copy") < 1500
    assert smallest_within(saved, curve, 9).chosen.coarseness == 4  # nothing is known about coarser ones
    fitting = best_that_fits(saved, curve, found.chosen.bytes)
    assert (fitting.chosen.coarseness, fitting.chosen.loss) == pytest.approx((2, 0.2))


def test_twice_the_same(saved, sample):
    one, two = (smallest_within(saved, sample, 0.5) for _ in range(2))
    assert one.tried == two.tried
    assert all(np.array_equal(one.weights[name], two.weights[name]) for name in one.weights)


def test_what_can_not_be_had(saved, sample):
    with pytest.raises(ParameterError, match="`loss`: found nan; wanted a number of points >= 0"):
        smallest_within(saved, sample, float("nan"))
    with pytest.raises(ParameterError, match=r"found no copy of .* in 100 bytes; the smallest takes"):
        best_that_fits(saved, sample, 100)


def test_a_damaged_copy(made, tmp_path):
    made("texts", named=True).save(tmp_path / "model")
    model = RuntimeModel.load(tmp_path / "model")
    labels = sp.csr_matrix(np.eye(1, model.n_labels))
    sample = Sample(sp.csr_matrix((1, model.n_features), dtype=np.float32), labels)
    found = best_that_fits(tmp_path / "model", sample, size(tmp_path / "model"))
    found.write(tmp_path / "copy")
    assert not (tmp_path / "copy" / "labels.txt").exists()
    for name in ("labels.txt.gz", "vectorizer.json.gz", "vectorizer.safetensors.gz"):
        path = tmp_path / "copy" / name
        whole = path.read_bytes()
        for damaged in (whole[:-9], b"nothing", b""):
            path.write_bytes(damaged)
            with pytest.raises(DataError, match=name.removesuffix(".gz").replace(".", r"\.")):
                RuntimeModel.load(tmp_path / "copy")
        path.write_bytes(whole)
    RuntimeModel.load(tmp_path / "copy")


# Copies with a store


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class TestCompress:
    @pytest.mark.parametrize("store", STORES)
    def test_the_same_as_saving_in_fewer_bits(self, store, tmp_path, made):
        for members in (1, 2):
            model, place = made(members=members, named=True), tmp_path / f"{members}"
            model.save(place / "model")
            compress(place / "model", place / "new" / "copy", store)
            model.save(place / "saved", store)
            assert tree(place / "new" / "copy") == tree(place / "saved")

    def test_only_the_model_is_copied(self, folder, tmp_path):
        own = set(tree(folder))
        for name in ("README.md", CHECKPOINT, checkpoint_of(1), "run.json", ".weights.safetensors.1.part"):
            (folder / name).write_text("mine")
        (folder / "estimator.json").symlink_to(folder / "README.md")
        (tmp_path / f".copy.{os.getpid()}.part").mkdir()  # left by a killed process
        before = tree(folder)
        compress(folder, tmp_path / "copy", "bf16")
        assert tree(folder) == before
        assert set(tree(tmp_path / "copy")) == own
        assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "model"]

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


def test_a_classifier_is_compressed_with_its_parameters(tmp_path):
    texts, labels = ["red fox", "fast car"] * 15, [["animal"], ["vehicle"]] * 15
    classifier = CircletClassifier(dim=16, hidden=(8,), epochs=1, device="cpu", random_state=0).fit(texts, labels)
    classifier.save(tmp_path / "model")
    compress(tmp_path / "model", tmp_path / "copy", "int8")
    assert CircletClassifier.load(tmp_path / "copy").get_params() == classifier.get_params()


# What a calibration run lost

PATH = Path("history.json")


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_losses_by_rounding(kind, made, some, tmp_path):
    model, rows = made(kind, hidden=(40,), dim=32, scaling="none"), some(kind, 200, 1)
    labels = sp.csr_matrix(np.eye(model.n_labels, dtype=np.float32)[model.top_k(rows, 1)[0][:, 0]])
    saved = model.contents()
    finest, _, coarsest = tried = (-2, 3, 6)
    pairs = losses_by_rounding(saved, Sample(rows, labels), tried=tried, enough=(0.1, 1.0))["lost"]
    assert pairs == sorted(pairs)
    assert pairs[-1][1] >= 1.0 or pairs[-1][0] == 2 ** (coarsest / 2)
    assert pairs[0][0] >= 2 ** (finest / 2)

    def metric(tensors: dict[str, Any]) -> float:
        copy: Any = replace(saved, config={**saved.config, "files": {}}, tensors=tensors)
        ids, _ = RuntimeModel.restore(tmp_path, copy).top_k(rows, 5)
        return float(evaluate(labels, ids, k=5, metrics=("nDCG",))["nDCG@5"])

    # The same of the whole model, with all features.
    steps = steps_of(saved.tensors, "a file")
    whole = metric({name: Stored(array) for name, array in saved.tensors.items()})
    for coarseness, lost in pairs:
        assert lost == pytest.approx(100 * (whole - metric(rounded(saved.tensors, steps, coarseness))))
    # A model with this record knows what smaller copies lose.
    model.history[-1] |= {"lost": pairs}
    model.save(tmp_path)
    assert known_losses(tmp_path) == curve_of(PATH, [{"lost": pairs}])


def test_curves_by_hand():
    # The least squared distance from 1 and 5 of a and 4a has a = (1 + 4 · 5) / (1 + 16).
    curve = curve_of(PATH, [{"epoch": 1}, {"epoch": 2, "lost": [[1.0, 1.0], [2.0, 5.0]]}])
    assert curve is not None
    assert curve == pytest.approx((21 / 17, 2))
    assert curve.at(1.5) == pytest.approx(1.5**2 * 21 / 17)
    for factor, loss, coarsest in ((0.1, 0.4, 2), (0.1, 0, 0), (0.1, 5, 3), (0.0, 0, 3)):  # at most 3 is known
        assert Curve(factor, 3.0).coarsest(loss) == pytest.approx(coarsest)


def test_what_a_history_knows():
    pairs = [[1.0, 1.0]]
    histories: list[tuple[list[dict[str, Any]], tuple[float, float] | None]] = [
        ([{"lost": [[1.0, -0.1], [2.0, -0.2]]}], (0, 2)),
        # Of several networks, the one that loses most counts.
        ([{"member": 1, "lost": [[2.0, 4.0]]}, {"member": 2}, {"member": 2, "lost": [[1.0, 3.0]]}], (3, 1)),
        ([{"epoch": 1}], None),
        ([], None),
        ([{"lost": pairs}, {"epoch": 2}], None),  # trained further
        ([{"member": 1, "lost": pairs}, {"member": 2}], None),
    ]
    for history, curve in histories:
        assert curve_of(PATH, history) == curve


@pytest.mark.parametrize(
    "pairs",
    [None, [], 3, [1.0], [[1.0]], [[0.0, 1.0]], [[-1.0, 1.0]], [["1", 1.0]], [[1.0, None]], [[1.0, float("nan")]]],
)
def test_damaged_losses(pairs):
    wanted = r"history\.json: found damaged `lost`; wanted pairs of coarseness and points"
    with pytest.raises(DataError, match=wanted):
        curve_of(PATH, [{"lost": pairs}])
