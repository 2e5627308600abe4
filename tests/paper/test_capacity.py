from __future__ import annotations

import numpy as np
import pytest
import torch

from circlet.algebra import circular, holographic
from circlet_paper import capacity
from circlet_paper.capacity import Settings

SMALL = Settings(dims=(16, 64), max_k=5, n_vectors=40, repetitions=3, seed=1)


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
@pytest.mark.parametrize("dim", [16, 64])
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
    result = capacity.run(Settings(dims=(1, 1024), max_k=5, n_vectors=100, repetitions=4))
    for method in capacity.METHODS:
        tiny, large = result["methods"][method]["mean"]
        assert large == [100] * 5
        assert max(tiny[1:]) < 50


def test_cells_do_not_depend_on_the_grid_they_are_in():
    alone = capacity.run(Settings(dims=(64,), max_k=5, n_vectors=40, repetitions=3, seed=1))
    together = capacity.run(SMALL)
    for method in capacity.METHODS:
        assert alone["methods"][method]["mean"][0] == together["methods"][method]["mean"][1]


def test_seed_changes_the_numbers_and_repeats_them():
    results = [capacity.run(Settings(dims=(32,), max_k=20, repetitions=2, seed=s)) for s in (0, 0, 1)]
    assert results[0] == results[1]
    assert results[0]["methods"] != results[2]["methods"]


def test_circular_vectors_hold_more():
    result = capacity.run(Settings(dims=(256,), repetitions=10, seed=3))
    chrr, hrr = (np.array(result["methods"][m]["mean"][0]) for m in ("chrr", "hrr-projected"))
    # The gap at k = 30…50 is about 12 points with a standard error under 1.
    assert (chrr - hrr)[29:].mean() > 5


class TestReport:
    @staticmethod
    def result(chrr: list[list[float]], projected: list[list[float]]) -> dict:
        return {
            "settings": {"dims": [128, 256], "max_k": 3, "n_vectors": 10, "repetitions": 2, "seed": 0},
            "methods": {
                "hrr": {"mean": projected},
                "hrr-projected": {"mean": projected},
                "chrr": {"mean": chrr},
            },
        }

    def test_held_is_the_largest_k_at_the_threshold(self):
        result = self.result([[100, 95, 60], [100, 99, 97]], [[94, 20, 10], [100, 94.9, 50]])
        assert capacity.held(result, "chrr", 128) == 2
        assert capacity.held(result, "hrr-projected", 128) == 0
        (table,) = capacity.tables(result)
        assert table.rows == [("HRR", "0", "1"), ("HRR (w/Proj)", "0", "1"), ("CHRR", "2", "≥ 3")]

    def test_claims_fail_where_the_numbers_say_so(self):
        better, worse = [[90, 80, 70]] * 2, [[90, 70, 50]] * 2
        assert capacity.claims(self.result(better, worse))[0].holds == "partly"
        assert capacity.claims(self.result(worse, better))[0].holds == "no"
