"""Layers of the readers: pooling by hand, padding that changes nothing, and what they can learn."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from circlet.encoders import find
from circlet.network import Network
from circlet.network.encoders import as_batch, label_sets
from circlet.scoring.heads import HEADS
from circlet.settings import NetworkSettings, TrainingSettings
from circlet.settings.network import LOSSES
from circlet.training import train
from circlet_paper.reader_layers import READERS, ReaderNetwork, dynamic_max_pool
from circlet_paper.readers import RESERVED, WordReader, WordRows

WORDS = 12
#: The heads that fast tests train.
QUICK = ("chrr", "chrr-amplitude", "fc")


def rows_of(texts: list[list[int]]) -> WordRows:
    starts = np.append(0, np.cumsum([len(text) for text in texts], dtype=np.int64))
    return WordRows(np.array([word for text in texts for word in text], dtype=np.int32), starts, 1)


def reader(encoder: str, embedding: int = 8) -> WordReader:
    made = find(encoder).of({"embedding": embedding})
    made.restore({"words": [f"word {number}" for number in range(RESERVED, WORDS)]}, {})
    assert isinstance(made, WordReader)
    return made


def made(encoder: str, dropout: float = 0.0) -> ReaderNetwork:
    settings = NetworkSettings(encoder=encoder, dropout=dropout)
    module = reader(encoder).module(settings, generator=torch.Generator().manual_seed(1), noise=torch.Generator())
    assert isinstance(module, ReaderNetwork)
    return module


class TestDynamicMaxPool:
    def test_by_hand(self):
        # Seven words in three parts: words 0 to 2, 2 to 4, 4 to 6. What is behind the end does not count.
        maps = torch.tensor([[[1.0, 5, 2, 0, 3, 4, 9, 99]], [[7.0, 1, 2, 3, 4, 5, 6, 99]]])
        assert dynamic_max_pool(maps, torch.tensor([7, 7]), 3).tolist() == [[[5, 3, 9]], [[7, 4, 6]]]
        assert dynamic_max_pool(maps, torch.tensor([4, 2]), 2).tolist() == [[[5, 2]], [[7, 1]]]

    def test_parts_of_short_texts_overlap(self):
        maps = torch.tensor([[[3.0, 8, 99, 99]]])
        assert dynamic_max_pool(maps, torch.tensor([2]), 4).tolist() == [[[3, 3, 8, 8]]]
        assert dynamic_max_pool(maps, torch.tensor([1]), 4).tolist() == [[[3, 3, 3, 3]]]

    def test_the_gradient_goes_to_the_maxima(self):
        maps = torch.tensor([[[1.0, 5, 2, 0]]], requires_grad=True)
        dynamic_max_pool(maps, torch.tensor([3]), 2).sum().backward()
        assert maps.grad is not None
        assert maps.grad.tolist() == [[[0, 2, 0, 0]]]  # the parts are words 0 to 1 and 1 to 2

    @given(length=st.integers(1, 9), parts=st.integers(1, 5), seed=st.integers(0, 99))
    def test_it_is_adaptive_pooling_of_the_text_alone(self, length, parts, seed):
        maps = torch.randn(2, 3, 9, generator=torch.Generator().manual_seed(seed))
        wanted = torch.nn.functional.adaptive_max_pool1d(maps[:, :, :length], parts)
        assert torch.equal(dynamic_max_pool(maps, torch.tensor([length, length]), parts), wanted)


@pytest.mark.parametrize("encoder", READERS)
class TestEncoders:
    @given(texts=st.lists(st.lists(st.integers(1, WORDS - 1), max_size=12), min_size=1, max_size=5))
    @settings(max_examples=20)
    def test_a_text_is_the_same_alone_and_beside_longer_ones(self, encoder, texts):
        network = made(encoder).eval()
        rows = rows_of(texts)
        with torch.no_grad():
            together = network(as_batch(rows))
            for row in range(len(texts)):
                alone = network(as_batch(rows[row : row + 1]))
                torch.testing.assert_close(alone[0], together[row], rtol=1e-4, atol=1e-5)

    def test_the_order_of_words_matters(self, encoder):
        network = made(encoder).eval()
        one, other = network(as_batch(rows_of([[2, 3, 4, 5, 6], [6, 4, 2, 5, 3]])))
        assert (one - other).abs().max() > 1e-4

    def test_weights_have_the_shapes_that_are_known_without_torch(self, encoder):
        found = {name: tuple(weight.shape) for name, weight in made(encoder).state_dict().items()}
        assert found == reader(encoder).shapes()

    def test_weights_come_from_the_generator_alone(self, encoder):
        state = torch.get_rng_state()
        first, second = made(encoder).state_dict(), made(encoder).state_dict()
        assert torch.equal(torch.get_rng_state(), state)
        assert all(torch.equal(first[name], second[name]) for name in first)

    def test_padding_learns_nothing(self, encoder):
        network = made(encoder).train()
        values = network(as_batch(rows_of([[2, 3], [4], []])))
        values.square().sum().backward()
        gradient = network.words.grad
        assert gradient is not None
        assert not gradient[0].any()
        assert gradient[2:5].abs().sum(1).all()
        assert not gradient[5:].any()

    def test_dropout_is_part_of_it(self, encoder):
        network, ids = made(encoder, dropout=0.5).train(), as_batch(rows_of([[2, 3, 4]]))
        assert not torch.equal(network(ids), network(ids))
        network.eval()
        assert torch.equal(network(ids), network(ids))


@pytest.mark.parametrize(
    "head", [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in HEADS]
)
@pytest.mark.parametrize("encoder", READERS)
def test_every_head_learns_with_every_encoder(encoder, head):
    # The label is which of two words comes first, which no bag of words can tell.
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 48)
    fillers = random.integers(4, WORDS, (48, 2))
    texts = [
        [a, *((2, 3) if label else (3, 2)), b] for label, (a, b) in zip(labels, fillers.tolist(), strict=True)
    ]
    rows, Y = rows_of(texts), sp.csr_matrix(np.eye(2, dtype=np.float32)[labels])
    settings, own = (
        NetworkSettings(encoder=encoder, head=head, hidden=(16,), dim=8, dropout=0.0),
        reader(encoder, 16),
    )
    network = Network(settings, own.width, 2, sparse=False, encoder=own)
    train(network, rows, Y, TrainingSettings(epochs=25, batch_size=8, lr=5e-3))
    network.eval()
    with torch.no_grad():
        scores = network.logits(as_batch(rows))
    assert (scores.argmax(1).numpy() == labels).mean() > 0.9


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss(loss):
    settings, texts = NetworkSettings(encoder="cnn", hidden=(8,), dim=8, loss=loss), reader("cnn")
    network = Network(settings, texts.width, 4, sparse=False, encoder=texts)
    value = network.loss(network(as_batch(rows_of([[2, 3], [4]]))), label_sets(sp.csr_matrix(np.eye(2, 4))))
    value.backward()
    assert torch.isfinite(value)
    assert network.encoder.reader.words.grad.any()
