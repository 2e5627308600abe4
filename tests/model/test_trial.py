from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from circlet.data.synthetic import make_multilabel
from circlet.features.rows import Scaling
from circlet.model import trial
from circlet.settings import Decision, NetworkSettings, RunSettings, TrainingSettings

pytestmark = pytest.mark.usefixtures("one_thread")

N, JUDGED = 300, 80
MADE = make_multilabel(N, 120, 20, seed=0, n_test=JUDGED, labels_per_row=2, words_per_row=15)
ROWS, Y = Scaling("sqrt").fit(MADE.train.X).transform(MADE.train.X), MADE.train.Y
NEW = Scaling("sqrt").fit(MADE.train.X).transform(MADE.test.X), MADE.test.Y
SETTINGS = RunSettings(NetworkSettings(dim=32, hidden=(24,)))


@pytest.fixture(autouse=True)
def short(monkeypatch) -> None:
    monkeypatch.setattr(trial, "MOST_ROWS", 200)
    monkeypatch.setattr(trial, "SHORT", TrainingSettings(epochs=2, batch_size=32, lr=0.01))


def try_out(settings: RunSettings = SETTINGS, **changes: Any) -> Decision:
    given = {"rows": ROWS, "Y": Y, "learned": np.arange(N), "evaluated": NEW, **changes}
    return trial.first_layer(**given, settings=settings, device=None)


def timeless(decision: Decision) -> Decision:
    why, times = re.subn(r"which took [0-9.]+ s: ", "", decision.why)
    assert times == 1
    return replace(decision, why=why)


def numbers(decision: Decision) -> tuple[int, float, float]:
    """Rows, and nDCG@5 of SGD and of the other, in percent."""
    found = re.fullmatch(
        r"nDCG@5 of a trial on ([0-9,]+) rows, which took [0-9.]+ s: SGD ([0-9.]+), [a-z]+ ([0-9.]+)", decision.why
    )
    return int(found[1].replace(",", "")), float(found[2]), float(found[3])


class TestFirstLayer:
    def test_it_is_one_of_the_two(self):
        found = try_out()
        assert (found.name, found.tried) == ("first_layer", True)
        rows, sgd, same = numbers(found)
        assert rows == 200
        assert 0 < sgd < 100
        assert 0 < same < 100
        assert sgd != same
        assert found.value == ("sgd" if sgd > same else "same")

    def test_settings_take_it(self):
        found = try_out()
        assert SETTINGS.with_values({found.name: found.value}).training.first_layer == found.value

    def test_the_seed_determines_it(self):
        torch.manual_seed(1)
        one = try_out()
        torch.manual_seed(2)
        np.random.default_rng().random()
        assert timeless(try_out()) == timeless(one)
        other = try_out(replace(SETTINGS, network=replace(SETTINGS.network, seed=1)))
        assert timeless(other).why != timeless(one).why

    @pytest.mark.parametrize(("sgd", "same", "best"), [(0.5, 0.4, "sgd"), (0.4, 0.5, "same"), (0.5, 0.5, "sgd")])
    def test_the_better_one_is_chosen(self, sgd, same, best, monkeypatch):
        script = iter([sgd, same])
        monkeypatch.setattr(trial, "evaluate", lambda *_, **__: {"nDCG@5": next(script)})
        found = try_out()
        assert found.value == best
        assert numbers(found)[1:] == (100 * sgd, 100 * same)

    def test_each_is_trained_in_its_turn(self, monkeypatch):
        trained = []
        train = trial.train

        def watch(network: Any, X: Any, Y: Any, settings: TrainingSettings, **options: Any) -> Any:
            trained.append((X.shape[0], settings.first_layer, network.settings.seed))
            return train(network, X, Y, settings, **options)

        monkeypatch.setattr(trial, "train", watch)
        try_out()
        assert trained == [(200, "sgd", 0), (200, "same", 0)]


class TestRows:
    def test_only_those_that_may_be_learned_are(self):
        # Any of the others would make the loss NaN.
        learned = np.arange(0, N, 2)
        spoiled = ROWS.copy()
        spoiled.data[np.repeat(np.arange(N) % 2 == 1, np.diff(spoiled.indptr))] = np.nan
        found = try_out(rows=spoiled, learned=learned)
        assert timeless(found) == timeless(try_out(learned=learned))
        assert numbers(found)[0] == len(learned)

    def test_no_more_than_needed(self, monkeypatch):
        monkeypatch.setattr(trial, "MOST_ROWS", 70)
        assert numbers(try_out())[0] == 70
        monkeypatch.setattr(trial, "MOST_ROWS", 10 * N)
        assert numbers(try_out())[0] == N

    def test_the_given_rows_stay_as_they_are(self):
        before = [matrix.copy() for matrix in (ROWS, Y, *NEW)]
        try_out()
        for matrix, copied in zip((ROWS, Y, *NEW), before, strict=True):
            np.testing.assert_array_equal(matrix.toarray(), copied.toarray())

    @pytest.mark.parametrize("n", [1, 7, JUDGED])
    def test_fewer_rows_to_judge_by(self, n):
        found = try_out(evaluated=(NEW[0][:n], NEW[1][:n]))
        assert found.value in ("sgd", "same")
        _, sgd, same = numbers(found)
        assert 0 <= sgd <= 100
        assert 0 <= same <= 100

    def test_more_rows_to_judge_by_than_needed(self, monkeypatch):
        monkeypatch.setattr(trial, "MOST_RANKED", 30)
        assert timeless(try_out()) == timeless(try_out(evaluated=(NEW[0][:30], NEW[1][:30])))

    def test_fewer_labels_than_are_ranked(self):
        few = sp.csr_matrix(Y[:, :3]), sp.csr_matrix(NEW[1][:, :3])
        assert try_out(Y=few[0], evaluated=(NEW[0], few[1])).value in ("sgd", "same")

    def test_rows_scaled_when_they_are_taken(self, tmp_path):
        scaling = Scaling("sqrt").fit(MADE.train.X)

        class Later:
            """Like rows in a file, which are scaled block by block."""

            shape = MADE.train.X.shape

            def __getitem__(self, which: Any) -> sp.csr_matrix:
                return scaling.transform(MADE.train.X[which])

        assert timeless(try_out(rows=Later())) == timeless(try_out())


class TestNetworks:
    @pytest.mark.parametrize(
        "network",
        [
            NetworkSettings(head="fc", hidden=(24,)),
            NetworkSettings(head="hrr", dim=32, hidden=(24, 16), loss="cosine"),
            NetworkSettings(dim=32, hidden=(24,), slots=40, dropout=0.9),
            NetworkSettings(dim=32, hidden=(24,), loss="softmax"),
        ],
        ids=["fc", "hrr", "slots", "softmax"],
    )
    def test_every_kind_can_be_tried(self, network):
        assert try_out(RunSettings(network)).value in ("sgd", "same")

    def test_they_are_small_and_of_the_same_kind(self, monkeypatch):
        made = []
        network = trial.Network

        def watch(settings: NetworkSettings, *shape: Any, **options: Any) -> Any:
            made.append(settings)
            return network(settings, *shape, **options)

        monkeypatch.setattr(trial, "Network", watch)
        monkeypatch.setattr(trial, "WIDTH", 10)
        monkeypatch.setattr(trial, "DIM", 16)
        large = NetworkSettings(head="chrr", dim=5000, hidden=(4096, 6), loss="cosine", slots=9000, seed=4)
        try_out(RunSettings(large))
        small = NetworkSettings(head="chrr", dim=16, hidden=(10, 6), loss="cosine", dropout=0.0, seed=4)
        assert made == [small, small]
