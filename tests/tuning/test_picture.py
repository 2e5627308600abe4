"""The picture names what made the search better."""

from __future__ import annotations

from circlet.data.synthetic import make_multilabel
from circlet.tuning import Study, Trial
from circlet.tuning.picture import draw


def test_names_what_was_better(tmp_path):
    study = Study(make_multilabel(50, 20, 5, seed=0), tmp_path / "t.json")
    study.trials = [
        Trial({}, 50.0, 60.0),
        Trial({"epochs": 14}, 49.0, 60.0),
        Trial({"dropout": 0.5}, None, 1.0, failure="diverged"),
        Trial({"dropout": 0.7}, 51.0, 60.0),
        Trial({}, 50.0, 60.0, draw=1),
    ]
    figure = draw(study)
    (axis,) = figure.axes
    assert [text.get_text() for text in axis.texts] == ["defaults", "dropout 0.7"]
    figure.savefig(tmp_path / "t.png")
    assert (tmp_path / "t.png").stat().st_size > 5000
