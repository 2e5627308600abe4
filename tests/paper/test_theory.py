from __future__ import annotations

import numpy as np
import pytest
import torch

from circlet.codebooks import SpectralCodebook
from circlet.hashing import permuted
from circlet_paper import theory, theory_formulas
from circlet_paper.theory import Settings

SMALL = Settings(
    dims=(128,),
    shorter_dims=(101,),
    stored=(2, 10, 25, 50),
    spectral=((64, 1000), (256, 1000)),
    pattern_labels=(1000,),
    repetitions=6,
    seed=3,
)


@pytest.fixture(scope="module")
def result():
    return theory.run(SMALL)


def test_claims_hold_and_name_their_test(result):
    found = theory.claims(result)
    exact = [claim for claim in found if "z-score" in claim.evidence]
    assert len(exact) >= 6
    assert {claim.holds for claim in exact} == {"yes"}
    assert all(
        "comparisons" in claim.evidence or "points" in claim.evidence or "of" in claim.evidence for claim in found
    )
    assert next(claim for claim in found if claim.text.startswith("Sets that are runs of slots")).holds == "yes"


def test_a_wrong_number_is_noticed(result):
    cell = result["sets"][0]
    wrong = {**cell["ways"]["angles"]["10"], "stored_mean": [0.4, 0.0001]}
    angles = {**cell["ways"]["angles"], "10": wrong}
    changed = {**result, "sets": [{**cell, "ways": {**cell["ways"], "angles": angles}}, *result["sets"][1:]]}
    claim = next(claim for claim in theory.claims(changed) if claim.text.startswith("The mean score of a stored"))
    assert claim.holds == "no"


def test_tables_show_formulas_beside_measurements(result):
    titles = [table.title for table in theory.tables(result)]
    assert len(titles) == len(set(titles)) == 6
    assert all(table.markdown() for table in theory.tables(result))


def test_draws_a_panel_for_every_measure(result, tmp_path):
    figure = theory.draw(result)
    assert len([axis for axis in figure.axes if axis.has_data()]) == 4  # one dimension of three
    figure.savefig(tmp_path / "theory.png")


def test_repeats_for_a_seed(result):
    again = theory.run(
        Settings(**{**vars(SMALL), "spectral": ((64, 1000),), "stored": (2,), "pattern_labels": ()})
    )
    assert again["similarities"][-1] == result["similarities"][-2]
    assert again["sets"][0]["ways"]["angles"]["2"] == result["sets"][0]["ways"]["angles"]["2"]


def test_similarities_are_those_of_the_codes():
    book = SpectralCodebook(60, 12, seed=5, length=60)
    codes = book.codes(torch.arange(60))
    found = theory_formulas.similarities(60, 12, 5, 60)
    slots = book.slots(torch.arange(60))
    for x, y in ((0, 1), (7, 30), (59, 2)):
        difference = int((slots[x] - slots[y]).abs())
        n = min(difference, 60 - difference)
        assert float(codes[x] @ codes[y]) / 12 == pytest.approx(float(found[n - 1]), abs=1e-5)


@pytest.mark.parametrize("n_labels", [1000, 4096])
def test_patterns_are_sets_of_different_labels(n_labels):
    generator = torch.Generator().manual_seed(0)
    for name, sets in theory_formulas.patterns(n_labels, 32, generator).items():
        assert sets.shape == (theory_formulas.SETS, 32), name
        assert sets.min() >= 0
        assert sets.max() < n_labels
        assert all(len(set(row)) == 32 for row in sets.tolist()), name


@pytest.mark.parametrize("half", [2, 3, 4])
def test_a_feistel_network_makes_even_permutations_only(half):
    """Why it can't be a uniformly random permutation, however good its rounds are."""
    size = 4**half
    for seed in range(20):
        image = permuted(torch.arange(size), size, seed, stream=2).numpy()
        assert sorted(image) == list(range(size))
        seen, cycles = np.zeros(size, dtype=bool), 0
        for start in range(size):
            cycles += not seen[start]
            here = start
            while not seen[here]:
                seen[here], here = True, image[here]
        assert (size - cycles) % 2 == 0
