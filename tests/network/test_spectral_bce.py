"""The loss and its gradients in one pass, against torch's own on dense targets."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import binary_cross_entropy_with_logits

from circlet.algebra import circular
from circlet.codebooks import SpectralCodebook
from circlet.network import losses
from circlet.network.batch import LabelSets, label_sets
from circlet.network.losses import spectral_binary_loss

pytestmark = pytest.mark.usefixtures("one_thread")

N, DIM = 9, 6
BOOK = SpectralCodebook(N, DIM, seed=1)
SLOTS = BOOK.slots_on(torch.device("cpu"))
SETS = [[3], [0, 8, 2], [], [5, 3], []]
ragged = st.lists(st.sets(st.integers(0, N - 1), max_size=4).map(sorted), min_size=1, max_size=5)


def inputs(n: int, seed: int = 0) -> list[torch.Tensor]:
    """Predictions, the logarithm of the scale, and a bias per label."""
    generator = torch.Generator().manual_seed(seed)
    predicted = circular.pack(circular.unpack(torch.randn(n, 2 * DIM, generator=generator)))
    parts = [predicted, torch.randn((), generator=generator), torch.randn(N, generator=generator)]
    return [part.requires_grad_() for part in parts]


def dense(sets: list[list[int]]) -> torch.Tensor:
    targets = torch.zeros(len(sets), N)
    for row, labels in enumerate(sets):
        targets[row, labels] = 1
    return targets


def as_sets(sets: list[list[int]]) -> LabelSets:
    return label_sets(sp.csr_matrix(np.asarray(dense(sets))))


@given(sets=ragged, seed=st.integers(0, 99), logits=st.sampled_from([1, 14, 30, 1000]))
@settings(max_examples=25)
def test_loss_and_gradients_are_torchs_however_many_rows_at_a_time(sets, seed, logits):
    assert BOOK.length > N  # slots without a label have no part in it
    output, log_scale, bias = given_ = inputs(len(sets), seed)
    scores = BOOK.scores(output) * log_scale.exp() + bias
    expected = binary_cross_entropy_with_logits(scores, dense(sets), reduction="sum")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(losses, "LOGITS", logits)
        found = spectral_binary_loss(SLOTS, *given_, as_sets(sets))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(3 * found, given_), torch.autograd.grad(3 * expected, given_))


def test_half_precision_is_computed_in_float32():
    output, log_scale, bias = (part.detach() for part in inputs(len(SETS)))
    found = spectral_binary_loss(SLOTS, output.bfloat16(), log_scale, bias, as_sets(SETS))
    assert found.dtype == torch.float32
    expected = spectral_binary_loss(SLOTS, output, log_scale, bias, as_sets(SETS))
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0)


@pytest.mark.parametrize("filling", [5, 3])
def test_labels_that_only_fill_sets_up_do_not_count(filling):
    # The second document has one label and, to fill up, one of weight 0: another, or the same again.
    filled = LabelSets(
        *(torch.tensor(part) for part in ([0, 8, 3, filling], [0, 2], [0, 0, 1, 1])),
        weights=torch.tensor([1.0, 1, 1, 0]),
    )
    parts = inputs(2)
    found = spectral_binary_loss(SLOTS, *parts, filled)
    expected = spectral_binary_loss(SLOTS, *parts, as_sets([[0, 8], [3]]))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, parts), torch.autograd.grad(expected, parts))
