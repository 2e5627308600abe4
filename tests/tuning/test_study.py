"""A search climbs, keeps within its budget, confirms its winner and goes on after an interruption."""

from __future__ import annotations

import json
import time

import pytest
from tests.tuning.test_changes import ROWS

from circlet.data.synthetic import make_multilabel
from circlet.errors import CircletError, DataError
from circlet.training import InterruptedRunError
from circlet.tuning import Study


@pytest.fixture(scope="module")
def dataset():
    return make_multilabel(200, 50, 20, seed=0, n_test=10)


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves only when a trial is measured."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


@pytest.fixture
def worth(monkeypatch, clock):
    """Let every trial take its number of epochs in seconds, and score by a function of its values."""

    def use(score):
        def measured(self, given, draw):
            values = {**ROWS, **given}
            clock[0] += values["epochs"]
            return score(values, draw), {k: v for k, v in ROWS.items() if k not in given}

        monkeypatch.setattr(Study, "_measured", measured)

    return use


def dropout_matters(values, draw):
    """And scaling; other epochs than the default's do little harm."""
    harm = abs(values["epochs"] - ROWS["epochs"]) / 100
    return 50 - 100 * abs(values["dropout"] - 0.7) + (values["scaling"] == "l2") - harm


class TestSearch:
    def test_climbs_to_the_best(self, dataset, tmp_path, worth):
        """Over longer training, which comes with more dropout, and back to the default's epochs."""
        worth(dropout_matters)
        study = Study(dataset, tmp_path / "t.json")
        best = study.run(2000)
        assert best.given == {"dropout": 0.7, "scaling": "l2"}
        assert study.trials[0].given == {}
        assert [trial.draw for trial in study.trials[-2:]] == [1, 1]

    def test_nothing_is_tried_twice(self, dataset, tmp_path, worth):
        worth(dropout_matters)
        study = Study(dataset, tmp_path / "t.json")
        study.run(3000)
        given = [trial.given for trial in study.trials if trial.draw == 0]
        assert all(each not in given[:i] for i, each in enumerate(given))

    def test_the_budget_includes_the_confirmation(self, dataset, tmp_path, worth):
        worth(dropout_matters)
        study = Study(dataset, tmp_path / "t.json")
        study.run(100)
        assert 60 < study.spent <= 100

    def test_a_lucky_winner_is_not_kept(self, dataset, tmp_path, worth):
        worth(lambda values, draw: 50 + (5 if values["epochs"] == 14 else 0) * (1 if draw == 0 else -2))
        study = Study(dataset, tmp_path / "t.json")
        assert study.run(200).given == {}

    def test_the_defaults_may_win(self, dataset, tmp_path, worth):
        worth(lambda values, draw: 50.0)
        study = Study(dataset, tmp_path / "t.json")
        assert study.run(100).given == {}
        assert all(trial.draw == 0 for trial in study.trials)

    def test_a_trial_that_fails_is_passed_over(self, dataset, tmp_path, worth):
        def score(values, draw):
            if values["epochs"] == 14:
                raise CircletError("diverged")
            return dropout_matters(values, draw)

        worth(score)
        study = Study(dataset, tmp_path / "t.json")
        assert study.run(300).given["dropout"] == 0.7
        failed = [trial for trial in study.trials if trial.score is None]
        assert {trial.failure for trial in failed} == {"diverged"}
        assert {trial.given["epochs"] for trial in failed} == {14}

    def test_every_trial_fails(self, dataset, tmp_path, worth):
        def score(values, draw):
            raise CircletError("no labels")

        worth(score)
        with pytest.raises(CircletError, match="every trial failed; the first one: no labels"):
            Study(dataset, tmp_path / "t.json").run(100)


class TestResuming:
    def test_a_trial_that_is_interrupted_is_none(self, dataset, tmp_path, worth):
        """What training raises on Ctrl-C is a `CircletError`, too."""

        def score(values, draw):
            if values["epochs"] != ROWS["epochs"]:
                raise InterruptedRunError("interrupted")
            return 50

        worth(score)
        study = Study(dataset, tmp_path / "t.json")
        with pytest.raises(KeyboardInterrupt):
            study.run(100)
        assert [trial.given for trial in study.trials] == [{}]
        assert Study(dataset, tmp_path / "t.json").trials == study.trials

    def test_ends_like_a_search_that_was_not_interrupted(self, dataset, tmp_path, worth):
        worth(dropout_matters)
        whole = Study(dataset, tmp_path / "whole.json")
        whole.run(150)

        def interrupt(study, doing):
            if len(study.trials) == 4:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            Study(dataset, tmp_path / "part.json").run(150, interrupt)
        again = Study(dataset, tmp_path / "part.json")
        assert len(again.trials) == 4
        again.run(150)
        assert again.trials == whole.trials

    def test_other_data_are_refused(self, dataset, tmp_path, worth):
        worth(dropout_matters)
        Study(dataset, tmp_path / "t.json").run(20)
        with pytest.raises(DataError, match=r"t\.json: found a search with seed 0; name another --output"):
            Study(dataset, tmp_path / "t.json", seed=1)

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"study": {}, "trials": [{"given": 3}]}'])
    def test_damaged_files_are_refused(self, dataset, tmp_path, text):
        (tmp_path / "t.json").write_text(text)
        with pytest.raises(DataError, match="found no readable search"):
            Study(dataset, tmp_path / "t.json")

    def test_what_is_kept(self, dataset, tmp_path, worth):
        worth(dropout_matters)
        Study(dataset, tmp_path / "t.json").run(20)
        kept = json.loads((tmp_path / "t.json").read_text())
        assert kept["study"]["documents"] == 200
        assert kept["provenance"]["versions"]["torch"]


def test_real_trials(dataset, tmp_path, one_thread, monkeypatch):
    """Test rows are not read, and judged rows are none of those learned from."""
    study = Study(dataset, tmp_path / "t.json", preset="fast")
    learned, judged = study._split(0)
    assert (learned.n, judged.n) == (170, 30)
    assert (study._split(1)[1].X != judged.X).nnz
    study._try({}, 0)
    study._try({"epochs": 2, "hidden": (16,)}, 0)
    first, second = study.trials
    assert 0 < first.score <= 100
    assert first.decided["first_layer"] == second.decided["first_layer"]
    assert second.values["hidden"] == (16,)
    assert second.values["sparse"] is True
