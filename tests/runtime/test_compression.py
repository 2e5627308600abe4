from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from circlet.errors import DataError, ParameterError
from circlet.metrics import evaluate
from circlet.model import Model
from circlet.runtime import RuntimeModel
from circlet.runtime.compression import Curve, Tried, best_that_fits, sample_from, smallest_within, write_copy
from circlet.storage.kept_rows import Sample
from circlet.storage.packed_weights import DEFLATED


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
        write_copy(saved, tmp_path / f"{loss}", found.weights, DEFLATED, found.config)
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
    write_copy(saved, tmp_path / "copy", found.weights, DEFLATED, found.config)
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
    write_copy(saved, tmp_path / "copy", found.weights, DEFLATED, found.config)
    assert 0 <= found.chosen.bytes - size(tmp_path / "copy") < 1500
    assert smallest_within(saved, curve, 9).chosen.coarseness == 4  # nothing is known about coarser ones
    fitting = best_that_fits(saved, curve, found.chosen.bytes)
    assert (fitting.chosen.coarseness, fitting.chosen.loss) == pytest.approx((2, 0.2))


def test_twice_the_same(saved, sample):
    one, two = (smallest_within(saved, sample, 0.5) for _ in range(2))
    assert one.tried == two.tried
    assert all(np.array_equal(one.weights[name], two.weights[name]) for name in one.weights)


def test_what_can_not_be_had(saved, sample):
    with pytest.raises(ParameterError, match=r"`loss` must be a number of points >= 0, got nan"):
        smallest_within(saved, sample, float("nan"))
    with pytest.raises(ParameterError, match=r"found no copy of .* in 100 bytes; the smallest takes"):
        best_that_fits(saved, sample, 100)


@pytest.mark.parametrize("kind", ["sparse", "dense", "texts"])
@pytest.mark.parametrize("members", [1, 2])
def test_torch_and_the_runtime_agree_on_a_copy(kind, members, made, some, tmp_path):
    made(kind, members=members, named=True).save(tmp_path / "model")
    documents = some(kind, 12, 1)
    model = RuntimeModel.load(tmp_path / "model")
    rows = documents if model.vectorizer is None else model.vectorizer.transform(documents)
    labels = np.eye(model.n_labels, dtype=np.float32)[np.arange(12) % model.n_labels]
    sample = Sample(model.scaling.transform(rows), sp.csr_matrix(labels))
    found = best_that_fits(tmp_path / "model", sample, size(tmp_path / "model"))
    write_copy(tmp_path / "model", tmp_path / "copy", found.weights, DEFLATED, found.config)
    small = RuntimeModel.load(tmp_path / "copy")
    ids, scores = small.top_k(documents, 3)
    wanted, close = Model.load(tmp_path / "copy").top_k(documents, 3)
    np.testing.assert_allclose(scores, close, rtol=1e-4, atol=1e-4)
    assert small.label_names == model.label_names
    assert (tmp_path / "copy" / "labels.txt.gz").exists()
    assert not (tmp_path / "copy" / "labels.txt").exists()
    assert (ids == wanted).mean() > 0.9


def test_a_damaged_copy(made, tmp_path):
    made("texts", named=True).save(tmp_path / "model")
    model = RuntimeModel.load(tmp_path / "model")
    labels = sp.csr_matrix(np.eye(1, model.n_labels))
    sample = Sample(sp.csr_matrix((1, model.n_features), dtype=np.float32), labels)
    found = best_that_fits(tmp_path / "model", sample, size(tmp_path / "model"))
    write_copy(tmp_path / "model", tmp_path / "copy", found.weights, DEFLATED, found.config)
    for name in ("labels.txt.gz", "vectorizer.json.gz", "vectorizer.safetensors.gz"):
        path = tmp_path / "copy" / name
        whole = path.read_bytes()
        for damaged in (whole[:-9], b"nothing", b""):
            path.write_bytes(damaged)
            with pytest.raises(DataError, match=name.removesuffix(".gz").replace(".", r"\.")):
                RuntimeModel.load(tmp_path / "copy")
        path.write_bytes(whole)
    RuntimeModel.load(tmp_path / "copy")
