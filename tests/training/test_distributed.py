"""Several processes that train together take the steps of one process with the whole batch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tests.training.runs import CtrlC
from torch import Tensor, nn

from circlet.encoders import RowPairs
from circlet.errors import DataError, ParameterError
from circlet.network import Network, NetworkSettings
from circlet.network.encoders import ColumnEntries, Dropout, RowGradient
from circlet.settings import TrainingSettings
from circlet.training import (
    FinalEpoch,
    InterruptedRunError,
    Reporter,
    StepsTaken,
    checkpoint,
    distributed,
    steps,
    train,
)
from circlet.training.distributed import ALONE, LostError, World, join_processes
from circlet.training.loop import mean_loss, measured
from circlet.training.steps import Batches

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
forks = pytest.mark.skipif(sys.platform == "win32", reason="forks")


class Threads:
    """A few threads in place of processes: what each gets from the others is worked out by adding up."""

    def __init__(self, size: int) -> None:
        self.size, self.all = size, threading.Barrier(size, timeout=20)
        self.rank = threading.local()
        self.given: list[Any] = [None] * size

    def exchanged(self, tensor: Tensor) -> list[Tensor]:
        self.given[self.rank.number] = tensor.clone()
        self.all.wait()
        found = list(self.given)
        self.all.wait()
        return found

    def all_reduce(self, tensor: Tensor, async_op: bool = False) -> Any:
        assert tensor.is_contiguous()
        tensor.copy_(torch.stack(self.exchanged(tensor)).sum(dim=0))
        return self

    def wait(self) -> None:
        """All is done already."""

    def all_gather(self, found: list[Tensor], tensor: Tensor) -> None:
        for place, each in zip(found, self.exchanged(tensor), strict=True):
            place.copy_(each)

    def broadcast(self, tensor: Tensor, source: int) -> None:
        tensor.copy_(self.exchanged(tensor)[source])

    def run(self, function: Callable[[World], Any]) -> list[Any]:
        found: list[Any] = [None] * self.size

        def run(rank: int) -> None:
            self.rank.number = rank
            found[rank] = function(World(rank, self.size))

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found


@pytest.fixture
def run_together(monkeypatch) -> Callable[..., list[Any]]:
    """Call a function in each of several worlds, and give what it returned in each."""

    def run(function: Callable[[World], Any], size: int = 2) -> list[Any]:
        threads = Threads(size)
        for name in ("all_reduce", "all_gather", "broadcast"):
            monkeypatch.setattr(dist, name, getattr(threads, name))
        return threads.run(function)

    return run


class TestShare:
    @given(st.integers(0, 300), st.integers(1, 70))
    def test_the_shares_make_up_the_batch(self, n, size):
        shares = [World(rank, size).share(n) for rank in range(size)]
        rows = [row for share in shares if share.weight for row in range(n)[share.rows]]
        assert rows == list(range(n))
        assert sum(share.weight for share in shares) == pytest.approx(float(n > 0))
        lengths = [len(range(n)[share.rows]) for share in shares]
        assert max(lengths) - min(lengths) <= 1
        assert n == 0 or min(lengths) == max(1, n // size)

    def test_fewer_documents_than_processes(self):
        shares = [World(rank, 4).share(2) for rank in range(4)]
        assert [share.weight for share in shares] == [0, 0.5, 0, 0.5]
        assert [share.rows for share in shares] == [slice(0, 1), slice(0, 1), slice(0, 1), slice(1, 2)]

    def test_a_process_alone_has_everything(self):
        assert ALONE.share(7) == (slice(0, 7), 7, 1.0)
        assert ALONE.is_first
        assert ALONE.speaks()
        assert ALONE.sum(1.5, 2) == [1.5, 2]
        assert ALONE.from_first(lambda: {"a": [1]}) == {"a": [1]}


class TestExchange:
    def test_tensors_of_different_lengths_are_gathered(self, run_together):
        found = run_together(lambda world: world.gather(torch.full((world.rank, 2), world.rank)), 3)
        for each in found:
            assert [part.tolist() for part in each] == [[], [[1, 1]], [[2, 2], [2, 2]]]

    def test_what_only_the_first_process_knows(self, run_together):
        known = {"word": "Zürich", "numbers": [1, 2.5, None]}

        def ask(world: World) -> Any:
            return world.from_first(lambda: known if world.is_first else pytest.fail("asked another"))

        assert run_together(ask, 3) == [known] * 3

    def test_tensors_of_the_first_process(self, run_together):
        def ask(world: World) -> dict[str, Tensor]:
            own = {"a": torch.zeros(3, dtype=torch.int64)}  # overwritten
            if world.is_first:
                own = {"a": torch.arange(3), "b": torch.ones(2, 2, dtype=torch.bfloat16)}
            return world.tensors_from_first(own)

        for found in run_together(ask):
            assert torch.equal(found["a"], torch.arange(3))
            assert torch.equal(found["b"], torch.ones(2, 2, dtype=torch.bfloat16))

    def test_a_process_that_is_gone(self, monkeypatch):
        def closed(*_: Any) -> None:
            raise RuntimeError("Connection closed by peer")

        monkeypatch.setattr(dist, "all_reduce", closed)
        with pytest.raises(LostError, match=r"another process ended .* start all again with --resume"):
            World(0, 2).sum(1.0)

    def test_only_one_process_speaks(self):
        store = dist.HashStore()
        assert [World(rank, 3, store).speaks() for rank in range(3)] == [True, False, False]


def row_gradient(rows: list[int], values: list[list[float]]) -> RowGradient:
    """A gradient of these rows: each is the only one that a document of its own has touched."""
    numbers = torch.arange(len(rows))
    entries = ColumnEntries(torch.tensor(rows), numbers, numbers, torch.ones(len(rows)), by_rows=True)
    return RowGradient(entries, torch.tensor(values))


class TestRows:
    #: The rows that each of two processes touched, by hand: 3 is touched by both.
    OWN = (
        row_gradient([1, 3], [[1.0, 2.0], [3.0, 4.0]]),
        row_gradient([0, 3, 7], [[5.0, 6.0], [10.0, 20.0], [7.0, 8.0]]),
    )

    @pytest.mark.parametrize(
        ("device", "backend"), [("cpu", "gloo"), pytest.param("cuda", "nccl", marks=needs_gpu)]
    )
    def test_a_group_of_one_process(self, device, backend):
        """Through gloo and nccl themselves; the latter wants a GPU for each process."""
        dist.init_process_group(f"{device}:{backend}", store=dist.HashStore(), rank=0, world_size=1)
        try:
            weight, world = nn.Parameter(torch.zeros(8, 2, device=device)), World()
            weight.grad = torch.ones(8, 2, device=device)
            world.average_gradients([weight], by_rows=True)
        finally:
            dist.destroy_process_group()
        assert weight.grad.tolist() == [[1, 1]] * 8

    def test_documents_with_several_features_and_columns_without(self, run_together):
        """Three documents, of which the first process has one: it is as if one process had all."""
        X = sp.csr_matrix(np.array([[0, 2, 3, 0], [0, 0, 0, 0], [1, 0, 5, 0]], dtype=np.float32))
        gradient = torch.tensor([[1.0, -1.0], [7.0, 7.0], [10.0, 0.5]])

        def exchange(world: World, exact: bool) -> RowGradient:
            own = slice(0, 1) if world.is_first else slice(1, 3)
            return world.exchange_rows(
                RowGradient(ColumnEntries.of(X[own], by_rows=True, exact=exact), gradient[own])
            )

        for exact in (True, False):
            for found in run_together(lambda world, exact=exact: exchange(world, exact)):
                assert found.rows.tolist() == [0, 1, 2]
                assert found.values().tolist() == [[10, 0.5], [2, -2], [53, -0.5]]
                assert torch.equal(found.whole(torch.Size((4, 2))), torch.from_numpy(X.toarray()).mT @ gradient)

    def test_a_process_that_touched_nothing(self, run_together):
        empty = sp.csr_matrix((1, 8), dtype=np.float32)
        nothing = RowGradient(ColumnEntries.of(empty, by_rows=True, exact=True), torch.ones(1, 2))
        for found in run_together(lambda world: world.exchange_rows((self.OWN[0], nothing)[world.rank])):
            assert found.rows.tolist() == [1, 3]
            assert found.values().tolist() == [[1, 2], [3, 4]]

    def test_bytes_are_those_of_documents(self, run_together):
        def exchange(world: World) -> int:
            world.exchange_rows(self.OWN[world.rank])
            return world.sent

        # Two numbers of documents and of features; 2 units and a feature for each document, of which there are 3
        # with padding.
        assert run_together(exchange) == [2 * 16 + 3 * 8 + 3 * 12] * 2

    @pytest.mark.parametrize("by_rows", [True, False])
    def test_whole_gradients_and_rows_together(self, by_rows, run_together):
        def exchange(world: World) -> tuple[nn.Parameter, ...]:
            first, second, frozen = (nn.Parameter(torch.zeros(8, 2)) for _ in range(3))
            first.row_gradient = self.OWN[world.rank]
            second.grad = torch.full((2, 8), world.rank + 1.0).mT  # not contiguous
            world.average_gradients([first, second, frozen], by_rows=by_rows)
            return first, second, frozen

        for first, second, frozen in run_together(exchange):
            if by_rows:
                assert first.row_gradient.rows.tolist() == [0, 1, 3, 7]
            else:  # an optimizer of whole weights
                assert not hasattr(first, "row_gradient")
                assert first.grad.sum(dim=1).tolist() == [11, 3, 0, 37, 0, 0, 0, 15]
            assert torch.equal(second.grad, torch.full((8, 2), 3.0))
            assert frozen.grad is None


class TestNoise:
    @given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 9))
    def test_dropout_is_that_of_the_whole_batch(self, n, size, width):
        x = torch.ones(n, width)
        whole = Dropout(0.5, torch.Generator().manual_seed(0))(x)
        for rank in range(size):
            share, dropout = World(rank, size).share(n), Dropout(0.5, torch.Generator().manual_seed(0))
            dropout.part = share.rows.start, n
            assert torch.equal(dropout(x[share.rows]), whole[share.rows])

    def test_units_dropped_for_a_batch_are_the_same_in_every_part(self):
        found = []
        for start in (0, 3):
            dropout = Dropout(0.5, torch.Generator().manual_seed(0))
            dropout.by_batch, dropout.part = True, (start, 6)
            found.append(dropout(torch.ones(3, 50)))
        assert torch.equal(*found)

    @pytest.mark.parametrize("kind", ["sparse", "dense", "both"])
    @pytest.mark.parametrize("size", [1, 2, 3, 9])
    def test_input_dropout_is_that_of_the_whole_batch(self, kind, size):
        X = sp.random(29, 12, 0.4, format="csr", dtype=np.float32, random_state=0)
        Y = sp.identity(29, dtype=np.float32, format="csr")
        rows = {"sparse": X, "dense": X.toarray(), "both": RowPairs(X, X.toarray()[:, :5])}[kind]
        chosen = TrainingSettings(batch_size=8, input_dropout=0.4)

        def values_of(batch: Any) -> list[torch.Tensor]:
            parts = [batch.features, batch.texts] if isinstance(batch, RowPairs) else [batch]
            return [part if isinstance(part, torch.Tensor) else part.values for part in parts]

        def batches(world: World) -> list[tuple[Any, Any]]:
            return list(Batches(rows, Y, chosen, 0, None, world).epoch(1, 0))

        parts = [batches(World(rank, size)) for rank in range(size)]
        for step, (whole, labels) in enumerate(batches(ALONE)):
            shares = [World(rank, size).share(len(labels)) for rank in range(size)]
            own = [parts[rank][step] for rank, share in enumerate(shares) if share.weight]
            for part, wanted in enumerate(values_of(whole)):
                assert torch.equal(torch.cat([values_of(x)[part] for x, _ in own]), wanted)
            assert torch.equal(torch.cat([y.ids for _, y in own]), labels.ids)


class TestValidation:
    @pytest.mark.parametrize("metric", ["P@2", "loss"])
    @pytest.mark.parametrize("n", [7, 1])
    def test_all_processes_find_what_one_finds(self, run_together, metric, n):
        X, Y = problem(n, 12)
        network = Network(NetworkSettings(dim=16, hidden=(8,)), 12, 12, sparse=True).eval()
        found = run_together(lambda world: measured(network, X, Y, metric, world))
        (name,) = found[0]
        assert found[0] == found[1]
        assert found[0][name] == pytest.approx(measured(network, X, Y, metric)[name])
        assert metric != "loss" or found[0][name] == pytest.approx(mean_loss(network, X, Y), rel=1e-5)


class TestJoined:
    @pytest.mark.parametrize(
        ("environment", "line"),
        [
            ({"WORLD_SIZE": "two"}, "found WORLD_SIZE 'two' in the environment; wanted a number"),
            ({"WORLD_SIZE": "2"}, "the other processes can't be reached .* wanted to be started by torchrun"),
        ],
    )
    def test_a_process_alone_and_an_environment_without_sense(self, monkeypatch, environment, line):
        for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            monkeypatch.delenv(name, raising=False)
        with join_processes("cpu") as joined:
            assert joined == (ALONE, torch.device("cpu"))
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(ParameterError, match=line), join_processes("cpu"):
            pytest.fail("joined")

    def test_each_process_has_a_gpu_of_its_own(self, monkeypatch):
        monkeypatch.setenv("LOCAL_RANK", "1")
        monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        assert distributed._own_device("auto") == torch.device("cuda:1")
        assert distributed._own_device("cpu") == torch.device("cpu")
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        with pytest.raises(ParameterError, match="found 1 GPUs for 2 processes; wanted one each"):
            distributed._own_device("cuda")
        with pytest.raises(ParameterError, match="found --device cuda:1 for several processes"):
            distributed._own_device("cuda:1")


# Two processes that train together, against one.


def problem(n: int, width: int, seed: int = 0) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Documents of six features each, the first of which is their label."""
    random = np.random.default_rng(seed)
    label = random.integers(0, 12, n)
    columns = np.concatenate([label[:, None], random.integers(12 % width, width, (n, 5))], axis=1)
    rows = np.repeat(np.arange(n), 6)
    X = sp.csr_matrix((random.random(6 * n, dtype=np.float32) + 0.5, (rows, columns.ravel())), (n, width))
    Y = sp.csr_matrix((np.ones(n, dtype=np.float32), (np.arange(n), label)), (n, 12))
    return X, Y


#: Networks and trainings: (features, dense, network, training). A batch of 16 touches few of 600 features.
CASES: dict[str, tuple[int, bool, dict[str, Any], dict[str, Any]]] = {
    "rows": (600, False, {"dropout": 0.3}, {"input_dropout": 0.2}),
    "rows by sgd, units dropped": (600, False, {"dropout": 0.5}, {"first_layer": "sgd", "lr": 1e-4}),
    "whole gradients": (20, False, {"hidden": (24, 16)}, {"weight_decay": 0.01}),
    "dense": (20, True, {"dropout": 0.2}, {"input_dropout": 0.2, "optimizer": "adadelta", "lr": 1.0}),
    "cosine": (600, False, {"loss": "cosine"}, {"optimizer": "sgd"}),
    "softmax": (600, False, {"loss": "softmax"}, {"optimizer": "adam", "metric": "loss", "patience": 2}),
    "few features": (13, False, {"dropout": 0.3}, {"optimizer": "adam", "batch_size": 32}),
    "an output per label": (20, False, {"head": "fc"}, {}),
}


def network_of(case: str) -> Network:
    width, dense, network, _ = CASES[case]
    settings = NetworkSettings(**{"dim": 32, "hidden": (24,), "dropout": 0.0, **network})
    return Network(settings, width, 12, sparse=not dense)


def trained(case: str, world: World, **options: Any) -> tuple[Network, list[dict[str, Any]]]:
    """A network trained on 49 documents in batches of 16: the last one has a single document."""
    width, dense, _, training = CASES[case]
    (X, Y), (held_out, labels) = problem(49, width), problem(9, width, seed=1)
    X, held_out = (X.toarray(), held_out.toarray()) if dense else (X, held_out)
    chosen = {"epochs": 3, "batch_size": 16, "lr": 0.01, "metric": "nDCG@5", "precision": "float32", **training}
    made, given = network_of(case), {"validation": (held_out, labels), **options}
    return made, train(made, X, Y, TrainingSettings(**chosen), world=world, **given)


def joined_by_file(path: Path, rank: int, size: int) -> World:
    """A world over the loopback device, without a port that somebody else could have."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=size)
    return World(rank, size)


@pytest.fixture
def in_processes(forked, waited, tmp_path) -> Callable[..., None]:
    """Call a function in each of several processes of a world."""

    def run(function: Callable[[World], Any], size: int = 2, name: str = "store") -> None:
        def child(rank: int) -> None:
            function(joined_by_file(tmp_path / name, rank, size))

        children = [forked(lambda rank=rank: child(rank)) for rank in range(size)]
        assert [waited(each) for each in children] == [0] * size

    return run


def assert_close(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(
            tensor, other[name], rtol=1e-3, atol=2e-5, msg=lambda text, n=name: f"{n}: {text}"
        )


@forks
class TestTogether:
    def test_two_processes_train_what_one_does(self, in_processes, tmp_path):
        """To rounding; and both have the very same weights."""

        def work(world: World) -> None:
            for case in CASES:
                network, history = trained(case, world)
                numbers = torch.tensor([each["loss"] for each in history])
                save_file({**network.weights(), "losses": numbers}, tmp_path / f"{case} {world.rank}")

        in_processes(work)
        for case in CASES:
            both = [load_file(tmp_path / f"{case} {rank}") for rank in range(2)]
            assert all(torch.equal(tensor, both[1][name]) for name, tensor in both[0].items()), case
            alone, history = trained(case, ALONE)
            losses = both[0].pop("losses").tolist()
            assert losses == pytest.approx([each["loss"] for each in history], rel=1e-4), case
            assert_close(both[0], dict(alone.weights()))
            untrained = network_of(case).weights()
            moved = max(float((both[0][name] - each).abs().max()) for name, each in untrained.items())
            assert moved > 1e-3, case

    def test_three_processes_and_rows_that_join(self, in_processes, tmp_path):
        held_out = np.arange(0, 49, 8)
        X, Y = problem(49, 600)
        options = {
            "final": FinalEpoch(held_out, lambda: {"calibration": [1.0, 0.0]}),
            "validation": (X[held_out], Y[held_out]),
        }

        def work(world: World) -> None:
            network, _ = trained("rows", world, **options)
            if world.is_first:
                save_file(network.weights(), tmp_path / "weights")

        in_processes(work, 3)
        assert_close(load_file(tmp_path / "weights"), dict(trained("rows", ALONE, **options)[0].weights()))

    def test_a_run_goes_on_with_another_number_of_processes(self, in_processes, tmp_path):
        whole, history = trained("rows", ALONE)

        def interrupted(world: World) -> None:
            """By Ctrl-C in the second process only, in the second step of the second epoch."""
            reporter = CtrlC(0 if world.is_first else 6)
            with pytest.raises(InterruptedRunError):
                trained("rows", world, folder=tmp_path / "run", reporter=reporter)

        in_processes(interrupted, 2)
        assert [path.name for path in (tmp_path / "run").iterdir()] == ["checkpoint.safetensors"]

        def resumed(world: World) -> None:
            # The others see no folder, as on other machines.
            folder = tmp_path / ("run" if world.is_first else "none")
            network, records = trained("rows", world, folder=folder, resume=True)
            assert not (tmp_path / "none").exists()
            assert [each["loss"] for each in records] == pytest.approx(
                [each["loss"] for each in history], rel=1e-4
            )
            assert [each["nDCG@5"] for each in records] == pytest.approx([each["nDCG@5"] for each in history])
            if world.is_first:
                save_file(network.weights(), tmp_path / "weights")

        in_processes(resumed, 3, "again")
        assert_close(load_file(tmp_path / "weights"), dict(whole.weights()))

    def test_all_wait_until_the_checkpoint_is_written(self, in_processes, monkeypatch, tmp_path):
        """When one process has ended, torchrun kills those that take longer."""
        save = checkpoint.save

        def save_slowly(*state: Any) -> None:
            time.sleep(0.5)
            save(*state)

        class Interrupt(Reporter):
            def step(self, taken: StepsTaken) -> None:
                os.kill(os.getpid(), signal.SIGTERM)

        def interrupted(world: World) -> None:
            with pytest.raises(InterruptedRunError):
                trained("rows", world, folder=tmp_path / "run", reporter=Interrupt())
            assert (tmp_path / "run" / "checkpoint.safetensors").exists()

        monkeypatch.setattr(checkpoint, "save", save_slowly)
        in_processes(interrupted)

    def test_processes_with_other_documents_are_refused(self, in_processes):
        def work(world: World) -> None:
            X, Y = problem(49, 600, seed=world.rank)
            network = Network(NetworkSettings(dim=32, hidden=(24,)), 600, 12, sparse=True)
            with pytest.raises(DataError, match="process 1 of 2 has documents, labels or settings that differ"):
                train(network, X, Y, TrainingSettings(epochs=1), world=world)

        in_processes(work)


def train_all(rank: int, folder: str) -> None:
    """What each of two processes does that compute on the same GPU."""
    world = joined_by_file(Path(folder) / "store", rank, 2)
    for case in CASES:
        network, _ = trained(case, world, device=torch.device("cuda"))
        weights = {name: tensor.cpu() for name, tensor in network.weights().items()}
        save_file(weights, Path(folder) / f"{case} {rank}")
    dist.destroy_process_group()


@pytest.mark.slow
@needs_gpu
def test_two_processes_on_one_gpu_train_what_one_does(tmp_path, monkeypatch):
    """Through gloo, even on a GPU: nccl wants one for each. A process that uses one can't be forked."""
    # Recorded steps draw other random numbers, and are for one process only.
    monkeypatch.setattr(steps, "recordable", lambda *_: False)
    root = Path(__file__).parents[2]
    code = "from tests.training.test_distributed import train_all; train_all({}, {!r})"
    children = [
        subprocess.Popen([sys.executable, "-c", code.format(rank, str(tmp_path))], cwd=root) for rank in range(2)
    ]
    assert [child.wait(timeout=300) for child in children] == [0, 0]
    for case in CASES:
        both = [load_file(tmp_path / f"{case} {rank}") for rank in range(2)]
        assert all(torch.equal(tensor, both[1][name]) for name, tensor in both[0].items()), case
        alone, _ = trained(case, ALONE, device=torch.device("cuda"))
        assert_close(both[0], {name: tensor.cpu() for name, tensor in alone.weights().items()})
