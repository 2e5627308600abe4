"""Each primitive gives the same with NumPy, with torch and, where it exists, in an ONNX graph."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from onnxruntime import InferenceSession

from circlet.export.graph import Graph
from circlet.scoring import arrays, tensors

RANDOM = np.random.default_rng(0)
ROWS, OTHER = RANDOM.standard_normal((2, 3, 8)).astype(np.float32)
BOOK = SimpleNamespace(scores=lambda outputs: 1 * outputs[:, :2])
COLUMNS = RANDOM.permuted(np.tile(np.arange(8), (3, 1)), axis=1)
IDS = np.array([3, 0, 4])
GIVEN = {
    "absolute": (ROWS,),
    "affine": (ROWS, 2.0, -1.0),
    "arange": (2, 5, IDS),
    "as_array": (ROWS,),
    "beside": (ROWS, OTHER),
    "best_columns": (np.where(ROWS > 0, ROWS, -np.inf).astype(np.float32), 6),
    "by_id": (COLUMNS // 2, ROWS),
    "by_score": (COLUMNS, (2 * ROWS).round()),
    "concat": ([ROWS, OTHER], 0),
    "double": (ROWS,),
    "floor": (ROWS,),
    "integers": (IDS.astype(np.uint8),),
    "log1p": (ROWS**2,),
    "log_sigmoid": (50 * ROWS,),
    "log_sum": (ROWS, OTHER),
    "nothing": (ROWS, 2),
    "pack": (ROWS,),
    "packed": (ROWS,),
    "numbered": ([ROWS, OTHER],),
    "rectified": (ROWS, 0.25),
    "scores": (BOOK, ROWS, 3.0, OTHER[0, :2]),
    "precise_products": (ROWS, np.concatenate([OTHER, ROWS])),
    "products": (ROWS, np.concatenate([OTHER, ROWS])),
    "sin": (ROWS,),
    "single": (ROWS.astype(np.float64),),
    "split": (ROWS, 2),
    "sqrt": (ROWS**2,),
    "subtract": (ROWS, OTHER),
    "take": (ROWS, COLUMNS[:, :3]),
    "tanh": (ROWS,),
    "unit": (ROWS, 2.0),
    "unit_pairs": (ROWS,),
    "unit_spectrum": (ROWS,),
    "where": (ROWS > 0, -np.inf, ROWS),
}


def of_torch(each):
    if isinstance(each, list):
        return [of_torch(one) for one in each]
    return torch.from_numpy(each.copy()) if isinstance(each, np.ndarray) else each


def test_there_is_one_of_each_kind():
    functions = {name for name, each in vars(tensors).items() if callable(each) and not inspect.isclass(each)}
    names = {name for name in functions if not name.startswith("_")}
    assert names - {"Floats"} == {*GIVEN, "budget", "empty"}
    assert all(callable(getattr(arrays, name)) for name in names)


@pytest.mark.parametrize("name", GIVEN)
def test_the_same(name):
    own = [np.copy(each) if isinstance(each, np.ndarray) else each for each in GIVEN[name]]
    found, expected = getattr(arrays, name)(*own), getattr(tensors, name)(*map(of_torch, GIVEN[name]))
    several = isinstance(found, (list, tuple))
    pairs = zip(found, expected if isinstance(expected, (list, tuple)) else [expected], strict=True)
    for one, other in pairs if several else [(found, expected)]:
        assert one.dtype == np.asarray(other).dtype
        np.testing.assert_allclose(one, np.asarray(other), rtol=1e-5, atol=1e-6)


def listed(found) -> list:
    return found if isinstance(found, list) else [found]


@pytest.mark.parametrize("name", sorted(GIVEN.keys() & vars(Graph).keys() - {"scores"}))
def test_the_same_in_a_graph(name):
    graph, given = Graph(), ([ROWS, OTHER],) if name == "concat" else GIVEN[name]
    feeds = {"rows": ROWS, "other": OTHER}
    rows, other = (graph.input(each, np.float32, ["batch", 8], "") for each in feeds)
    values = {id(ROWS): rows, id(OTHER): other}
    made = [
        [values[id(one)] for one in each] if isinstance(each, list) else values.get(id(each), each)
        for each in given
    ]
    found = listed(getattr(graph, name)(*made))
    for number, each in enumerate(found):
        graph.add("Identity", each, name=f"y{number}")
        graph.output(f"y{number}", np.float32, ["batch", f"n{number}"], "")
    results = InferenceSession(graph.model({}).SerializeToString()).run(None, feeds)
    expected = getattr(tensors, name)(*map(of_torch, given))
    for one, wanted in zip(results, listed(expected), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-5, atol=1e-6)


def test_what_is_not_filled_yet():
    for made in (arrays.empty(3, 2, IDS), tensors.empty(3, 2, torch.from_numpy(IDS)).numpy()):
        assert made.shape == (3, 2)
        assert made.dtype == np.float32


def test_a_cpu_gets_no_more_memory_than_its_cache_has():
    for ops, rows in ((arrays, ROWS), (tensors, torch.from_numpy(ROWS))):
        assert ops.budget(1000, rows) == 1000
        assert ops.budget(None, rows) == ops.budget(1 << 40, rows) == arrays.MEMORY
