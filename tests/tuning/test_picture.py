"""The picture names what made the search better."""

from __future__ import annotations

import numpy as np

from circlet.data.synthetic import make_multilabel
from circlet.tuning import Study, Trial
from circlet.tuning.picture import draw


def test_names_what_won(tmp_path):
    study = Study(make_multilabel(10_000, 20, 5, seed=0), tmp_path / "t.json")
    assert study.draws == 3
    tried = [({}, 50.0), ({"epochs": 14}, 49.0), ({"dropout": 0.7}, 51.0)]
    study.trials = [
        *(Trial(given, 0, score, 60.0) for given, score in tried),
        Trial({"dropout": 0.5}, 0, None, 1.0, failure="diverged"),
        *(Trial(given, draw, score, 60.0) for draw in (1, 2) for given, score in (tried[0], tried[2])),
    ]
    figure = draw(study)
    (axis,) = figure.axes
    assert [text.get_text() for text in axis.texts] == ["defaults", "dropout 0.7"]
    others, best, won = axis.lines
    assert np.sort(others.get_ydata()).tolist() == [-1, 0, 1]
    assert list(best.get_ydata()) == [0, 1, 1]
    assert won.get_xdata()[0] == 1  # minutes
    figure.savefig(tmp_path / "t.png")
    assert (tmp_path / "t.png").stat().st_size > 5000
