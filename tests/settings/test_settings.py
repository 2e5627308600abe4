"""Settings of a network, of training and of a whole run: what they accept, and how they become each other."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from circlet.data.dataset import Dataset, Split
from circlet.errors import ParameterError
from circlet.features import SCALINGS
from circlet.scoring.heads import HEADS
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
from circlet.settings.run import SCHEDULES, ThresholdGoal, all_settings


def small(**changes) -> NetworkSettings:
    return NetworkSettings(**{"dim": 6, "hidden": (8,), **changes})


class TestSettings:
    WRONG = (
        ("head", f"one of {', '.join(HEADS)}", ["CHRR", ["chrr"]]),
        ("loss", "one of cosine, absolute-cosine, bce, mean-bce, softmax", ["mse"]),
        ("codebook", "auto or one of spectral, independent, four-phase, two-phase, holographic", ["random", None]),
        ("slots", "None or an integer >= 1", [0]),
        ("dim", "an integer >= 1", [0, 2.0, "800", True]),
        ("seed", "an integer >= 0", [-1, None]),
        ("hidden", "one or more integers >= 1", [(), (8, 0), (8, 2.5), 768, None, "768"]),
        ("dropout", "at least 0 and below 1", [1.0, -0.1, float("nan"), "half", None]),
        ("epochs", "an integer >= 1", [0, 2.5, "3"]),
        ("batch_size", "an integer >= 1", [0, 0.5, None]),
        ("optimizer", "one of adamw, adam, adadelta, sgd", ["rmsprop"]),
        ("lr", "a number above 0", [0, -1.0, float("nan"), float("inf"), "fast"]),
        ("schedule", "one of one-cycle, constant, step", ["cosine"]),
        ("weight_decay", "at least 0", [-0.1, float("nan"), None]),
        ("input_dropout", "at least 0 and below 1", [1, -0.5, "half"]),
        ("metric", "loss, or like P@1 or nDCG@5", ["F1", "P@0", "P@", "PSP@1", "P@²", "P@٣", 1]),
        ("patience", "None or an integer >= 1", [0, 1.5]),
        ("members", "an integer >= 1", [0, -1, 1.0, "2", None, True]),
        (
            "validation",
            "a share at least 0 and below 1, or a number of rows",
            [-1, -0.1, 1.5, None, "5", True, float("nan"), float("inf"), 5j],
        ),
    )

    @pytest.mark.parametrize(("parameter", "wanted", "values"), WRONG)
    def test_every_parameter_is_checked(self, parameter, wanted, values):
        kinds = (NetworkSettings, TrainingSettings, RunSettings)
        settings: Any = next(each for each in kinds if parameter in vars(each()))
        for value in values:
            with pytest.raises(ParameterError) as caught:
                settings(**{parameter: value})
            assert str(caught.value) == f"`{parameter}`: found {value!r}; wanted {wanted}"

    @pytest.mark.parametrize(
        ("head", "codebook", "choice"),
        [
            ("chrr", "holographic", "auto or spectral or independent or four-phase or two-phase"),
            ("hrr", "spectral", "auto or holographic"),
            ("fc", "spectral", "auto"),
        ],
    )
    def test_a_codebook_that_does_not_fit(self, head, codebook, choice):
        with pytest.raises(ParameterError, match=f"found codebook {codebook} for head {head}; wanted {choice}$"):
            small(head=head, codebook=codebook)

    def test_survive_json(self):
        settings = NetworkSettings(head="hrr", hidden=(4, 3), dropout=0.1, seed=2**40)
        assert NetworkSettings(**json.loads(json.dumps(settings.as_dict()))) == settings

    def test_numpy_numbers_become_plain_ones(self):
        given = small(dim=np.int64(6), hidden=np.array([8]), dropout=np.float32(0.5), seed=np.uint8(1))
        settings = small(dropout=0.5, seed=1)
        assert given == settings
        assert repr(given) == repr(settings)
        json.dumps(given.as_dict())
        numbers = {"epochs": np.int64(2), "lr": np.float32(0.5), "patience": np.uint8(1), "weight_decay": 1}
        plain = TrainingSettings(epochs=2, lr=0.5, patience=1, weight_decay=1.0)
        assert repr(TrainingSettings(**numbers)) == repr(plain)

    def test_lists_become_tuples(self):
        assert small(hidden=[8, 4]).hidden == (8, 4)
        assert hash(small(hidden=[8, 4])) == hash(small(hidden=(8, 4)))

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"encoder": "bert"}, "`encoder`: found 'bert'; wanted one of features, cnn, lstm, transformer"),
            ({"embedding": 8}, "found `embedding` for encoder features, which has none; wanted another encoder"),
            ({"max_words": 8}, "found `max_words` for encoder features, which has none"),
        ],
    )
    def test_encoders(self, given, message):
        with pytest.raises(ParameterError, match=message):
            small(**given)
        assert small().takes_features
        assert small().text_encoder is None


class TestSchedules:
    @pytest.mark.parametrize(
        ("schedule", "rates"), [("constant", [1] * 6), ("step", [1, 1, 0.7, 0.7, 0.49, 0.49])]
    )
    def test_constant_and_multiplied_after_every_epoch(self, schedule, rates):
        chosen = TrainingSettings(schedule=schedule, lr=0.3, epochs=3)
        found = [chosen.rate(step, 10) for step in (0, 9, 10, 19, 20, 29)]
        assert found == pytest.approx([0.3 * rate for rate in rates])

    def test_one_cycle(self):
        chosen = TrainingSettings(schedule="one-cycle", lr=2.0, epochs=10)
        rates = np.array([chosen.rate(step, 10) for step in range(100)])
        assert rates[0] == pytest.approx(0.08)  # a 25th
        assert rates[15] == pytest.approx(2 * (0.04 + 0.96 / 2))  # halfway up
        assert rates[30] == pytest.approx(2.0, rel=1e-4)
        assert rates[65] == pytest.approx(1.0, rel=1e-4)  # halfway down
        assert rates[99] < 0.002
        assert (rates > 0).all()
        assert (np.diff(rates[:31]) > 0).all()
        assert (np.diff(rates[30:]) < 0).all()

    @pytest.mark.parametrize("schedule", SCHEDULES)
    @pytest.mark.parametrize(("epochs", "n_steps"), [(1, 1), (1, 2), (2, 1), (3, 1)])
    def test_the_shortest_runs_have_a_rate(self, schedule, epochs, n_steps):
        chosen = TrainingSettings(schedule=schedule, epochs=epochs)
        rates = [chosen.rate(step, n_steps) for step in range(epochs * n_steps)]
        assert all(0 < rate <= chosen.lr * 1.0001 for rate in rates)


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

    def test_the_papers_preset_decides_everything_and_others_are_refused(self):
        assert RunSettings.from_preset("paper", {}).undecided == frozenset()
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

    def test_seed_and_preset_stay_and_so_does_what_is_decided(self):
        run, _ = RunSettings.from_preset("fast", {}, seed=3).decided(self.FACTS)
        assert (run.network.seed, run.preset) == (3, "fast")
        assert RunSettings().decided(self.FACTS) == (RunSettings(), [])


class TestFlat:
    def test_of_takes_it_back(self):
        given = {"hidden": (8, 4), "char_ngrams": (3, 5), "validation": 40, "lr": 0.5, "dim": "auto"}
        run = RunSettings.of({**given, "scaling": "l2"}, seed=3)
        assert RunSettings.of(run.flat(), seed=3) == run
        assert RunSettings.of({}) == RunSettings()
        assert list(RunSettings().flat()) == RunSettings.names() == list(DEFAULTS)
        assert "seed" not in DEFAULTS


class TestHeldOut:
    def held(self, n: int, validation: float, seed: int = 0) -> list[int] | None:
        found = RunSettings.of({"validation": validation}, seed=seed).held_out(n)
        return None if found is None else found.tolist()

    @pytest.mark.parametrize(
        ("n", "validation", "expected"),
        [
            *((19, 0.5, 0), (20, 0.5, 10), (19, 5, 0)),  # 19 are too few to hold any out
            *((100, 5, 5), (100, 5.0, 5), (100, 99, 99)),  # a command line may say a number of rows as 5.0
            *((100, 0.05, 5), (100, 0.126, 13), (100, 0.004, 0), (100, 0.0, 0), (100, 0, 0)),
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
        message = r"found size 100; wanted a fraction .* or a number of rows from 1 to 99"
        with pytest.raises(ParameterError, match=message):
            self.held(100, 100)

    @pytest.mark.parametrize(
        ("value", "kind"), [(5.0, int), (np.int64(5), int), (np.float32(0.25), float), (0, float)]
    )
    def test_sizes_become_plain_numbers(self, value, kind):
        assert type(RunSettings(validation=value).validation) is kind
        assert type(RunSettings(members=np.int64(2)).members) is int


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
            *(1, None),
        ],
    )
    @pytest.mark.parametrize("read", [ThresholdGoal.of, lambda text: RunSettings.of({"threshold_for": text})])
    def test_others_are_refused(self, read, text):
        with pytest.raises(ParameterError, match=r"`threshold_for` \(--for\): found .*; wanted f1, or precision"):
            read(text)


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
        with pytest.raises(ParameterError, match="`scaling`: found 'log'; wanted auto or one of none, l2, sqrt, "):
            RunSettings(scaling="log")
