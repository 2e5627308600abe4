from __future__ import annotations

import numpy as np
import pytest
import torch

from circlet.algebra import circular, holographic
from circlet_paper import capacity
from circlet_paper.capacity import Settings

SMALL = Settings(dims=(16, 63), max_k=5, n_vectors=40, repetitions=3, seed=1)


def naive_hits(method: str, dim: int, settings: Settings) -> list[list[int]]:
    """The paper's procedure, step by step, with the same random numbers as the fast one."""
    algebra = circular if method == "chrr" else holographic
    recorded = {}

    def record(dim, n, order, generator):
        database = algebra.random((len(order), n), dim, generator=generator)
        recorded["database"] = holographic.project(database) if method == "hrr-projected" else database
        recorded["order"] = order
        return torch.zeros(len(order), settings.max_k, n)

    original = capacity.SCORERS[method]
    capacity.SCORERS[method] = record
    try:
        capacity._hits(method, dim, settings)
    finally:
        capacity.SCORERS[method] = original

    hits = []
    for database, order in zip(recorded["database"], recorded["order"], strict=True):
        p, chosen = database[order[0]], order[1:].tolist()
        row = []
        for k in range(1, settings.max_k + 1):
            memory = algebra.superpose(torch.stack([algebra.bind(p, database[c]) for c in chosen[:k]]))
            scores = algebra.similarity(algebra.unbind(memory, p), database)
            top = scores.argsort(descending=True)[:k].tolist()
            row.append(len(set(top) & set(chosen[:k])))
        hits.append(row)
    return hits


@pytest.mark.parametrize("method", capacity.METHODS)
@pytest.mark.parametrize("dim", [16, 63])
def test_equals_the_papers_procedure_step_by_step(method, dim):
    assert capacity._hits(method, dim, SMALL).tolist() == naive_hits(method, dim, SMALL)


def test_concept_is_never_one_of_the_labels(monkeypatch):
    seen = {}

    def record(dim, n, order, generator):
        seen["order"] = order
        return torch.zeros(len(order), 9, n)

    monkeypatch.setitem(capacity.SCORERS, "chrr", record)
    capacity._hits("chrr", 4, Settings(dims=(4,), max_k=9, n_vectors=10, repetitions=50))
    # The first is the concept, the others are the labels: all ten vectors, each once.
    assert (seen["order"].sort(dim=1).values == torch.arange(10)).all()


def test_a_large_vector_holds_everything_and_a_tiny_one_guesses():
    result = capacity.run(Settings(dims=(1, 1023), max_k=5, n_vectors=100, repetitions=4))
    for method in capacity.METHODS:
        tiny, large = result["methods"][method]["mean"]
        assert large == [100] * 5
        assert max(tiny[1:]) < 50


def test_cells_do_not_depend_on_the_grid_they_are_in():
    alone = capacity.run(Settings(dims=(63,), max_k=5, n_vectors=40, repetitions=3, seed=1))
    together = capacity.run(SMALL)
    for method in capacity.METHODS:
        assert alone["methods"][method]["mean"][0] == together["methods"][method]["mean"][1]


def test_seed_changes_the_numbers_and_repeats_them():
    results = [capacity.run(Settings(dims=(32,), max_k=20, repetitions=2, seed=s)) for s in (0, 0, 1)]
    assert results[0] == results[1]
    assert results[0]["methods"] != results[2]["methods"]


def test_circular_vectors_hold_more():
    result = capacity.run(Settings(dims=(255,), repetitions=10, seed=3))
    chrr, hrr = (np.array(result["methods"][m]["mean"][0]) for m in ("chrr", "hrr-projected"))
    # The gap at k = 30…50 is about 12 points with a standard error under 1.
    assert (chrr - hrr)[29:].mean() > 5


class TestHeld:
    def test_ends_before_the_first_failure(self):
        assert capacity._before_first_failure(np.array([100, 95, 94.9, 96])) == 2
        assert capacity._before_first_failure(np.array([94, 100])) == 0
        assert capacity._before_first_failure(np.array([100, 95])) == 2

    def test_repetitions_are_independent_and_repeated_exactly(self):
        settings = Settings(dims=(64,), max_k=6, n_vectors=200, precise=100)
        found = capacity._measure_held("chrr", 64, settings)
        assert found == capacity._measure_held("chrr", 64, settings)
        parts = [capacity._hits("chrr", 64, settings, part).tolist() for part in (0, 1, 2)]
        assert parts[0] != parts[1] != parts[2]

    def test_the_normal_approximation_is_near_what_is_measured(self):
        for method in ("hrr-projected", "chrr"):
            expected = capacity.approximated(method, 64, 200, 10)
            measured = capacity._measure_held(method, 64, Settings(max_k=10, n_vectors=200, precise=200))
            assert abs(measured["k"] - expected) <= 1


class TestReport:
    @staticmethod
    def result(chrr: list[list[float]], projected: list[list[float]]) -> dict:
        means = {"hrr": projected, "hrr-projected": projected, "chrr": chrr}
        return {
            "settings": {
                "dims": [128, 256],
                "max_k": 3,
                "n_vectors": 10,
                "repetitions": 2,
                "precise": 50,
                "seed": 0,
            },
            "methods": {method: {"mean": mean} for method, mean in means.items()},
            "held": {
                method: {
                    dim: {"k": capacity._before_first_failure(np.array(row)), "error": 0.5}
                    for dim, row in zip(("128", "256"), mean, strict=True)
                }
                for method, mean in means.items()
            },
        }

    def test_labels_held_are_tabulated_with_their_errors(self):
        result = self.result([[100, 95, 60], [100, 99, 97]], [[94, 20, 10], [100, 94.9, 50]])
        assert capacity.held(result, "chrr", 128) == 2
        assert capacity.held(result, "hrr-projected", 128) == 0
        (table,) = capacity.tables(result)
        assert table.rows[:3] == [
            ("HRR", "0 ± 0.5", "1 ± 0.5"),
            ("HRR (w/Proj)", "0 ± 0.5", "1 ± 0.5"),
            ("CHRR", "2 ± 0.5", "≥ 3"),
        ]

    def test_claims_fail_where_the_numbers_say_so(self):
        better, worse = [[90, 80, 70]] * 2, [[90, 70, 50]] * 2
        assert capacity.claims(self.result(better, worse))[0].holds == "partly"
        assert capacity.claims(self.result(worse, better))[0].holds == "no"
