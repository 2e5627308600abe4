from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from circlet.algebra import circular, holographic
from circlet_paper import stability
from circlet_paper.stability import Settings


@pytest.fixture(scope="module")
def result():
    return stability.run(Settings(max_k=10, repetitions=400, seed=5))


def test_equals_a_direct_computation():
    settings = Settings(dim=12, max_k=3, repetitions=2, seed=4)
    result = stability.run(settings)
    generator = torch.Generator().manual_seed(4)
    angles = circular.random((2, 4), 12, generator=generator, dtype=torch.float64)
    plain = holographic.random((2, 4), 12, generator=generator, dtype=torch.float64)
    for method, vectors in [("chrr", angles), ("hrr", plain), ("hrr-projected", holographic.project(plain))]:
        algebra = circular if method == "chrr" else holographic
        options = {} if method == "chrr" else {"cosine": True}
        for k in (1, 2, 3):
            found = []
            for p, *c in vectors:
                stored = torch.stack(c[:k])
                decoded = algebra.unbind(algebra.superpose(algebra.bind(p, stored)), p)
                found += algebra.similarity(decoded, stored, **options).tolist()
            assert result["methods"][method]["mean"][k - 1] == pytest.approx(np.mean(found), rel=1e-4)
            variance = result["methods"][method]["variance"][k - 1]
            assert variance == pytest.approx(np.var(found), rel=1e-4, abs=1e-12)


def test_theory_at_one_and_two_and_many():
    mean, variance = stability.chrr_theory(200, dim=1)
    assert mean[0] == pytest.approx(1, abs=1e-6)
    assert variance[0] == pytest.approx(0, abs=1e-5)
    # The superposition of two phasors bisects them: the half angle is uniform in (−π/2, π/2).
    assert mean[1] == pytest.approx(2 / math.pi, abs=1e-6)
    assert variance[1] == pytest.approx(0.5 - (2 / math.pi) ** 2, abs=1e-5)
    assert mean[-1] == pytest.approx(math.sqrt(math.pi) / (2 * math.sqrt(200)), rel=2e-3)
    assert variance[-1] == pytest.approx(0.5, rel=0.01)


def test_measurement_agrees_with_theory(result):
    theory_mean, theory_variance = stability.chrr_theory(10, dim=400)
    chrr = result["methods"]["chrr"]
    assert chrr["mean"] == pytest.approx(theory_mean, abs=0.01)
    assert chrr["variance"] == pytest.approx(theory_variance, rel=0.15, abs=1e-9)


def test_the_inner_product_has_mean_one_at_every_k(result):
    """Why the paper's falling means can only be cosines."""
    for method in ("hrr", "hrr-projected"):
        assert result["methods"][method]["dot_mean"] == pytest.approx([1.0] * 10, abs=0.02)


def test_claims_follow_the_numbers(result):
    assert stability.claims(result)[0].holds == "yes"
    swapped = {**result, "methods": {**result["methods"], "chrr": result["methods"]["hrr"]}}
    assert stability.claims(swapped)[0].holds == "no"


def test_repeats_for_a_seed(result):
    assert stability.run(Settings(max_k=10, repetitions=400, seed=5)) == result
