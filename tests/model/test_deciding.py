from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from circlet.data.dataset import Split
from circlet.errors import DataError
from circlet.folder.layout import DECIDED
from circlet.model import deciding, fit
from circlet.model.deciding import Decider
from circlet.model.trial import FEWEST_ROWS
from circlet.settings import EFFORTS, Decision, RunSettings
from circlet.settings.auto import DECIDABLE
from circlet.training import Reporter

pytestmark = pytest.mark.usefixtures("one_thread")

HELD_OUT = np.arange(0, 30, 3)
#: Small, and everything else is left open.
SMALL = {"hidden": (16,), "dim": 24, "epochs": 3, "batch_size": 16}
FOUND = Decision("first_layer", "same", "better in a trial", tried=True)


class Watch(Reporter):
    """Keeps what it is told about decisions."""

    def __init__(self) -> None:
        self.told: list[list[Decision]] = []

    def decided(self, decisions: Sequence[Decision]) -> None:
        self.told.append(list(decisions))


class Trial:
    """Stands in for a trial."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *arguments: Any) -> Decision:
        self.calls.append(arguments)
        return FOUND


@pytest.fixture
def trial(monkeypatch) -> Trial:
    stub = Trial()
    monkeypatch.setattr(deciding, "first_layer", stub)
    return stub


def rows(n: int, kind: str = "sparse") -> Split:
    """Row i has the feature i % 7."""
    X = sp.csr_matrix((np.ones(n, np.float32), (np.arange(n), np.arange(n) % 7)), shape=(n, 7))
    Y = sp.csr_matrix((np.ones(n, np.float32), (np.arange(n), np.arange(n) % 3)), shape=(n, 3))
    if kind == "texts":
        return Split(None, Y, [f"word{i % 7}" for i in range(n)])
    return Split(X.toarray() if kind == "dense" else X, Y)


def run_of(split: Split, settings: RunSettings, resumed: Path | None = None) -> tuple[Decider, Watch]:
    reporter = Watch()
    return Decider(split, settings, reporter, None, resumed), reporter


def decide(decider: Decider, held_out: Any = HELD_OUT) -> RunSettings:
    """By rule, then by a trial, as `fit` does it."""
    decider.by_rule()
    split = decider.split
    evaluated = None if held_out is None else (None, split.Y[held_out])
    return decider.by_trial(split.X, held_out, evaluated)


def write(folder: Path, *decisions: Decision) -> Path:
    path = folder / DECIDED
    path.write_text(json.dumps([each.as_dict() for each in decisions]), encoding="utf-8")
    return path


class TestByRule:
    @pytest.mark.parametrize(
        ("kind", "scaling", "first_layer"),
        [("sparse", "sqrt", "sgd"), ("dense", "standard", "same"), ("texts", "none", "sgd")],
    )
    def test_looks_at_the_kind_of_documents(self, kind, scaling, first_layer):
        decider, _ = run_of(rows(50, kind), RunSettings.from_preset("default", {}))
        settings = decider.by_rule()
        assert settings is decider.settings
        assert (settings.scaling, settings.training.first_layer) == (scaling, first_layer)
        assert settings.undecided == frozenset()
        assert [each.name for each in decider.decisions] == list(DECIDABLE)

    def test_rows_that_never_join_are_few(self):
        """Holding out many of few documents is free only if the model learns from them in the end."""
        joined, apart = (
            run_of(rows(1000), RunSettings.from_preset("default", {"join": join}))[0].by_rule().validation
            for join in (True, False)
        )
        assert (joined, apart) == (300, 100)

    @pytest.mark.parametrize(
        ("labels", "few"),
        [
            # 0 to 9 once, and 10 ten times: half of all labels of documents are of labels with one.
            ([*range(10), *[10] * 10], True),
            # 0 to 8 once, and 9 ten times: most of all are the same.
            ([*range(9), *[9] * 10], False),
        ],
    )
    def test_looks_at_what_a_typical_label_has(self, labels, few):
        n = len(labels)
        Y = sp.csr_matrix((np.ones(n, np.float32), (np.arange(n), labels)), shape=(n, 11))
        decider, _ = run_of(Split(rows(n).X, Y), RunSettings.from_preset("default", {}))
        assert decider.by_rule().training.first_layer == ("same" if few else "sgd")

    def test_looks_at_the_numbers_of_documents_and_labels(self):
        decider, _ = run_of(rows(19), RunSettings.from_preset("default", {}))
        assert decider.by_rule().validation == 0
        assert 3 < decider.settings.network.dim < 100

    def test_what_is_given_stays(self):
        decider, _ = run_of(rows(50), RunSettings.from_preset("default", SMALL, seed=7))
        settings = decider.by_rule()
        assert {name: settings.flat()[name] for name in SMALL} == SMALL
        assert settings.network.seed == 7
        assert not set(SMALL) & {each.name for each in decider.decisions}

    def test_nothing_undecided(self, trial):
        settings = RunSettings.of({**SMALL, "scaling": "l2", "lr": 0.5}, seed=3)
        decider, reporter = run_of(rows(FEWEST_ROWS + 10), settings)
        assert decider.by_rule() == settings
        assert decide(decider) == settings
        assert decider.decisions == []
        assert decider.record() == {}
        assert reporter.told == [[]]
        assert not trial.calls


class TestByTrial:
    @pytest.mark.parametrize("preset", sorted(EFFORTS))
    def test_its_finding_replaces_the_rules(self, preset, trial):
        decider, reporter = run_of(rows(FEWEST_ROWS + 10), RunSettings.from_preset(preset, SMALL, seed=2))
        ruled = decider.by_rule()
        before = list(decider.decisions)
        settings = decider.by_trial("rows", HELD_OUT, ("held out", None))
        if not EFFORTS[preset].trial:
            assert not trial.calls
            assert settings == ruled
            assert decider.decisions == before
            return
        assert settings == replace(ruled, training=replace(ruled.training, first_layer=FOUND.value))
        assert decider.decisions == [FOUND if each.name == "first_layer" else each for each in before]
        assert FOUND in decider.decisions
        assert reporter.told == [decider.decisions]

    def test_what_it_is_given(self, trial):
        split = rows(FEWEST_ROWS + 10)
        decider, _ = run_of(split, RunSettings.from_preset("default", SMALL))
        ruled = decider.by_rule()
        decider.by_trial("rows", HELD_OUT, ("held out", None))
        ((given, Y, learned, evaluated, settings, device),) = trial.calls
        assert (given, evaluated, settings, device) == ("rows", ("held out", None), ruled, None)
        assert Y is split.Y
        np.testing.assert_array_equal(learned, np.setdiff1d(np.arange(split.n), HELD_OUT))

    @pytest.mark.parametrize(("more", "times"), [(-1, 0), (0, 1)])
    def test_needs_enough_rows_that_are_not_held_out(self, more, times, trial):
        decider, _ = run_of(rows(FEWEST_ROWS + len(HELD_OUT) + more), RunSettings.from_preset("default", SMALL))
        decide(decider)
        assert len(trial.calls) == times

    def test_needs_rows_that_are_held_out(self, trial):
        decider, reporter = run_of(rows(FEWEST_ROWS + 10), RunSettings.from_preset("default", SMALL))
        settings = decide(decider, None)
        assert not trial.calls
        assert settings.training.first_layer == "sgd"
        assert reporter.told == [decider.decisions]

    def test_rows_that_never_join_are_not_tried_on(self, trial):
        """Then `fit` has rows to evaluate, but none of its own are held out."""
        decider, _ = run_of(rows(FEWEST_ROWS + 10), RunSettings.from_preset("default", SMALL))
        decider.by_rule()
        decider.by_trial("rows", None, ("validation", None))
        assert not trial.calls

    @pytest.mark.parametrize(("kind", "times"), [("sparse", 1), ("texts", 1), ("dense", 0)])
    def test_needs_sparse_features_and_no_rule_that_is_sure(self, kind, times, trial):
        decider, _ = run_of(rows(FEWEST_ROWS + 10, kind), RunSettings.from_preset("default", SMALL))
        decide(decider)
        assert len(trial.calls) == times

    @pytest.mark.parametrize("first_layer", ["sgd", "same"])
    def test_a_given_optimizer_is_not_tried(self, first_layer, trial):
        given = {**SMALL, "first_layer": first_layer}
        decider, _ = run_of(rows(FEWEST_ROWS + 10), RunSettings.from_preset("default", given))
        assert decide(decider).training.first_layer == first_layer
        assert not trial.calls


class TestRecord:
    def test_is_ready_for_json(self, trial):
        decider, _ = run_of(rows(FEWEST_ROWS + 10), RunSettings.from_preset("default", {}))
        decide(decider)
        record = decider.record()
        assert list(record) == ["decided"]
        assert record["decided"] == [each.as_dict() for each in decider.decisions]
        assert json.loads(json.dumps(record)) == record
        assert FOUND.as_dict() in record["decided"]

    def test_saved_decisions_are_the_same(self, trial, tmp_path):
        decider, _ = run_of(rows(FEWEST_ROWS + 10), RunSettings.from_preset("default", {}))
        decide(decider)
        decider.save(tmp_path / "new")
        saved = json.loads((tmp_path / "new" / DECIDED).read_text(encoding="utf-8"))
        assert saved == decider.record()["decided"]

    def test_without_decisions_nothing_is_saved_and_nothing_old_stays(self, tmp_path):
        write(tmp_path, Decision("dim", 40, "of a run that was never resumed"))
        decider, _ = run_of(rows(50), RunSettings.of({**SMALL, "scaling": "l2"}))
        decide(decider)
        decider.save(tmp_path)
        assert not any(tmp_path.iterdir())


class TestResumed:
    def test_decisions_stand_as_they_are(self, trial, tmp_path):
        split, left_open = rows(FEWEST_ROWS + 10), RunSettings.from_preset("default", {}, seed=5)
        first, _ = run_of(split, left_open)
        settings = decide(first)
        first.save(tmp_path)
        again, reporter = run_of(split, left_open, tmp_path)
        assert again.by_rule() == settings
        assert decide(again) == settings
        assert again.decisions == first.decisions
        assert reporter.told == [first.decisions]
        assert len(trial.calls) == 1  # that of the first run

    def test_even_if_rules_would_decide_otherwise(self, trial, tmp_path):
        known = [Decision("dim", 72, "then"), Decision("hidden", (9, 5), "then"), Decision("epochs", 11, "then")]
        known += [Decision("first_layer", "same", "then", tried=True), Decision("min_df", 1, "then")]
        write(tmp_path, *known)
        given = {
            "scaling": "l2",
            "validation": 0.1,
            "dropout": 0.5,
            "batch_size": 16,
            "max_features": 9,
            "lr": 0.1,
        }
        left_open = RunSettings.from_preset("default", {**given, "char_ngrams": (1, 2)})
        decider, _ = run_of(rows(FEWEST_ROWS + 10), left_open, tmp_path)
        settings = decide(decider)
        assert decider.decisions == known
        assert (settings.network.dim, settings.network.hidden) == (72, (9, 5))
        assert (settings.training.epochs, settings.training.first_layer) == (11, "same")
        assert not trial.calls

    def test_what_was_not_decided_then_is_decided_now(self, tmp_path):
        write(tmp_path, Decision("dim", 72, "then"))
        decider, _ = run_of(rows(50), RunSettings.from_preset("default", {}), tmp_path)
        settings = decide(decider)
        assert settings.undecided == frozenset()
        assert settings.network.dim == 72
        assert sorted(each.name for each in decider.decisions) == sorted(DECIDABLE)

    def test_without_the_file_everything_is_decided_now(self, tmp_path):
        left_open = RunSettings.from_preset("default", {})
        expected = decide(run_of(rows(50), left_open)[0])
        assert decide(run_of(rows(50), left_open, tmp_path)[0]) == expected
        assert decide(run_of(rows(50), left_open, tmp_path / "nowhere")[0]) == expected

    def test_what_is_given_now_stands(self, tmp_path):
        write(tmp_path, Decision("dim", 40, "then"), Decision("epochs", 9, "then"))
        decider, _ = run_of(rows(50), RunSettings.from_preset("default", {"dim": 8}), tmp_path)
        settings = decider.by_rule()
        assert (settings.network.dim, settings.training.epochs) == (8, 9)
        assert "dim" not in {each.name for each in decider.decisions}

    @pytest.mark.parametrize(
        "content",
        [
            "",
            "[",
            "7",
            "null",
            '["dim"]',
            "[{}]",
            '[{"setting": "dim", "value": 72}]',
            '[{"setting": "dim", "value": -1, "why": "then", "tried": false}]',
            '[{"setting": "hidden", "value": ["wide"], "why": "then", "tried": false}]',
            '[{"setting": ["dim"], "value": 72, "why": "then", "tried": false}]',
        ],
    )
    def test_damage(self, content, tmp_path):
        path = tmp_path / DECIDED
        path.write_text(content, encoding="utf-8")
        with pytest.raises(DataError, match="found no readable decisions") as error:
            run_of(rows(50), RunSettings.from_preset("default", {}), tmp_path)
        assert str(error.value).startswith(f"{path}: ")
        assert "train again in another folder" in str(error.value)

    def test_bytes_that_are_no_text(self, tmp_path):
        (tmp_path / DECIDED).write_bytes(b"\xff\xfe\x00")
        with pytest.raises(DataError, match="found no readable decisions") as error:
            run_of(rows(50), RunSettings.from_preset("default", {}), tmp_path)
        assert str(tmp_path / DECIDED) in str(error.value)


class TestInFit:
    @pytest.fixture
    def few_are_enough(self, monkeypatch) -> None:
        monkeypatch.setattr(deciding, "FEWEST_ROWS", 50)

    @pytest.mark.usefixtures("few_are_enough")
    def test_a_model_is_trained_as_decided_and_knows_why(self, trial, split):
        reporter = Watch()
        model = fit(split("sparse"), RunSettings.from_preset("default", SMALL), reporter=reporter)
        assert len(trial.calls) == 1
        assert model.training["first_layer"] == FOUND.value
        assert [Decision.from_dict(each) for each in model.training["decided"]] == reporter.told[0]
        assert FOUND in reporter.told[0]

    @pytest.mark.usefixtures("few_are_enough")
    def test_the_trial_learns_and_is_judged_on_different_rows(self, trial, split):
        given = split("sparse")
        fit(given, RunSettings.from_preset("default", SMALL))
        ((scaled, _, learned, (judged, right), settings, _),) = trial.calls
        held_out = np.setdiff1d(np.arange(given.n), learned)
        np.testing.assert_array_equal(held_out, settings.held_out(given.n))
        assert scaled.shape == given.X.shape
        assert judged.shape == (len(held_out), given.X.shape[1])
        assert (right != given.Y[held_out]).nnz == 0

    @pytest.mark.usefixtures("few_are_enough")
    @pytest.mark.parametrize("changes", [{"patience": 2}, {"join": False}, {"validation": 0}], ids=str)
    def test_no_trial_without_rows_that_join(self, changes, trial, split):
        model = fit(split("sparse"), RunSettings.from_preset("default", {**SMALL, **changes}))
        assert not trial.calls
        assert model.training["first_layer"] == "sgd"

    def test_a_resumed_run_uses_what_its_folder_says(self, split, tmp_path):
        write(tmp_path, Decision("dim", 40, "then"), Decision("scaling", "l2", "then"))
        left_open = {name: value for name, value in SMALL.items() if name != "dim"}
        settings = RunSettings.from_preset("default", left_open)
        resumed = fit(split("sparse"), settings, folder=tmp_path, resume=True)
        assert (resumed.network.settings.dim, resumed.scaling.kind) == (40, "l2")
        anew = fit(split("sparse"), settings, folder=tmp_path)
        assert anew.network.settings.dim != 40
        saved = json.loads((tmp_path / DECIDED).read_text(encoding="utf-8"))
        assert saved == anew.training["decided"]

    def test_a_saved_model_needs_the_file_no_longer(self, split, tmp_path):
        model = fit(split("sparse"), RunSettings.from_preset("default", SMALL), folder=tmp_path)
        assert (tmp_path / DECIDED).is_file()
        model.save(tmp_path)
        assert not (tmp_path / DECIDED).exists()

    def test_nothing_undecided_leaves_no_trace(self, split, tmp_path):
        reporter = Watch()
        settings = RunSettings.of({**SMALL, "scaling": "l2"})
        model = fit(split("sparse"), settings, folder=tmp_path, reporter=reporter)
        assert "decided" not in model.training
        assert reporter.told == [[]]
        assert not (tmp_path / DECIDED).exists()
