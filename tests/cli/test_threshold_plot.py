from __future__ import annotations

import numpy as np
import pytest

from circlet.cli.threshold_plot import draw_curves
from circlet.metrics.decisions import curve_of

pytest.importorskip("matplotlib")


def test_three_curves_and_the_stored_threshold():
    curve = curve_of(np.array([0.9, 0.6, 0.3]), np.array([True, False, True]), 3)
    axis = draw_curves(curve, 0.45, "stored threshold").axes[0]
    *lines, mark = axis.get_lines()
    assert [line.get_xdata().tolist() for line in lines] == [[0, 0.3, 0.6, 0.9]] * 3
    assert lines[0].get_ydata().tolist() == pytest.approx([200 / 3, 200 / 3, 50, 100])  # precision
    assert lines[1].get_ydata().tolist() == pytest.approx([200 / 3, 200 / 3, 100 / 3, 100 / 3])  # recall
    assert list(mark.get_xdata()) == [0.45, 0.45]
    assert {text.get_text() for text in axis.texts} == {"precision", "recall", "F1", "stored threshold 0.450"}
