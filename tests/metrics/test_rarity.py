from __future__ import annotations

import math

import numpy as np
import pytest

from circlet.errors import DataError
from circlet.metrics import inverse_propensity_of_counts
from circlet.metrics.measures import log_weights


class TestLogWeights:
    COUNTS = np.array([900, 1, 30])

    def test_by_hand(self):
        # w = 1 + (log N − 1) (2.5 / (count + 1.5))^0.55, and a label of one document has the quotient 1.
        assert log_weights(np.array([1]), 1000, 1, 1.0)[0] == pytest.approx(math.log(math.log(1000)))
        assert log_weights(np.array([1]), 1000, 1, 0.25)[0] == pytest.approx(math.log(math.log(1000)) / 4)

    def test_are_those_of_the_metric(self):
        expected = np.log(inverse_propensity_of_counts(self.COUNTS, 1000))
        np.testing.assert_allclose(log_weights(self.COUNTS, 1000, 3, 1.0), expected)
        assert np.argsort(-expected).tolist() == [1, 2, 0]

    def test_labels_that_were_added_have_never_occurred(self):
        found = log_weights(self.COUNTS, 1000, 5, 0.5)
        np.testing.assert_array_equal(found, log_weights(np.array([900, 1, 30, 0, 0]), 1000, 5, 0.5))
        assert found[4] > found[1]

    def test_unknown_counts(self):
        with pytest.raises(
            DataError,
            match=r"did not save how often each label occurred; .*: train it again, or leave `favor_rare` out",
        ):
            log_weights(None, 1000, 3, 0.5)

    def test_too_few_documents(self):
        with pytest.raises(DataError, match=r"has seen 2 documents; wanted at least 3.*: train it on more, or"):
            log_weights(np.array([1, 2]), 2, 2, 0.5)
