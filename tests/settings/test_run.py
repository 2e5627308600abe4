from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from circlet.data.dataset import Dataset, Split
from circlet.errors import ParameterError
from circlet.features import SCALINGS
from circlet.settings import (
    DEFAULTS,
    EFFORTS,
    Facts,
    NetworkSettings,
    RunSettings,
    TextSettings,
    TrainingSettings,
)
from circlet.settings.auto import DECIDABLE
from circlet.settings.network import AUTO, shown
from circlet.settings.run import ThresholdGoal, all_settings


def dataset(n: int) -> Dataset:
    """Row i has the feature i."""
    return Dataset("rows", Split(sp.identity(n, dtype=np.float32, format="csr"), sp.csr_matrix(np.ones((n, 2)))))


class TestOf:
    def test_settings_find_their_part_by_name(self):
        text, whole = {"min_df": 3, "word_ngrams": (1, 2)}, {"scaling": "l2", "validation": 0.5, "members": 3}
        given = {"head": "hrr", "hidden": (8,), "epochs": 2, **text, **whole}
        assert RunSettings.of(given, seed=7) == RunSettings(
            NetworkSettings(head="hrr", hidden=(8,), seed=7),
            TrainingSettings(epochs=2),
            TextSettings(**text),
            **whole,
        )

    def test_nothing_given_is_all_defaults(self):
        assert RunSettings.of({}) == RunSettings()

    def test_none_is_a_value(self):
        given = {"word_ngrams": None, "char_ngrams": [2, 3], "patience": None}
        assert RunSettings.of(given).text == TextSettings(word_ngrams=None, char_ngrams=(2, 3))

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ({"word_ngrams": None}, "found None for both"),
            ({"char_ngrams": (3, 2)}, r"`char_ngrams`: found .*; wanted \(shortest, longest\)"),
            ({"min_df": 0}, "`min_df`: found 0; wanted an integer >= 1 or a fraction below 1"),
            ({"max_features": 0}, "`max_features`: found 0; wanted an integer >= 1 or None"),
        ],
    )
    def test_text_that_would_have_no_features_is_refused(self, text, message):
        with pytest.raises(ParameterError, match=message):
            TextSettings(**text)

    @pytest.mark.parametrize("name", ["depth", "seed", "network", "device"])
    def test_an_unknown_name_is_refused(self, name):
        with pytest.raises(ParameterError, match=rf"found unknown settings \['{name}'\]; wanted some of head, "):
            RunSettings.of({name: 1, "dim": 8})

    def test_parts_check_their_values(self):
        with pytest.raises(ParameterError, match="`dim`: found 0; wanted an integer >= 1"):
            RunSettings.of({"dim": 0})


class TestFromPreset:
    def test_given_settings_replace_the_presets(self):
        run = RunSettings.from_preset("paper", {"epochs": 3, "hidden": (16, 16)}, seed=1)
        assert (run.training.epochs, run.network.hidden, run.network.seed) == (3, (16, 16), 1)
        assert (run.training.optimizer, run.network.loss, run.scaling) == ("adadelta", "cosine", "l2")

    def test_none_is_not_given(self):
        assert RunSettings.from_preset("accurate", {"epochs": None, "dim": None}).flat() == DEFAULTS

    @pytest.mark.parametrize("preset", EFFORTS)
    def test_what_nobody_says_is_undecided(self, preset):
        run = RunSettings.from_preset(preset, {"dim": 8, "dropout": 0.0})
        assert run.undecided == set(DECIDABLE) - {"dim", "dropout"}
        assert (run.network.dim, run.network.dropout, run.preset) == (8, 0.0, preset)

    def test_the_papers_preset_decides_everything(self):
        assert RunSettings.from_preset("paper", {}).undecided == frozenset()

    def test_an_unknown_preset(self):
        message = "`preset`: found 'slow'; wanted one of fast, default, accurate, paper, authors"
        with pytest.raises(ParameterError, match=message):
            RunSettings.from_preset("slow", {})


class TestDecided:
    FACTS = Facts(documents=5000, labels=300, texts=False, sparse=True)

    def test_only_what_is_undecided(self):
        run, decisions = RunSettings.of({"dim": "auto", "epochs": 7, "scaling": "auto"}).decided(self.FACTS)
        assert [each.name for each in decisions] == ["scaling", "dim"]
        assert (run.undecided, run.training.epochs, run.scaling) == (frozenset(), 7, "sqrt")
        assert run.network.dim == decisions[1].value

    def test_seed_and_preset_stay(self):
        run, _ = RunSettings.from_preset("fast", {}, seed=3).decided(self.FACTS)
        assert (run.network.seed, run.preset) == (3, "fast")

    def test_nothing_to_decide(self):
        assert RunSettings().decided(self.FACTS) == (RunSettings(), [])


class TestFlat:
    def test_of_takes_it_back(self):
        given = {"hidden": (8, 4), "char_ngrams": (3, 5), "validation": 40, "lr": 0.5, "dim": "auto"}
        run = RunSettings.of({**given, "scaling": "l2"}, seed=3)
        assert RunSettings.of(run.flat(), seed=3) == run

    def test_all_names_and_no_seed(self):
        assert list(RunSettings().flat()) == RunSettings.names() == list(DEFAULTS)
        assert "seed" not in DEFAULTS

    def test_parts_can_be_replaced(self):
        run = replace(RunSettings(), training=TrainingSettings(epochs=1))
        assert run == RunSettings.of({"epochs": 1})


class TestHeldOut:
    def held(self, n: int, validation: float, seed: int = 0) -> list[int] | None:
        found = RunSettings.of({"validation": validation}, seed=seed).held_out(n)
        return None if found is None else found.tolist()

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
        held_out = self.held(n, validation)
        if not expected:
            assert held_out is None
        else:
            assert len(held_out) == expected
            assert sorted(set(held_out)) == held_out
            assert set(held_out) <= set(range(n))

    def test_they_are_those_of_a_dataset(self):
        _, held_out = dataset(100).validation_split(10, seed=3)
        assert held_out.X.indices.tolist() == self.held(100, 10, seed=3)

    def test_the_seed_decides_which(self):
        assert self.held(100, 10) == self.held(100, 10)
        assert self.held(100, 10) != self.held(100, 10, seed=1)

    def test_more_rows_than_there_are(self):
        with pytest.raises(
            ParameterError, match=r"found size 100; wanted a fraction .* or a number of rows from 1 to 99"
        ):
            self.held(100, 100)

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
        one, many = (RunSettings.of({"members": n, "validation": 5}, seed=3).held_out(40) for n in (1, 3))
        assert one.tolist() == many.tolist()

    def test_numbers_become_plain(self):
        assert type(RunSettings(members=np.int64(2)).members) is int


class TestDefaults:
    def test_what_can_be_decided_is_open(self):
        left_open = {name for name, value in DEFAULTS.items() if value == "auto"}
        assert left_open == {*DECIDABLE, "codebook", "precision"}

    def test_held_out_rows_join(self):
        assert RunSettings.from_preset("default", {}).has_final_epoch
        assert not RunSettings().has_final_epoch
        assert not RunSettings.of({"join": True, "patience": 3}).has_final_epoch  # they decide when to stop
        assert not RunSettings.of({"join": True, "loss": "softmax"}).has_final_epoch  # its scores would drift


class TestThresholdGoal:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [("f1", ("f1", None)), ("precision=0.9", ("precision", 0.9)), ("recall=1", ("recall", 1.0))],
    )
    def test_goals(self, text, expected):
        assert ThresholdGoal.of(text) == expected

    @pytest.mark.parametrize(
        "text",
        [
            *("", "F1", "f1=0.5", "precision", "precision=", "precision=0", "recall=1.1", "recall=nan", "x=0.5"),
            *(None, 1),
        ],
    )
    def test_others_are_refused(self, text):
        with pytest.raises(ParameterError, match=r"`threshold_for` \(--for\): found .*; wanted f1, or precision"):
            ThresholdGoal.of(text)
        with pytest.raises(ParameterError, match=r"`threshold_for` \(--for\): found .*; wanted f1"):
            RunSettings.of({"threshold_for": text})


class TestFields:
    """What a field says of its setting."""

    def test_both_defaults_are_valid_and_can_be_said_in_words(self):
        plain = RunSettings().flat()
        for name, each in all_settings().items():
            for value in (plain[name], each.usual):
                if value != AUTO:
                    assert each.kind.checked(name, value) == value
                    assert value is None or each.kind.read(shown(value)) == value

    def test_each_has_a_line_of_help(self):
        for name, each in all_settings().items():
            assert each.help[0].isupper(), name
            assert len(each.help) <= 80, name
            assert each.help.endswith((".", "…")) != bool(each.kind.choices), name  # choices follow

    def test_the_names_of_scalings_are_those_of_features(self):
        assert set(all_settings()["scaling"].kind.names) == set(SCALINGS)
        with pytest.raises(
            ParameterError, match=r"`scaling`: found 'log'; wanted auto or one of none, l2, sqrt, .*"
        ):
            RunSettings(scaling="log")
