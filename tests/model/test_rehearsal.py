from __future__ import annotations

import numpy as np
import pytest

from circlet.data.synthetic import make_multilabel
from circlet.folder.deflated import rounded, steps_of
from circlet.folder.history import LOST
from circlet.metrics import evaluate
from circlet.model.model import as_arrays, as_tensors
from circlet.model.rehearsal import COARSEST, FINEST, MANY, lost_by_rounding, rehearse
from circlet.network import Ensemble, Network
from circlet.network.ensemble import top_k
from circlet.settings import NetworkSettings
from circlet.training import CALIBRATION, THRESHOLD, Reporter, TrainingSettings, train

pytestmark = pytest.mark.usefixtures("one_thread")

MADE = make_multilabel(200, 60, 12, seed=0, labels_per_row=2, words_per_row=12).train
HELD_OUT = np.arange(150, 200)
TRAINING = TrainingSettings(epochs=8, batch_size=32, lr=0.02)


def network(sparse: bool) -> Network:
    return Network(NetworkSettings(dim=24, hidden=(16,)), 60, 12, sparse=sparse)


@pytest.mark.parametrize("sparse", [True, False])
def test_what_rounding_costs(sparse):
    rows = MADE.X if sparse else MADE.X.toarray()
    made = network(sparse)
    train(made, rows[:150], MADE.Y[:150], TRAINING)
    before = {name: tensor.clone() for name, tensor in made.weights().items()}
    pairs = lost_by_rounding(made, rows[HELD_OUT], MADE.Y[HELD_OUT])
    assert all((tensor == before[name]).all() for name, tensor in made.weights().items())
    assert pairs == sorted(pairs)
    assert pairs[-1][1] >= MANY or pairs[-1][0] == 2 ** (COARSEST / 2)
    assert pairs[0][0] >= 2 ** (FINEST / 2)

    def ndcg() -> float:
        ids, _ = top_k(Ensemble([made]), rows[HELD_OUT], 5)
        return float(evaluate(MADE.Y[HELD_OUT], ids, k=5, metrics=("nDCG",))["nDCG@5"])

    # The same of the whole network, with all features.
    whole, weights = ndcg(), as_arrays(before)
    for coarseness, lost in pairs[:: max(1, len(pairs) - 1)]:
        made.load_weights(as_tensors(rounded(weights, steps_of(weights, "a file"), coarseness)))
        assert lost == pytest.approx(100 * (whole - ndcg()))


def test_the_network_itself_is_left_alone():
    made = network(True)
    before = {name: tensor.clone() for name, tensor in made.weights().items()}
    validation = MADE.X[HELD_OUT], MADE.Y[HELD_OUT]
    options = {"sparse": True, "aim": "f1", "reporter": Reporter()}
    found = rehearse(made, MADE.X, MADE.Y, HELD_OUT, validation, TRAINING, **options)
    assert list(found) == ["nDCG@5", CALIBRATION, THRESHOLD, LOST]
    assert all((tensor == before[name]).all() for name, tensor in made.weights().items())
    assert found == rehearse(made, MADE.X, MADE.Y, HELD_OUT, validation, TRAINING, **options)
