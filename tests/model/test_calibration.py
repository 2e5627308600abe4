from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from tests.conftest import F, L

from circlet.model import Model, calibration, fit
from circlet.model.calibration import calibrate
from circlet.model.plan import as_if_new
from circlet.network import NetworkSettings
from circlet.settings import RunSettings


class TestCalibration:
    """A label is right with probability σ(slope · score + intercept)."""

    def test_recovers_a_known_curve(self, monkeypatch, shared):
        slope, intercept, n, depth = 7.0, -2.0, 1500, 20
        random = np.random.default_rng(0)
        scores = random.normal(0.2, 0.4, (n, depth)).astype(np.float32)
        ids = np.tile(np.arange(depth), (n, 1))
        right = random.random((n, depth)) < 1 / (1 + np.exp(-(slope * scores + intercept)))
        with monkeypatch.context() as patch:
            patch.setattr(calibration, "top_k", lambda *_, **__: (ids, scores))
            indicator = sp.csr_matrix(right.astype(np.float32))
            found = calibrate(None, None, indicator, depth=depth)
        assert found == pytest.approx((slope, intercept), rel=0.05)
        model = Model(shared().ranker, shared().scaling, n_features=F, sparse=True, calibration=found)
        probabilities = model.probabilities(scores)
        for low in np.arange(0, 1, 0.2):  # 0.8 means about 80 %
            inside = (probabilities >= low) & (probabilities < low + 0.2)
            assert right[inside].mean() == pytest.approx(probabilities[inside].mean(), abs=0.03)

    @pytest.mark.parametrize("right", [[1.0] * 3, [0.0] * 3, [0.0, 0.0, 1.0]], ids=["all", "none", "falling"])
    def test_nothing_to_tell_apart_and_falling_curves(self, right, monkeypatch):
        ids, scores = np.tile(np.arange(3), (40, 1)), np.tile(np.float32([3, 2, 1]), (40, 1))
        monkeypatch.setattr(calibration, "top_k", lambda *_, **__: (ids, scores))
        assert calibrate(None, None, sp.csr_matrix(np.tile(right, (40, 1)))) == (1.0, 0.0)

    def test_few_rows_make_nothing_certain(self, monkeypatch):
        """Scores that separate completely would else have a curve without end."""
        ids, scores = np.tile(np.arange(2), (40, 1)), np.tile(np.float32([0.3, 0.1]), (40, 1))
        monkeypatch.setattr(calibration, "top_k", lambda *_, **__: (ids, scores))
        right = sp.csr_matrix(np.tile([1.0, 0.0], (40, 1)))
        slope, intercept = calibrate(None, None, right)
        found = 1 / (1 + np.exp(-(slope * scores[0] + intercept)))
        assert found == pytest.approx([41 / 42, 1 / 42], abs=1e-3)

    @pytest.mark.parametrize("loss", ["cosine", "bce", "softmax"])
    @pytest.mark.parametrize("validated", [True, False], ids=["validated", "not validated"])
    def test_probabilities_lie_between_0_and_1_and_rank_alike(self, loss, validated, split, documents, small_run):
        settings = NetworkSettings(dim=24, hidden=(16,), loss=loss)
        validation = split("sparse", 1) if validated else None
        model = fit(split("sparse"), RunSettings(settings, small_run.training), validation=validation)
        _, scores = model.top_k(documents("sparse"), L)
        probabilities = model.probabilities(scores)
        assert probabilities.dtype == np.float32
        assert probabilities.shape == scores.shape
        assert ((probabilities >= 0) & (probabilities <= 1)).all()
        assert (np.diff(probabilities, axis=1) <= 0).all()


@pytest.mark.parametrize(("slope", "intercept", "n"), [(0.8, -1.0, 4000), (5.0, -20.0, 3000), (0.1, 3.0, 500)])
def test_the_curve_is_scikit_learns(slope, intercept, n):
    from sklearn.linear_model import LogisticRegression

    random = np.random.default_rng(0)
    x = random.normal(-2, 3, n)
    target = np.where(random.random(n) < 1 / (1 + np.exp(-(slope * x + intercept))), 0.98, 0.01)
    both = np.tile(x[:, None], (2, 1)), np.repeat([True, False], n)
    known = LogisticRegression(C=1e8, tol=1e-9, max_iter=1000).fit(
        *both, sample_weight=np.concatenate([target, 1 - target])
    )
    found = calibration._logistic_curve(x, target)
    assert found == pytest.approx((known.coef_[0, 0], known.intercept_[0]), rel=1e-4)


def test_a_curve_over_equal_scores_is_flat():
    slope, intercept = calibration._logistic_curve(np.ones(10), np.full(10, 0.3))
    assert slope == 0
    assert intercept == pytest.approx(np.log(0.3 / 0.7))


def test_held_out_rows_come_as_new_documents_would():
    """Feature 3 is in held-out rows only: it goes, and what is left keeps the row's length."""
    dense = np.array([[1, 0, 1, 0], [0, 3, 0, 4], [2, 1, 0, 0], [0, 0, 0, 5]], dtype=np.float32)
    rows = sp.csr_matrix(dense)
    found = as_if_new(rows, np.array([1, 3]))
    # Feature 1 of row 1 is also in row 2. Nothing is left of row 3.
    np.testing.assert_allclose(found.toarray(), [[0, 5, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(rows.toarray(), dense)
    np.testing.assert_array_equal(as_if_new(dense, np.array([1])), dense[[1]])  # dense rows stay as they are


class TestThreshold:
    """It is chosen on rows that were held out, for what the settings say."""

    @pytest.mark.parametrize("join", [True, False])
    def test_for_f1_and_for_precision(self, join, split, small_run):
        base = {"validation": 0.3, "join": join}
        found = {
            goal: fit(split("sparse"), small_run.with_values({**base, "threshold_for": goal}))
            for goal in ("f1", "precision=1")
        }
        assert all(0 < model.threshold < 1 for model in found.values())
        assert found["precision=1"].threshold >= found["f1"].threshold
        assert found["f1"].training["threshold_for"] == "f1"

    def test_several_networks_have_the_mean(self, split, small_run):
        model = fit(split("sparse"), small_run.with_values({"validation": 0.3, "members": 2, "join": True}))
        own = [record["threshold"] for record in model.history if "threshold" in record]
        assert len(own) == 2
        assert model.threshold == pytest.approx(np.mean(own))

    def test_no_rows_show_none(self, split, small_run):
        assert fit(split("sparse"), small_run.with_values({"validation": 0})).threshold is None
        assert fit(split("sparse"), small_run.with_values({"validation": 0, "loss": "cosine"})).threshold is None
