"""The picture names what made the search better."""

from __future__ import annotations

import numpy as np

from circlet.data.synthetic import make_multilabel
from circlet.tuning import Study, Trial
from circlet.tuning.study import draw


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
