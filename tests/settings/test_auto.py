from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from circlet.settings import Decision, Facts, RunSettings
from circlet.settings.auto import (
    ALL_EPOCHS,
    DECIDABLE,
    DIM,
    EFFORTS,
    FEW_SHOT_DIM,
    FEW_TEXTS,
    MANY,
    MANY_DOCUMENTS,
    MORE_FEATURES,
    SMALL_BATCHES,
    VERY_MANY,
    by_rule,
    effort_of,
)

ALL = frozenset(DECIDABLE)
#: (texts, sparse) of texts, sparse rows and dense rows.
KINDS = {"texts": (True, True), "sparse": (False, True), "dense": (False, False)}

presets = st.sampled_from(sorted(EFFORTS))
kinds = st.sampled_from(sorted(KINDS))
counts = st.one_of(st.integers(1, 100), st.integers(1, 40_000), st.integers(1, 10**7))
label_counts = st.one_of(st.integers(1, 2000), st.integers(1, 10**6))


def facts(documents: int = 1000, labels: int = 100, kind: str = "sparse") -> Facts:
    return Facts(documents, labels, *KINDS[kind])


def decide(preset: str, documents: int = 1000, labels: int = 100, kind: str = "sparse") -> dict[str, Any]:
    """All decisions by name."""
    return {each.name: each.value for each in by_rule(preset, ALL, facts(documents, labels, kind))}


class TestByRule:
    @given(preset=presets, names=st.sets(st.sampled_from(DECIDABLE)), n=counts, labels=label_counts, kind=kinds)
    def test_decides_what_is_asked_whatever_else_is(self, preset, names, n, labels, kind):
        known = {each.name: each for each in by_rule(preset, ALL, facts(n, labels, kind))}
        # Other settings are decided by nobody.
        found = by_rule(preset, frozenset(names) | {"optimizer", "members"}, facts(n, labels, kind))
        assert found == [known[name] for name in DECIDABLE if name in names]
        assert all(each.why and not each.tried for each in found)

    @given(preset=presets, n=counts, labels=label_counts, kind=kinds)
    def test_every_decision_is_a_value_that_settings_take(self, preset, n, labels, kind):
        left_open = RunSettings.from_preset(preset, {})
        assert left_open.undecided == ALL
        settings, decisions = left_open.decided(facts(n, labels, kind))
        assert settings.undecided == frozenset()
        assert {each.name: settings.flat()[each.name] for each in decisions} == decide(preset, n, labels, kind)

    @pytest.mark.parametrize("preset", [*EFFORTS, "paper", "another"])
    def test_a_preset_without_effort_decides_as_the_default_does(self, preset):
        known = preset if preset in EFFORTS else "default"
        assert effort_of(preset) is EFFORTS[known]
        assert by_rule(preset, ALL, facts()) == by_rule(known, ALL, facts())


class TestHeldOutRows:
    @given(preset=presets, n=st.one_of(st.integers(1, 19), counts), kind=kinds)
    def test_few_documents_hold_out_none_and_others_some_but_not_most(self, preset, n, kind):
        size = decide(preset, n, kind=kind)["validation"]
        assert isinstance(size, int)
        assert size == 0 if n < 20 else 1 <= size <= n / 2

    @given(preset=presets, n=st.integers(1, 3000))
    def test_as_many_as_decided_are_held_out(self, preset, n):
        settings, _ = RunSettings.from_preset(preset, {}).decided(facts(n))
        held_out = settings.held_out(n)
        assert (0 if held_out is None else len(held_out)) == settings.validation

    @given(preset=presets, some=counts, more=counts)
    def test_more_documents_hold_out_no_fewer(self, preset, some, more):
        (some, more), enough = sorted((some, more)), EFFORTS[preset].calibration_run
        assume((some <= enough) == (more <= enough))  # few can spare more, as they are not missed
        assert decide(preset, some)["validation"] <= decide(preset, more)["validation"]


class TestDim:
    @given(preset=presets, documents=st.tuples(counts, counts), labels=st.tuples(label_counts, label_counts))
    def test_grows_with_documents_and_labels(self, preset, documents, labels):
        (some, more), (few, many) = sorted(documents), sorted(labels)
        assert decide(preset, some, few)["dim"] <= decide(preset, more, many)["dim"]

    @pytest.mark.parametrize("preset", sorted(EFFORTS))
    def test_grows_above_a_product(self, preset):
        labels = 10**6
        below, above = (decide(preset, n, labels)["dim"] for n in (math.floor(MANY / labels), 10**6))
        assert below < above

    @given(preset=presets, n=counts, labels=st.integers(DIM, 10**6))
    def test_many_labels_have_at_most_half_of_their_number(self, preset, n, labels):
        dim = decide(preset, n, labels)["dim"]
        assert dim % 10 == 0
        assert DIM <= dim <= max(DIM, labels / 2) + 5  # rounded to tens

    @given(preset=presets, n=counts, labels=st.integers(1, DIM // 2))
    def test_few_labels_have_a_few_more_than_their_number(self, preset, n, labels):
        dim = decide(preset, n, labels)["dim"]
        assert labels < dim <= max(DIM / 10, 1.5 * labels)
        assert dim == decide(preset, 1, labels)["dim"]  # whatever the documents


class TestEpochs:
    @given(preset=presets, some=st.integers(ALL_EPOCHS, 10**7), more=st.integers(ALL_EPOCHS, 10**7))
    def test_many_documents_do_not_need_more(self, preset, some, more):
        some, more = sorted((some, more))
        assert decide(preset, more)["epochs"] <= decide(preset, some)["epochs"] <= EFFORTS[preset].epochs

    @given(preset=presets, n=counts)
    def test_never_so_few_that_held_out_rows_could_not_join(self, preset, n):
        settings, _ = RunSettings.from_preset(preset, {}).decided(facts(n))
        assert settings.training.epochs >= EFFORTS[preset].fewest
        assert settings.has_final_epoch

    @given(preset=presets, n=st.one_of(st.integers(1, 500), st.integers(1, ALL_EPOCHS)), kind=kinds)
    def test_few_documents_make_enough_steps_or_as_many_as_are_bearable(self, preset, n, kind):
        found = decide(preset, n, kind=kind)
        steps = found["epochs"] * math.ceil(n / found["batch_size"])
        assert steps >= EFFORTS[preset].steps or found["epochs"] == decide(preset, 1, kind=kind)["epochs"]
        assert found["epochs"] >= EFFORTS[preset].epochs

    def test_a_preset_that_spends_more_has_no_fewer(self):
        for n in (10, 1000, ALL_EPOCHS, 10**5, 10**7):
            fast, default, accurate = (decide(preset, n)["epochs"] for preset in ("fast", "default", "accurate"))
            assert fast <= default <= accurate


class TestFewShot:
    """Labels that a thousandth of the documents have, or three documents."""

    def decide(self, preset: str, n: int, labels: int, typical: float, **given) -> dict:
        facts = Facts(n, labels, True, True, typical=typical, **given)
        return {each.name: each.value for each in by_rule(preset, ALL, facts)}

    @given(preset=presets, n=st.integers(20, FEW_TEXTS), labels=st.integers(1000, 10**6))
    def test_is_learned_by_heart(self, preset, n, labels):
        found = self.decide(preset, n, labels, 3)
        assert (found["first_layer"], found["lr"]) == ("same", 3e-3)
        assert found["dropout"] == (0.1 if n > SMALL_BATCHES else 0.3)
        assert min(labels / 2, FEW_SHOT_DIM) <= found["dim"] <= min(labels / 2 + 10, FEW_SHOT_DIM)

    @pytest.mark.parametrize(
        ("n", "typical", "few"),
        [(1000, 3, True), (1000, 4, False), (10_000, 10, True), (10_000, 11, False),
         (VERY_MANY, 200, True), (VERY_MANY + 1, 1, False)],
    )  # fmt: skip
    def test_is_a_thousandth_of_the_documents_or_three(self, n, typical, few):
        assert Facts(n, 5000, True, True, typical=typical).few_shot is few

    def test_texts_are_known_by_more_of_their_words(self):
        few, others = (self.decide("default", 50_000, 20_000, typical) for typical in (10, 100))
        names = ("char_ngrams", "max_features", "min_df", "hidden")
        assert [few[name] for name in names] == [(3, 5), MORE_FEATURES, 1, (1024,)]
        assert [others[name] for name in names] == [None, None, 2, (2048,)]

    @pytest.mark.parametrize(
        ("preset", "n", "epochs"),
        [("default", 3000, 18), ("default", 10_000, 12), ("default", 20_000, 10), ("default", 100_000, 4),
         ("fast", 20_000, 8), ("accurate", 10_000, 20), ("accurate", 20_000, 16)],
    )  # fmt: skip
    def test_takes_epochs_of_its_own(self, preset, n, epochs):
        assert self.decide(preset, n, 5000, 1)["epochs"] == epochs

    def test_is_known_only_beside_adam(self):
        assert self.decide("default", 3000, 5000, 1, adam=False)["dropout"] != 0.3


class TestSizes:
    @given(preset=presets, some=st.integers(1, VERY_MANY), more=st.integers(1, VERY_MANY), kind=kinds)
    def test_dropout_does_not_grow_with_documents(self, preset, some, more, kind):
        some, more = sorted((some, more))
        low, high = (decide(preset, n, kind=kind)["dropout"] for n in (more, some))
        assert 0 <= low <= high < 1

    @pytest.mark.parametrize("preset", sorted(EFFORTS))
    def test_dropout_passes_through_the_points_of_the_effort(self, preset):
        for documents, share in EFFORTS[preset].dropout:
            assert decide(preset, round(documents))["dropout"] == pytest.approx(share)

    @given(preset=presets, n=counts, labels=label_counts, kind=kinds)
    def test_one_hidden_layer_no_wider_than_the_effort(self, preset, n, labels, kind):
        (width,) = decide(preset, n, labels, kind)["hidden"]
        assert EFFORTS[preset].hidden / 2 <= width <= EFFORTS[preset].hidden
        effort = EFFORTS[preset]
        usual = effort.hidden if n <= MANY_DOCUMENTS else effort.many[2] if n <= VERY_MANY else 1024
        assert kind == "texts" or width == usual

    @given(preset=presets, n=counts)
    def test_a_batch_is_not_most_of_the_documents(self, preset, n):
        assert 1 <= decide(preset, n)["batch_size"] <= max(8, n / 8)


class TestFeatures:
    @pytest.mark.parametrize(("kind", "scaling"), [("dense", "standard"), ("sparse", "sqrt"), ("texts", "none")])
    @given(preset=presets, n=counts, labels=label_counts)
    def test_follow_the_kind_of_rows(self, kind, scaling, preset, n, labels):
        found = decide(preset, n, labels, kind)
        first_layer = "same" if kind == "dense" or n > VERY_MANY else "sgd"
        assert (found["scaling"], found["first_layer"]) == (scaling, first_layer)
        without_adam = Facts(n, labels, *KINDS[kind], adam=False)
        assert by_rule(preset, frozenset(["first_layer"]), without_adam)[0].value == "same"

    @given(preset=presets, n=st.integers(VERY_MANY + 1, 10**8), kind=kinds)
    def test_very_many_documents(self, preset, n, kind):
        found = decide(preset, n, kind=kind)
        assert (found["first_layer"], found["dropout"], found["batch_size"]) == ("same", 0.4, 512)

    @given(preset=presets, n=counts, labels=label_counts, kind=kinds)
    def test_only_few_texts_get_character_ngrams(self, preset, n, labels, kind):
        found = decide(preset, n, labels, kind)
        few_texts = kind == "texts" and n <= FEW_TEXTS and EFFORTS[preset].char_ngrams
        assert (found["char_ngrams"] is not None) == few_texts
        assert (found["max_features"] is not None) == few_texts  # else all features are kept


#: What a setting can be.
finite = st.floats(allow_nan=False, allow_infinity=False)
integers = st.lists(st.integers()).map(tuple)
values = st.one_of(st.none(), st.booleans(), st.integers(), finite, st.text(), integers)


class TestDecision:
    @given(st.builds(Decision, st.text(), values, st.text(), st.booleans()))
    def test_there_and_back_through_json(self, decision):
        back = Decision.from_dict(json.loads(json.dumps(decision.as_dict())))
        assert back == decision
        assert type(back.value) is type(decision.value)

    def test_as_dict(self):
        found = Decision("hidden", (8, 4), "because", tried=True).as_dict()
        assert found == {"setting": "hidden", "value": [8, 4], "why": "because", "tried": True}

    @pytest.mark.parametrize(
        ("value", "shown"),
        [(800, "800"), (0.25, "0.25"), ("sgd", "sgd"), (None, "none"), ((2048,), "2048"), ((3, 5), "3,5")],
    )
    def test_shown(self, value, shown):
        assert Decision("any", value, "because").shown == shown
