from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from circlet import CircletClassifier
from circlet.data.dataset import Dataset, Split
from circlet.errors import ParameterError
from circlet.settings import DEFAULTS, NetworkSettings, RunSettings, TextSettings, TrainingSettings


def dataset(n: int) -> Dataset:
    """Row i has the feature i."""
    return Dataset("rows", Split(sp.identity(n, dtype=np.float32, format="csr"), sp.csr_matrix(np.ones((n, 2)))))


class TestOf:
    def test_settings_find_their_part_by_name(self):
        given = {
            "head": "hrr",
            "hidden": (8,),
            "epochs": 2,
            "min_df": 3,
            "word_ngrams": (1, 2),
            "scaling": "l2",
            "validation": 0.5,
            "members": 3,
        }
        assert RunSettings.of(given, seed=7) == RunSettings(
            NetworkSettings(head="hrr", hidden=(8,), seed=7),
            TrainingSettings(epochs=2),
            TextSettings(min_df=3, word_ngrams=(1, 2)),
            scaling="l2",
            validation=0.5,
            members=3,
        )

    def test_nothing_given_is_all_defaults(self):
        assert RunSettings.of({}) == RunSettings()

    def test_none_is_a_value(self):
        assert RunSettings.of({"word_ngrams": None, "patience": None}).text.word_ngrams is None

    @pytest.mark.parametrize("name", ["depth", "seed", "network", "device"])
    def test_an_unknown_name_is_refused(self, name):
        with pytest.raises(ParameterError, match=rf"unknown settings \['{name}'\]; wanted some of head, dim, "):
            RunSettings.of({name: 1, "dim": 8})

    def test_parts_check_their_values(self):
        with pytest.raises(ParameterError, match="`dim` must be an integer >= 1, got 0"):
            RunSettings.of({"dim": 0})


class TestFromPreset:
    def test_given_settings_replace_the_presets(self):
        run = RunSettings.from_preset("paper", {"epochs": 3, "hidden": (16, 16)}, seed=1)
        assert (run.training.epochs, run.network.hidden, run.network.seed) == (3, (16, 16), 1)
        assert (run.training.optimizer, run.network.loss, run.scaling) == ("adadelta", "cosine", "l2")

    def test_none_is_not_given(self):
        assert RunSettings.from_preset("accurate", {"epochs": None, "dim": None}).flat() == {
            **DEFAULTS,
            "hidden": (2048,),
            "dropout": 0.8,
            "epochs": 60,
        }

    def test_the_default_preset_changes_nothing(self):
        assert RunSettings.from_preset("default", {}) == RunSettings()

    def test_an_unknown_preset(self):
        with pytest.raises(ParameterError, match="`preset` must be one of default, accurate, paper, got 'fast'"):
            RunSettings.from_preset("fast", {})


class TestFlat:
    def test_of_takes_it_back(self):
        run = RunSettings.of({"hidden": (8, 4), "char_ngrams": (3, 5), "validation": 40, "lr": 0.5}, seed=3)
        assert RunSettings.of(run.flat(), seed=3) == run

    def test_all_names_and_no_seed(self):
        assert list(RunSettings().flat()) == RunSettings.names() == list(DEFAULTS)
        assert "seed" not in DEFAULTS

    def test_parts_can_be_replaced(self):
        run = replace(RunSettings(), training=TrainingSettings(epochs=1))
        assert run == RunSettings.of({"epochs": 1})


class TestHoldOut:
    def held(self, n: int, validation: float, seed: int = 0) -> tuple[list[int], list[int]]:
        learned, held_out = RunSettings.of({"validation": validation}, seed=seed).hold_out(dataset(n))
        return learned.X.indices.tolist(), [] if held_out is None else held_out.X.indices.tolist()

    @pytest.mark.parametrize(
        ("n", "validation", "expected"),
        [
            (19, 0.5, 0),  # too few to hold any out
            (20, 0.5, 10),
            (19, 5, 0),
            (100, 5, 5),
            (100, 5.0, 5),  # a number of rows, as a command line may have it
            (100, 0.05, 5),
            (100, 0.126, 13),
            (100, 0.004, 0),  # less than half a row
            (100, 0, 0),
            (100, 0.0, 0),
            (100, 99, 99),
        ],
    )
    def test_how_many(self, n, validation, expected):
        learned, held_out = self.held(n, validation)
        assert len(held_out) == expected
        assert sorted(learned + held_out) == list(range(n))

    def test_none_held_out_is_none(self):
        whole = dataset(30)
        learned, held_out = RunSettings(validation=0).hold_out(whole)
        assert learned is whole.train
        assert held_out is None

    def test_the_seed_decides_which(self):
        assert self.held(100, 10) == self.held(100, 10)
        assert self.held(100, 10) != self.held(100, 10, seed=1)

    def test_more_rows_than_there_are(self):
        with pytest.raises(
            ParameterError, match=r"size is 100; wanted a fraction .* or a number of rows from 1 to 99"
        ):
            self.held(100, 100)

    @pytest.mark.parametrize("value", [-1, -0.1, 1.5, None, "5", True, float("nan"), float("inf"), 5j])
    def test_bad_sizes(self, value):
        with pytest.raises(ParameterError) as caught:
            RunSettings(validation=value)
        wanted = "`validation` must be a share at least 0 and below 1, or a number of rows, got "
        assert str(caught.value) == f"{wanted}{value!r}"

    @pytest.mark.parametrize(
        ("value", "kind"), [(5.0, int), (np.int64(5), int), (np.float32(0.25), float), (0, float)]
    )
    def test_sizes_become_plain_numbers(self, value, kind):
        assert type(RunSettings(validation=value).validation) is kind


class TestMembers:
    def test_they_differ_only_in_the_seed(self):
        run = RunSettings.of({"dim": 8, "members": 3}, seed=7)
        first, *others = run.networks()
        assert first is run.network
        assert [replace(each, seed=7) for each in others] == [first, first]

    @pytest.mark.parametrize("seed", [0, 1, 2**63, 10**40])
    def test_more_members_leave_the_seeds_of_the_others(self, seed):
        few, many = (RunSettings.of({"members": n}, seed=seed).networks() for n in (2, 5))
        assert many[:2] == few
        assert len({each.seed for each in many}) == 5

    def test_runs_of_other_seeds_share_no_member(self):
        seeds = [each.seed for seed in range(50) for each in RunSettings.of({"members": 4}, seed=seed).networks()]
        assert len(set(seeds)) == 200

    def test_the_same_rows_are_held_out_whatever_their_number(self):
        one, many = (RunSettings.of({"members": n, "validation": 5}, seed=3).hold_out(dataset(40)) for n in (1, 3))
        assert one[1].X.indices.tolist() == many[1].X.indices.tolist()

    @pytest.mark.parametrize("value", [0, -1, 1.0, "2", None, True])
    def test_bad_numbers(self, value):
        with pytest.raises(ParameterError) as caught:
            RunSettings(members=value)
        assert str(caught.value) == f"`members` must be an integer >= 1, got {value!r}"

    def test_numbers_become_plain(self):
        assert type(RunSettings(members=np.int64(2)).members) is int


class TestDefaults:
    def test_the_estimator_has_the_same(self):
        signature = inspect.signature(CircletClassifier).parameters
        assert {name: signature[name].default for name in DEFAULTS} == DEFAULTS
        assert set(signature) - set(DEFAULTS) == {
            *("threshold", "top_k", "encoder", "device", "random_state", "verbose"),
        }

    def test_the_parts_have_the_same(self):
        for part in (NetworkSettings(), TrainingSettings(), TextSettings()):
            named = {name: value for name, value in vars(part).items() if name != "seed"}
            assert named == {name: DEFAULTS[name] for name in named}


def test_settings_import_no_torch():
    code = "import sys, circlet.settings; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
