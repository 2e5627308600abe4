"""The guarantees of saved models, for models of every kind."""

from __future__ import annotations

import inspect
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.conformance import ALL_STORES, SCALED, Case, Graph, Guarantees, Saved, cases, networks, scores_of

from circlet.scoring.heads import HEADS
from circlet.settings.network import CODEBOOKS, LOSSES

CASES = list(cases())
INPUTS = [(kind, scaling) for kind, scalings in SCALED.items() for scaling in scalings]


@pytest.fixture(scope="session")
def make_saved(tmp_path_factory):
    """Save the model of a case, once."""
    return cache(lambda case: Saved(case, tmp_path_factory.mktemp("saved")))


@pytest.fixture
def saved(make_saved, request) -> Saved:
    return make_saved(request.param)


def test_the_cases_are_of_every_kind():
    """Each network is there, and each of the other choices with each head, codebook and loss."""
    circular = sum(head.codes == "circular" for head in HEADS.values())
    assert circular >= 5
    assert len(CASES) == circular * 4 * 5 + 5 + 3
    for part, choices in (("head", HEADS), ("codebook", ["auto", *CODEBOOKS]), ("loss", LOSSES)):
        for choice in choices:
            own = [case for case in CASES if getattr(case, part) == choice]
            assert {case.kind for case in own} == {"sparse", "dense", "texts"}, choice
    assert {(case.kind, case.scaling, case.store) for case in CASES} > {
        (*INPUTS[0], store) for store in ALL_STORES
    }
    assert {(case.kind, case.scaling) for case in CASES} == set(INPUTS)
    assert {(case.members, case.store) for case in CASES} == {
        (n, store) for n in (1, 2, 3) for store in ALL_STORES
    }


@pytest.mark.parametrize("saved", CASES, indirect=True, ids=str)
class TestConformance(Guarantees):
    """Every network, with the other choices in turn."""


@pytest.mark.slow
@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize(("kind", "scaling"), INPUTS)
@pytest.mark.parametrize("case", networks(), ids=str)
def test_all_combinations(case, kind, scaling, members, tmp_path):
    fulfill(Case(case.head, case.codebook, case.loss, kind=kind, scaling=scaling, members=members), tmp_path)


@settings(max_examples=40)
@given(
    head=st.sampled_from(list(HEADS)),
    codebook=st.sampled_from(["auto", *CODEBOOKS]),
    loss=st.sampled_from(list(LOSSES)),
    activation=st.sampled_from(["relu", "leaky-relu"]),
    hidden=st.lists(st.integers(1, 9).map(lambda half: 2 * half), min_size=1, max_size=3).map(tuple),
    dim=st.integers(1, 24),
    n_labels=st.integers(1, 60),
    seed=st.integers(0, 2**31),
    members=st.sampled_from([1, 1, 2, 3]),
    of=st.sampled_from(INPUTS),
    store=st.sampled_from(ALL_STORES),
)
def test_any_model(tmp_path_factory, of, **given):
    case = Case(**given, kind=of[0], scaling=of[1])
    assume(case.is_valid)
    fulfill(case, tmp_path_factory.mktemp("any"))


def fulfill(case: Case, folder: Path) -> None:
    """Go through all guarantees of a model."""
    saved = Saved(case, folder)
    for i, guarantee in enumerate(Guarantees.all()):
        own = {"tmp_path": folder / f"{i}"} if "tmp_path" in inspect.signature(guarantee).parameters else {}
        with suppress(pytest.skip.Exception):
            guarantee(saved, **own)


def test_labels_with_equal_scores_are_ordered_by_id(tmp_path):
    saved = Saved(Case("fc", loss="softmax"), tmp_path)
    output = saved.model.network.head.output
    output.weight.data.zero_()
    output.bias.data.zero_()
    output.bias.data[17] = 1
    saved.model.save(saved.folder)
    for backend in (saved.torch, saved.numpy):
        assert backend.top_k(saved.documents, 5)[0].tolist() == [[17, 0, 1, 2, 3]] * 7
    assert saved.onnx.run(saved.documents)[0].tolist() == [[17, 0, 1, 2, 3]] * 7


@pytest.mark.parametrize("factor", [0, 1e-15, 1e-6])
@pytest.mark.parametrize("head", ["chrr", "chrr-amplitude", "hrr"])
def test_outputs_next_to_zero(head, factor, tmp_path):
    """Norms that are divided by are bounded from below by each backend."""
    saved = Saved(Case(head), tmp_path)
    saved.model.network.head.output.weight.data.mul_(factor)
    saved.model.network.head.output.bias.data.zero_()
    saved.model.save(saved.folder)
    Guarantees().test_every_backend_has_the_same_scores(saved)


def test_projected_or_plain_holographic_codes(tmp_path):
    saved = Saved(Case("hrr"), tmp_path)
    saved.model.network.codebook.projected = False  # type: ignore[attr-defined]
    saved.model.save(saved.folder)
    Guarantees().test_every_backend_has_the_same_scores(saved)


@pytest.mark.parametrize("k", [1, 7, 23, 99])
def test_a_graph_ranks_as_many_labels_as_wanted(k, make_saved):
    saved = make_saved(Case())
    labels, probabilities, _ = Graph(saved.folder, saved.torch, k).run(saved.documents)
    assert labels.shape == probabilities.shape == (7, min(k, 23))
    np.testing.assert_array_equal(labels, saved.torch.top_k(saved.documents, k)[0])


def test_several_seeds_give_several_models(make_saved):
    one, other = (make_saved(Case(seed=seed)) for seed in (0, 1))
    assert not np.allclose(one.scores, scores_of(other.torch, one.documents))
