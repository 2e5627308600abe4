"""A search climbs by races, keeps within its budget and goes on after an interruption."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
import scipy.sparse as sp
from tests.tuning.test_changes import ROWS

from circlet.data.dataset import Dataset, Split
from circlet.errors import CircletError, DataError
from circlet.settings import RunSettings
from circlet.training import InterruptedRunError
from circlet.tuning import Study, Trial
from circlet.tuning.study import draw
from circlet_paper.synthetic import make_multilabel


@pytest.fixture(scope="module")
def dataset():
    return make_multilabel(200, 50, 20, seed=0, n_test=10)


@pytest.fixture
def study(dataset, tmp_path):
    return Study(dataset, tmp_path / "t.json")


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves only when a trial is measured."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


@pytest.fixture
def worth(monkeypatch, clock):
    """Let every trial take as many seconds as its networks have epochs, and score by a function of its values."""

    def use(score):
        def measured(self, given, draw):
            values = {**ROWS, **given}
            clock[0] += values["epochs"] * values["members"]
            self.usual = ROWS
            return score(values, draw), 1_000_000 * values["members"]

        monkeypatch.setattr(Study, "_measured", measured)

    return use


def dropout_matters(values, draw):
    """And scaling; other epochs or sizes than the default's do little harm, and draws differ by much."""
    harm = sum(abs(values[name] - ROWS[name]) / ROWS[name] for name in ("epochs", "batch_size", "members", "lr"))
    good = -100 * abs(values["dropout"] - 0.7) + (values["scaling"] == "l2")
    return 50 + good - harm / 10 - (values["hidden"] != (2048,)) - (values["dim"] != 800) - 5 * draw


class TestSearch:
    def test_climbs_to_the_best(self, study, worth):
        """Over what a preset that spends more decides, which has too much dropout."""
        worth(dropout_matters)
        best = study.run(1500)
        assert best == study.best
        assert (best["dropout"], best["scaling"]) == (0.7, "l2")
        assert study.trials[0].given == {}
        assert 40 < study.gain(best) < 41
        assert study.winners[0] == {}
        gains = [study.gain(given) for given in study.winners]
        assert gains == sorted(gains)
        trials = [(str(trial.given), trial.draw) for trial in study.trials]
        assert len(trials) == len(set(trials)) > 20  # nothing is tried twice

    def test_the_budget_is_kept(self, study, worth):
        """A race begins only if all of it would fit. Five draws of 14 and 7 seconds each, here."""
        worth(dropout_matters)
        assert study.run(1) == {}
        assert len(study.trials) == 1
        assert study.wanted() > 1
        study.run(150)
        assert study.draws == 5
        assert 100 < study.spent <= 150
        assert study.wanted() > 150 - study.spent

    def test_a_lucky_draw_is_not_kept(self, study, worth):
        worth(lambda values, draw: 50 + (3 if values["epochs"] > 7 else 0) * (1 if draw == 0 else -2))
        assert study.run(300) == {}
        lucky = [given for given in study.tried if given.get("epochs", 0) > 7]
        assert lucky
        # One more draw, and the mean is behind: the race is over.
        assert all(len(study.trials_of(given)) == 2 for given in lucky)

    def test_the_defaults_may_win(self, study, worth):
        worth(lambda values, draw: 50.0)
        assert study.run(100) == {}
        assert all(trial.draw == 0 for trial in study.trials)

    def test_averaging_networks(self, study, worth):
        worth(lambda values, draw: 50.0 + values["members"])
        assert study.run(1500) == {"members": 4}
        assert study.trials_of({"members": 4})[0].parameters == 4_000_000

    def test_what_a_preset_that_spends_more_decides(self, study, dataset, tmp_path, worth):
        worth(dropout_matters)
        (accurate,) = study._of_presets
        assert accurate["dropout"] == 0.8
        study.run(1500)
        assert {name: value for name, value in accurate.items() if value != ROWS[name]} in study.tried
        assert Study(dataset, tmp_path / "a.json", preset="accurate")._of_presets == []

    def test_a_trial_that_fails_is_passed_over(self, study, worth):
        def score(values, draw):
            if values["first_layer"] == "same":
                raise CircletError("diverged")
            return dropout_matters(values, draw)

        worth(score)
        assert study.run(1500)["scaling"] == "l2"
        failed = [trial for trial in study.trials if trial.score is None]
        assert {trial.failure for trial in failed} == {"diverged"}
        assert {trial.given["first_layer"] for trial in failed} == {"same"}

    def test_the_defaults_fail(self, study, monkeypatch):
        def measured(*_):
            raise CircletError("no labels")

        monkeypatch.setattr(Study, "_measured", measured)
        with pytest.raises(CircletError, match="no labels"):
            study.run(100)


@pytest.mark.parametrize(("documents", "draws"), [(200, 5), (9000, 3), (15_000, 2), (100_000, 2)])
def test_fewer_documents_need_more_draws(tmp_path, documents, draws):
    dataset = make_multilabel(documents, 20, 5, seed=0)
    assert Study(dataset, tmp_path / "t.json").draws == draws


def test_draws_share_no_rows(dataset, study):
    documents = dataset.train.X.toarray().tolist()
    judged = [study._split(draw)[1].X.toarray().tolist() for draw in range(study.draws)]
    learned = study._split(0)[0].X.toarray().tolist()
    assert sorted(judged[0] + learned) == sorted(documents)
    every = sorted(row for rows in judged for row in rows)
    others = sorted(documents)
    for row in every:
        others.remove(row)  # fails for a row that was drawn more often than it occurs
    assert len(every) == 150


class TestKept:
    """What the file of a search holds, and what is refused."""

    TRIALS = (
        Trial({}, 0, 52.25, 3.5, 1000),
        Trial({"hidden": (64, 32), "char_ngrams": None}, 1, 53.0, 4.0, 2000),
        Trial({"lr": 9.0}, 0, None, 0.5, None, "the loss is not finite"),
    )

    @pytest.fixture
    def path(self, study, tmp_path):
        study.usual, study.trials = ROWS, [*self.TRIALS]
        study._save()
        return tmp_path / "t.json"

    def test_round_trip(self, dataset, path):
        again = Study(dataset, path)
        assert (again.usual, again.trials) == (ROWS, [*self.TRIALS])
        kept = json.loads(path.read_text())
        assert kept["study"]["documents"] == 200
        assert kept["provenance"]["versions"]["torch"]

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"study": {}, "usual": {}, "trials": [{"given": 3}]}'])
    def test_no_search(self, dataset, path, text):
        path.write_text(text)
        with pytest.raises(DataError, match=r"t\.json: found no readable search .*; name another --output"):
            Study(dataset, path)

    @pytest.mark.parametrize(
        "wrong",
        [{"score": "52"}, {"draw": -1}, {"seconds": None}, {"given": {"wings": 2}}, {"parameters": 0.5},
         {"other": 1}, None],
    )  # fmt: skip
    def test_a_damaged_trial_or_none(self, dataset, path, wrong):
        kept = json.loads(path.read_text())
        kept["trials"] = [] if wrong is None else [kept["trials"][0] | wrong]
        path.write_text(json.dumps(kept))
        message = "no trial of the defaults" if wrong is None else "found no readable search"
        with pytest.raises(DataError, match=message):
            Study(dataset, path)


class TestResuming:
    def test_a_trial_that_is_interrupted_is_none(self, study, dataset, tmp_path, worth):
        """What training raises on Ctrl-C is a `CircletError`, too."""

        def score(values, draw):
            if values["epochs"] != ROWS["epochs"]:
                raise InterruptedRunError("interrupted")
            return 50

        worth(score)
        with pytest.raises(KeyboardInterrupt):
            study.run(300)
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
        with pytest.raises(DataError, match=r"t\.json: found a search with seed 0, and now 1; name another"):
            Study(dataset, tmp_path / "t.json", seed=1)
        other = make_multilabel(200, 50, 20, seed=1, n_test=10)
        with pytest.raises(DataError, match=r"t\.json: found a search with other documents or labels; name"):
            Study(other, tmp_path / "t.json")


def test_real_trials(dataset, tmp_path):
    """Test rows are not read, and what was decided for the defaults stands for all trials."""
    study = Study(dataset, tmp_path / "t.json", preset="fast")
    learned, judged = study._split(0)
    assert (learned.n, judged.n) == (170, 30)
    study._try({}, 0)
    study._try({"epochs": 2, "hidden": (16,), "members": 2}, 0)
    first, second = study.trials
    assert 0 < first.score <= 100
    assert study.usual["members"] == 1
    assert study.usual["sparse"] is True
    assert study.usual["even"] is False
    assert 0 < second.parameters < first.parameters
    again = Study(dataset, tmp_path / "t.json", preset="fast")
    assert again.usual == study.usual
    assert again.trials == study.trials


@pytest.mark.parametrize(("values", "even"), [([2, 2, 2], True), ([1, 2, 2], False), ([], True)])
def test_rows_of_equal_numbers_are_known(tmp_path, values, even):
    """Their square roots are not tried."""
    X = sp.csr_matrix((values, range(len(values)), [0, len(values)]), shape=(1, 3), dtype=np.float32)
    dataset = Dataset("even", Split(X, sp.csr_matrix(np.ones((1, 2), dtype=np.float32))))
    study = Study(dataset, tmp_path / "t.json")
    assert study._usual([], RunSettings.from_preset("fast", {}).flat())["even"] is even


def test_trials_train_what_the_command_trains(dataset, tmp_path, monkeypatch):
    """Held-out rows join in the end there; of few documents, only the calibration run is left out."""
    from circlet import model

    seen = []

    def fit(split, settings, **options):
        seen.append(settings)
        return found(split, settings, **options)

    found = model.fit
    monkeypatch.setattr(model, "fit", fit)
    for preset in ("fast", "default"):  # `fast` never has one
        study = Study(dataset, tmp_path / f"{preset}.json", preset=preset)
        study._try({}, 0)
        study._try({"epochs": 2, "hidden": (16,)}, 0)
    quick, usual = seen[1], seen[3]
    assert "validation" in quick.undecided
    assert usual.validation == 0
    assert all("first_layer" in each.undecided for each in seen[::2])
    assert not any("first_layer" in each.undecided for each in seen[1::2])


def test_names_what_won(tmp_path):
    study = Study(make_multilabel(10_000, 20, 5, seed=0), tmp_path / "t.json")
    assert study.draws == 3
    tried = [({}, 50.0), ({"epochs": 14}, 49.5), ({"epochs": 3}, 40.0), ({"dropout": 0.7}, 51.0)]
    study.trials = [
        *(Trial(given, 0, score, 60.0) for given, score in tried),
        Trial({"dropout": 0.5}, 0, None, 1.0, failure="diverged"),
        *(Trial(given, draw, score, 60.0) for draw in (1, 2) for given, score in (tried[0], tried[3])),
    ]
    figure = draw(study)
    (axis,) = figure.axes
    assert [text.get_text() for text in axis.texts][:2] == ["defaults", "dropout 0.7"]
    lost, worse, best, won = axis.lines
    assert list(lost.get_ydata()) == [-0.5]
    assert list(worse.get_ydata()) == [-1]  # where the picture ends
    assert list(worse.get_xdata()) == [3]  # minutes
    assert list(best.get_ydata()) == [0, 1, 1]
    assert won.get_xdata()[0] == 1
    figure.savefig(tmp_path / "t.png")
    assert (tmp_path / "t.png").stat().st_size > 5000


def test_what_lost_is_below_what_it_lost_to(tmp_path):
    """Even if it was ahead of the defaults by more, on the one draw that it had."""
    study = Study(make_multilabel(15_000, 20, 5, seed=0), tmp_path / "t.json")
    scores = {"": (50.0, 50.0), "l2": (54.0, 51.0), "none": (53.0,)}
    study.trials = [
        Trial({"scaling": name} if name else {}, draw, score, 60.0)
        for name, found in scores.items()
        for draw, score in enumerate(found)
    ]
    assert study.best == {"scaling": "l2"}
    assert study.gain({"scaling": "none"}) == 3
    assert study.standing({"scaling": "none"}) == 1.5
    lost, *_, won = draw(study).axes[0].lines
    assert np.max(lost.get_ydata()) == 1.5
    assert list(won.get_ydata()) == [0, 2.5]
