"""Every kind of network, scaling and storage as a graph gives what circlet itself gives."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from circlet.errors import ParameterError
from circlet.features.rows import SCALINGS
from circlet.scoring.heads import HEADS
from circlet.settings.network import CODEBOOKS, LOSSES, NetworkSettings
from circlet.storage.tensors import STORES


def fits(head: str, codebook: str, loss: str) -> bool:
    try:
        NetworkSettings(head=head, codebook=codebook, loss=loss)
    except ParameterError:
        return False
    return codebook != "auto" or HEADS[head].codes is None


NETWORKS = [each for each in product(HEADS, ["auto", *CODEBOOKS], LOSSES) if fits(*each)]
INPUTS = [(kind, sparse) for kind in SCALINGS for sparse in (True, False) if kind != "standard" or not sparse]


def test_there_are_all_kinds():
    assert {head for head, _, _ in NETWORKS} == set(HEADS)
    assert {codebook for _, codebook, _ in NETWORKS} == {"auto", *CODEBOOKS}
    circular = sum(head.codes == "circular" for head in HEADS.values())
    assert circular >= 5
    assert len(NETWORKS) == circular * 4 * 5 + 5 + 3


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize(("head", "codebook", "loss"), NETWORKS)
def test_networks(head, codebook, loss, members, make_model, make_rows, exported, assert_same):
    model = make_model(head=head, codebook=codebook, loss=loss, members=members)
    assert_same(*exported(model), make_rows(sparse=True))


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(("scaling", "sparse"), INPUTS)
def test_inputs(scaling, sparse, store, make_model, make_rows, exported, assert_same):
    model = make_model(scaling=scaling, sparse=sparse, hidden=(16, 10, 6), members=2)
    assert_same(*exported(model, store), make_rows(sparse))


@pytest.mark.slow
@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize(("scaling", "sparse"), INPUTS)
@pytest.mark.parametrize(("head", "codebook", "loss"), NETWORKS)
def test_all_combinations(
    head, codebook, loss, scaling, sparse, members, make_model, make_rows, exported, assert_same
):
    settings = {"head": head, "codebook": codebook, "loss": loss}
    model = make_model(**settings, scaling=scaling, sparse=sparse, members=members)
    assert_same(*exported(model, "int8"), make_rows(sparse))


@pytest.mark.parametrize("k", [1, 7, 40, 99])
def test_number_of_labels(k, make_model, make_rows, exported, assert_same):
    assert_same(*exported(make_model(), k=k), make_rows(sparse=True), k=k)


def test_a_row_does_not_depend_on_others_or_on_padding(make_model, make_rows, exported, feeds):
    _, graph = exported(make_model(scaling="sqrt"))
    X = make_rows(sparse=True)
    together = graph.run(["scores"], feeds(X))[0]
    alone = np.concatenate([graph.run(["scores"], feeds(X[i]))[0] for i in range(X.shape[0])])
    np.testing.assert_allclose(alone, together, rtol=1e-5, atol=1e-6)
    wide = {name: np.pad(array, [(0, 0), (0, 5)]) for name, array in feeds(X).items()}
    np.testing.assert_allclose(graph.run(["scores"], wide)[0], together, rtol=1e-5, atol=1e-6)


def test_no_rows(make_model, exported):
    _, graph = exported(make_model())
    none = {"columns": np.zeros((0, 3), np.int32), "values": np.zeros((0, 3), np.float32)}
    assert [output.shape for output in graph.run(None, none)] == [(0, 5), (0, 5), (0, 40)]


@pytest.mark.parametrize("factor", [0, 1e-15, 1e-6])
@pytest.mark.parametrize("head", ["chrr", "chrr-amplitude", "hrr"])
def test_outputs_next_to_zero(head, factor, make_model, make_rows, exported, assert_same):
    """Norms that are divided by are bounded from below as they are in the network."""
    model = make_model(head=head, loss="bce")
    model.network.head.output.weight.data.mul_(factor)
    model.network.head.output.bias.data.zero_()
    assert_same(*exported(model), make_rows(sparse=True))


def test_equal_labels_are_ordered_by_id(make_model, make_rows, exported, feeds):
    model = make_model(head="fc", loss="softmax")
    output = model.network.head.output
    output.weight.data.zero_()
    output.bias.data.zero_()
    output.bias.data[17] = 1
    _, graph = exported(model)
    labels = graph.run(["labels"], feeds(make_rows(sparse=True)))[0]
    assert labels.tolist() == [[17, 0, 1, 2, 3]] * 10


def test_a_model_that_has_grown(make_model, make_rows, exported, assert_same):
    """Its codebook has more slots than labels, and its biases are more than the labels it had at first."""
    model = make_model(loss="bce")
    model.ranker.grow(42)
    assert_same(*exported(model), make_rows(sparse=True))


def test_what_a_file_says_about_itself(make_model, exported):
    _, sparse = exported(make_model())
    described = [(each.name, each.shape, each.type) for each in sparse.get_inputs()]
    assert described == [
        ("columns", ["batch", "m"], "tensor(int32)"),
        ("values", ["batch", "m"], "tensor(float)"),
    ]
    described = [(each.name, each.shape, each.type) for each in sparse.get_outputs()]
    assert described == [
        ("labels", ["batch", 5], "tensor(int64)"),
        ("probabilities", ["batch", 5], "tensor(float)"),
        ("scores", ["batch", 40], "tensor(float)"),
    ]
    _, dense = exported(make_model(sparse=False))
    assert [(each.name, each.shape) for each in dense.get_inputs()] == [("features", ["batch", 30])]
    about = dense.get_modelmeta()
    assert about.producer_name == "circlet"
    assert about.custom_metadata_map == {"slope": "1.5", "intercept": "-0.5"}
