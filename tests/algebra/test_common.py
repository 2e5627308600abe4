"""What both algebras promise alike: shapes, dtypes, devices, gradients, compilation and clear errors."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from circlet.algebra import circular, holographic
from circlet.errors import CircletError, DTypeError, ParameterError, ShapeError

DTYPES = [torch.float64, torch.float32, torch.bfloat16]
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]
BINARY = ["bind", "unbind", "similarity"]


@pytest.fixture(params=[circular, holographic], ids=["circular", "holographic"])
def algebra(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


def test_both_have_the_same_names():
    shared = {"bind", "inverse", "random", "similarity", "superpose", "unbind"}
    assert set(circular.__all__) - shared == {"pack", "unpack", "wrap"}
    assert set(holographic.__all__) - shared == {"project"}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("device", DEVICES)
def test_every_operation_keeps_shape_dtype_and_device(algebra, dtype, device):
    a = algebra.random((2, 3), 8, generator=0, device=device, dtype=dtype)
    b = algebra.random(3, 8, generator=1, device=device, dtype=dtype)
    results = {
        (2, 3, 8): [a, algebra.bind(a, b), algebra.unbind(a, b), algebra.inverse(a)],
        (2, 8): [algebra.superpose(a), algebra.superpose(a, weights=torch.ones(3).to(a))],
        (3, 8): [algebra.superpose(a, dim=0)],
        (2, 3): [algebra.similarity(a, b)],
        (0, 8): [algebra.random(0, 8, generator=0, device=device, dtype=dtype)],
    }
    for shape, tensors in results.items():
        for tensor in tensors:
            assert tensor.shape == shape
            assert tensor.dtype == dtype
            assert tensor.device.type == device
            assert type(tensor) is torch.Tensor


def test_random_takes_seed_or_generator_and_leaves_the_global_state_alone(algebra):
    before = torch.get_rng_state()
    generator = torch.Generator().manual_seed(7)
    first, second = (algebra.random(4, 5, generator=generator) for _ in range(2))
    assert torch.equal(first, algebra.random(4, 5, generator=7))
    assert not torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("operation", BINARY)
def test_leading_shapes_broadcast(algebra, operation):
    a = algebra.random((4, 1), 6, generator=0, dtype=torch.float64)
    b = algebra.random((1, 3), 6, generator=1, dtype=torch.float64)
    whole = getattr(algebra, operation)(a, b)
    for i in range(4):
        for j in range(3):
            assert torch.allclose(whole[i, j], getattr(algebra, operation)(a[i, 0], b[0, j]))


def test_weights_are_repetitions_and_may_differ_by_row(algebra):
    x = algebra.random((2, 3), 16, generator=0, dtype=torch.float64)
    repeated = x[0, [0, 0, 0, 1]]
    weighted = algebra.superpose(x[0, :2], weights=torch.tensor([3.0, 1.0], dtype=torch.float64))
    assert torch.allclose(weighted, algebra.superpose(repeated))
    assert torch.allclose(weighted, algebra.superpose(repeated.flip(-2)))
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    assert torch.allclose(algebra.superpose(x, weights), torch.stack([x[0, 0], x[1, 2]]))


@pytest.mark.parametrize("operation", [*BINARY, "inverse", "superpose", "weighted superpose"])
def test_gradients(algebra, operation):
    n_arguments = 2 if operation in BINARY else 1
    arguments = [
        algebra.random(3, 5, generator=seed, dtype=torch.float64).requires_grad_() for seed in range(n_arguments)
    ]
    if operation == "weighted superpose":
        arguments.append(torch.tensor([0.5, 0.8, 0.1], dtype=torch.float64, requires_grad=True))
    assert torch.autograd.gradcheck(getattr(algebra, operation.removeprefix("weighted ")), arguments)


def test_compiles_as_one_graph(algebra):
    def retrieve(p, c):
        memory = algebra.superpose(algebra.bind(p, c))
        return algebra.similarity(algebra.unbind(memory, p), c)

    p = algebra.random(1, 16, generator=0)
    c = algebra.random(4, 16, generator=1)
    # aot_eager traces everything and needs no C++ compiler on the machine.
    compiled = torch.compile(retrieve, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(p, c), retrieve(p, c), atol=1e-6)


# Errors


@pytest.mark.parametrize("operation", BINARY)
@pytest.mark.parametrize(
    ("other", "message"),
    [
        ((2, 5), "found last dimensions 4 and 5; wanted equal"),
        ((2, 1), "found last dimensions 4 and 1; wanted equal"),
        ((3, 4), r"must broadcast, got \(2,\) and \(3,\)"),
    ],
)
def test_shapes_that_do_not_go_together(algebra, operation, other, message):
    with pytest.raises(ShapeError, match=rf"\.{operation}: .*{message}"):
        getattr(algebra, operation)(torch.zeros(2, 4), torch.zeros(other))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
@pytest.mark.parametrize("operation", [*BINARY, "inverse", "superpose"])
def test_wrong_dtype(algebra, operation, dtype):
    bad = torch.zeros(3, dtype=dtype)
    with pytest.raises(DTypeError, match=f"found dtype {dtype}; wanted a floating-point one"):
        getattr(algebra, operation)(*[bad] * (2 if operation in BINARY else 1))
    with pytest.raises(DTypeError, match=r"`b`: found list; wanted a torch\.Tensor"):
        algebra.bind(torch.zeros(3), [0.0, 0.0, 0.0])


@pytest.mark.parametrize("shape", [(), (2, 0)])
def test_no_vector(algebra, shape):
    with pytest.raises(ShapeError, match=r"wanted \(\.\.\., dim\)"):
        algebra.inverse(torch.zeros(shape))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *(({"dim": dim}, rf"got dim={dim} for shape \(3, 4\)") for dim in (-1, 1, 2, -3)),
        *(({"weights": torch.ones(shape)}, r"broadcasts to \(3,\), got") for shape in ((2,), (3, 4), (1, 3))),
    ],
)
def test_superpositions_over_what_does_not_fit(algebra, arguments, message):
    with pytest.raises(ShapeError, match=message):
        algebra.superpose(torch.zeros(3, 4), **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": -1}, "`n`: found -1; wanted an integer >= 0"),
        ({"n": 2.5}, "`n`: found 2.5; wanted an integer >= 0"),
        ({"dim": 0}, "`dim`: found 0; wanted an integer >= 1"),
        ({"generator": "0"}, "`generator`: found '0'; wanted a torch.Generator or"),
        ({"dtype": torch.int32}, "`dtype`: found torch.int32; wanted a floating-point"),
    ],
)
def test_bad_arguments_of_random(algebra, arguments, message):
    with pytest.raises((ParameterError, DTypeError), match=message):
        algebra.random(**{"n": 1, "dim": 3, "generator": 0, **arguments})


def test_errors_are_the_built_in_ones_too():
    assert issubclass(ShapeError, ValueError)
    assert issubclass(DTypeError, TypeError)
    assert issubclass(ShapeError, CircletError)
