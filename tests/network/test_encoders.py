from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from circlet.network.encoders import (
    Dropout,
    Encoder,
    RowGradient,
    SparseLinear,
    SparseRows,
    as_batch,
    label_sets,
    linear,
)
from circlet.scoring import tensors
from circlet.scoring.heads import hidden_vectors


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@st.composite
def sparse_matrices(draw: st.DrawFn) -> sp.csr_matrix:
    """Small matrices with empty rows, empty columns and, now and then, nothing in them at all."""
    rows, columns = draw(st.integers(1, 6)), draw(st.integers(1, 9))
    cells = st.tuples(st.integers(0, rows - 1), st.integers(0, columns - 1))
    values = draw(st.dictionaries(cells, st.floats(-4, 4, width=32), max_size=12))
    X = sp.lil_matrix((rows, columns), dtype=np.float32)
    for cell, value in values.items():
        X[cell] = value
    return X.tocsr()


CASES = {
    "ordinary": np.array([[0, 2, 0, 1], [3, 0, 0, -1], [0, 0.5, 0, 0]]),
    "empty rows": np.array([[0, 0, 0], [1, 0, 2], [0, 0, 0]]),
    "an empty first and last column": np.array([[0, 1, 2, 0], [0, 3, 0, 0]]),
    "no entries": np.zeros((3, 4)),
    "one cell": np.ones((1, 1)),
}


class TestSparseRows:
    @pytest.mark.parametrize("case", CASES)
    def test_both_orders_hold_the_matrix(self, case):
        dense = CASES[case].astype(np.float32)
        batch = SparseRows.for_training(sp.csr_matrix(dense))
        assert len(batch) == len(dense)
        ends = [*batch.starts[1:].tolist(), len(batch.columns)]
        by_rows = np.zeros_like(dense)
        for row, (start, end) in enumerate(zip(batch.starts.tolist(), ends, strict=True)):
            by_rows[row, batch.columns[start:end]] = batch.values[start:end]
        np.testing.assert_array_equal(by_rows, dense)
        entries = batch.by_columns
        ends = [*entries.starts[1:].tolist(), len(entries.rows)]
        by_columns = np.zeros_like(dense)
        for column, start, end in zip(entries.touched.tolist(), entries.starts.tolist(), ends, strict=False):
            by_columns[entries.rows[start:end], column] = entries.values[start:end]
        np.testing.assert_array_equal(by_columns, dense)

    def test_types_do_not_depend_on_the_matrix(self):
        X = sp.csr_matrix(CASES["ordinary"].astype(np.float64))
        batch = SparseRows.for_training(X)
        entries = batch.by_columns
        assert batch.values.dtype == entries.values.dtype == torch.float32
        for tensor in (batch.columns, batch.starts, entries.touched, entries.rows, entries.starts):
            assert tensor.dtype == torch.int64

    def test_on_its_own_device_it_is_itself(self):
        batch = SparseRows.for_training(sp.csr_matrix(CASES["ordinary"]))
        assert batch.to(torch.device("cpu")) is batch
        moved = batch.to(torch.device("meta"))
        assert moved.columns.device.type == moved.by_columns.values.device.type == "meta"


def test_label_sets():
    labels = label_sets(sp.csr_matrix([[0, 1, 1], [0, 0, 0], [1, 0, 0]], dtype=np.float32))
    assert labels.ids.tolist() == [1, 2, 0]
    assert labels.starts.tolist() == [0, 2, 2]
    assert labels.documents.tolist() == [0, 0, 2]
    assert labels.counts().tolist() == [2, 0, 1]
    assert len(labels) == 3
    moved = labels.to(torch.device("meta"))
    assert {moved.ids.device.type, moved.starts.device.type, moved.documents.device.type} == {"meta"}


def test_dense_rows_as_the_network_takes_them():
    rows = CASES["ordinary"].astype(np.float32)
    dense = as_batch(np.asfortranarray(rows))
    assert dense.is_contiguous()
    np.testing.assert_array_equal(dense, rows)


def test_no_documents():
    batch = SparseRows.for_training(sp.csr_matrix((0, 5), dtype=np.float32))
    layer = SparseLinear(5, 3, generator=seeded())
    assert len(batch) == 0
    assert layer(batch).shape == (0, 3)
    layer(batch).sum().backward()
    assert not layer.weight.grad.any()


def test_rows_for_prediction_have_no_gradient():
    layer = SparseLinear(4, 3, generator=seeded())
    output = layer(SparseRows.of(sp.csr_matrix(CASES["ordinary"].astype(np.float32))))
    with pytest.raises(RuntimeError, match=r"made for prediction; training wants SparseRows\.for_training"):
        output.sum().backward()


class TestByRows:
    @given(X=sparse_matrices(), seed=st.integers(0, 9))
    @settings(max_examples=40)
    def test_the_rows_are_those_of_the_whole_gradient(self, X, seed):
        layer = SparseLinear(X.shape[1], 3, generator=seeded(seed))
        layer(SparseRows.for_training(X)).square().sum().backward()
        whole, layer.weight.grad = layer.weight.grad, None
        layer(SparseRows.for_training(X, by_rows=True)).square().sum().backward()
        found = RowGradient.taken_from(layer.weight)
        assert found is not None
        assert layer.weight.grad is None
        assert torch.equal(torch.zeros_like(whole).index_copy_(0, found.rows, found.values()), whole)

    @pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.LBFGS])
    def test_an_optimizer_that_would_miss_them_refuses_to_step(self, kind):
        """It sees no gradient, and would silently train everything but this layer."""
        X = sp.csr_matrix(CASES["ordinary"].astype(np.float32))
        layer = SparseLinear(X.shape[1], 3, generator=seeded())
        optimizer, before = kind(layer.parameters(), lr=0.1), layer.weight.detach().clone()

        def loss(by_rows: bool = True) -> torch.Tensor:
            optimizer.zero_grad()
            found = layer(SparseRows.for_training(X, by_rows=by_rows)).square().sum()
            found.backward()
            return found

        loss()
        with pytest.raises(
            RuntimeError, match=rf"{kind.__name__} can't use the gradient by rows .*make_optimizer"
        ):
            optimizer.step(loss)
        assert torch.equal(layer.weight, before)
        assert RowGradient.taken_from(layer.weight) is not None
        optimizer.step(lambda: loss(by_rows=False))
        assert not torch.equal(layer.weight, before)

    def test_elsewhere_than_on_a_cpu_gradients_are_whole(self):
        batch = SparseRows.for_training(sp.csr_matrix(CASES["ordinary"]), by_rows=True)
        assert batch.by_columns.by_rows
        assert batch.to(torch.device("cpu")).by_columns.by_rows
        assert not batch.to(torch.device("meta")).by_columns.by_rows


class TestSparseLinear:
    @given(X=sparse_matrices(), seed=st.integers(0, 9))
    @settings(max_examples=60)
    def test_output_and_gradients_are_those_of_a_dense_product(self, X, seed):
        layer = SparseLinear(X.shape[1], 3, generator=seeded(seed)).double()
        with torch.no_grad():
            layer.bias.copy_(torch.randn(3, generator=seeded(seed + 1)))
        weight = layer.weight.detach().clone().requires_grad_()
        bias = layer.bias.detach().clone().requires_grad_()
        output = layer(SparseRows.for_training(X))
        expected = torch.from_numpy(X.toarray()).double() @ weight + bias
        torch.testing.assert_close(output, expected)
        upstream = torch.randn(expected.shape, generator=seeded(seed + 2), dtype=torch.float64)
        (output * upstream).sum().backward()
        (expected * upstream).sum().backward()
        torch.testing.assert_close(layer.weight.grad, weight.grad)
        torch.testing.assert_close(layer.bias.grad, bias.grad)

    @pytest.mark.parametrize("case", CASES)
    def test_gradient_by_finite_differences(self, case):
        batch = SparseRows.for_training(sp.csr_matrix(CASES[case]))
        layer = SparseLinear(CASES[case].shape[1], 2, generator=seeded()).double()

        def output(weight: torch.Tensor) -> torch.Tensor:
            return torch.func.functional_call(layer, {"weight": weight}, (batch,))

        weight = layer.weight.detach().clone().requires_grad_()
        assert torch.autograd.gradcheck(output, (weight,))

    def test_a_gradient_that_is_not_contiguous(self):
        X = sp.csr_matrix(CASES["ordinary"])
        layer = SparseLinear(4, 3, generator=seeded())
        layer(SparseRows.for_training(X)).mT.sum(0).pow(2).sum().backward()
        weight = layer.weight.detach().clone().requires_grad_()
        (torch.from_numpy(X.toarray()).float() @ weight).mT.sum(0).pow(2).sum().backward()
        torch.testing.assert_close(layer.weight.grad, weight.grad)

    def test_initial_weights_are_small_and_the_generators(self):
        layer, same, other = (SparseLinear(200, 50, generator=seeded(seed)) for seed in (1, 1, 2))
        assert torch.equal(layer.weight, same.weight)
        assert not torch.equal(layer.weight, other.weight)
        assert float(layer.weight.detach().std()) == pytest.approx(0.01, rel=0.05)
        assert not layer.bias.detach().any()


class TestDropout:
    def test_follows_its_generator_and_nothing_else(self):
        x = torch.ones(20, 30)
        first = Dropout(0.5, seeded(3))(x)
        torch.rand(7)
        assert torch.equal(Dropout(0.5, seeded(3))(x), first)
        assert not torch.equal(Dropout(0.5, seeded(4))(x), first)

    @pytest.mark.parametrize("p", [0.2, 0.5, 0.9])
    def test_keeps_the_mean(self, p):
        out = Dropout(p, seeded())(torch.ones(400, 400))
        assert float(out.mean()) == pytest.approx(1, abs=0.03)
        assert float((out == 0).float().mean()) == pytest.approx(p, abs=0.01)
        torch.testing.assert_close(out[out > 0], torch.full_like(out[out > 0], 1 / (1 - p)))
        assert (Dropout(1 - 1e-9, seeded())(torch.ones(100, 100)) == 0).float().mean() > 0.99

    def test_is_off_in_use_and_at_zero(self):
        x, generator = torch.randn(5, 5), seeded()
        before = generator.get_state()
        assert Dropout(0.5, generator).eval()(x) is x
        assert Dropout(0, generator)(x) is x
        assert torch.equal(before, generator.get_state())

    def test_the_gradient_has_the_same_mask(self):
        x = torch.ones(30, 30, requires_grad=True)
        out = Dropout(0.4, seeded())(x)
        out.sum().backward()
        assert torch.equal(x.grad, out.detach())


def encoder(hidden: tuple[int, ...], *, sparse: bool, dropout: float = 0.0, seed: int = 0) -> Encoder:
    return Encoder(6, hidden, sparse=sparse, dropout=dropout, generator=seeded(seed), noise=seeded(seed))


class TestEncoder:
    def test_sparse_and_dense_agree_on_the_same_weights(self):
        X = CASES["ordinary"].astype(np.float32)
        X = np.hstack([X, np.ones((3, 2), dtype=np.float32)])
        one, other = encoder((5, 4), sparse=True), encoder((5, 4), sparse=False)
        with torch.no_grad():
            for mine, its in zip(one.parameters(), other.parameters(), strict=True):
                its.copy_(mine.mT if mine.shape != its.shape else mine)
        torch.testing.assert_close(one(SparseRows.for_training(sp.csr_matrix(X))), other(torch.from_numpy(X)))

    def test_dropout_acts_in_training_only(self):
        X = torch.rand(6, 6, generator=seeded())
        module = encoder((50, 50), sparse=False, dropout=0.5)
        assert not torch.equal(module(X), module(X))
        module.eval()
        assert torch.equal(module(X), module(X))

    @pytest.mark.parametrize("leak", [0.0, 0.01])
    def test_without_dropout_it_is_what_every_backend_computes(self, leak):
        rows = torch.randn(5, 4, generator=seeded())
        module = Encoder(
            4, (3, 6), sparse=False, dropout=0.5, generator=seeded(), noise=torch.Generator(), leak=leak
        ).eval()
        assert torch.equal(module(rows), hidden_vectors(tensors, rows, module.hidden, leak))
        before = module.hidden[0](rows)
        expected = module.hidden[1](torch.where(before > 0, before, leak * before))
        torch.testing.assert_close(module(rows), torch.where(expected > 0, expected, leak * expected))


def test_linear_layers_keep_the_scale_of_what_passes_a_relu():
    layer = linear(400, 300, generator=seeded())
    assert float(layer.weight.detach().std()) == pytest.approx((2 / 400) ** 0.5, rel=0.02)
    assert not layer.bias.detach().any()
    hidden = torch.relu(torch.randn(500, 400, generator=seeded(1)))
    assert float(torch.relu(layer(hidden)).detach().pow(2).mean()) == pytest.approx(
        float(hidden.pow(2).mean()), rel=0.1
    )


def test_layers_can_start_as_torchs_own_do():
    layer = linear(400, 300, generator=seeded(), initial="torch")
    sparse = SparseLinear(400, 300, generator=seeded(), initial="torch")
    for weight in (layer.weight, layer.bias, sparse.weight, sparse.bias):
        assert float(weight.detach().abs().max()) <= 0.05
        assert float(weight.detach().std()) == pytest.approx(0.05 / 3**0.5, rel=0.1)
    assert sparse.weight.shape == (400, 300)
