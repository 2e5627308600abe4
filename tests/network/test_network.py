from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from circlet.codebooks import HolographicCodebook, IndependentCodebook, SpectralCodebook
from circlet.errors import ParameterError
from circlet.network import Network, NetworkSettings
from circlet.network import network as network_module
from circlet.network.encoders import Dropout
from circlet.network.losses import LOSSES
from circlet.network.network import make_codebook
from circlet.scoring.heads import HEADS
from circlet.settings.network import COSINES

F, L = 7, 11
X = np.random.default_rng(0).random((5, F), dtype=np.float32)


def small(**changes) -> NetworkSettings:
    return NetworkSettings(**{"dim": 6, "hidden": (8,), **changes})


def make(**changes) -> Network:
    return Network(small(**changes), F, L, sparse=False)


class TestCodebook:
    @pytest.mark.parametrize(
        ("head", "codebook", "kind"),
        [
            ("chrr", "auto", SpectralCodebook),
            ("chrr-sin", "independent", IndependentCodebook),
            ("hrr", "auto", HolographicCodebook),
        ],
    )
    def test_by_head_and_name(self, head, codebook, kind):
        book = make_codebook(small(head=head, codebook=codebook, seed=4), L)
        assert type(book) is kind
        assert (book.n_labels, book.dim, book.seed) == (L, 6, 4)

    def test_fc_has_none(self):
        assert make_codebook(small(head="fc"), L) is None

    def test_a_table_is_kept_only_where_every_step_needs_it_and_it_is_small(self, monkeypatch):
        assert make_codebook(small(codebook="independent", loss="bce"), L).cache
        assert not make_codebook(small(codebook="independent", loss="cosine"), L).cache
        monkeypatch.setattr(network_module, "TABLE_LIMIT", L * 12 - 1)
        assert not make_codebook(small(codebook="independent", loss="bce"), L).cache


class TestNetwork:
    def test_fc_with_cosine(self):
        with pytest.raises(ParameterError, match="wanted bce, mean-bce or softmax"):
            make(head="fc", loss="cosine")

    def test_odd_width_for_chrr_half(self):
        with pytest.raises(
            ParameterError, match=r"chrr-half splits the last .*: found width 9; wanted a multiple of 2"
        ):
            make(head="chrr-half", hidden=(9,))

    @pytest.mark.parametrize("sparse", [True, False])
    @pytest.mark.parametrize("head", HEADS)
    def test_the_seed_decides_all_weights(self, head, sparse):
        first, same, other = (
            Network(small(head=head, hidden=(8, 4), seed=seed), F, L, sparse=sparse) for seed in (3, 3, 4)
        )
        for name, tensor in first.state_dict().items():
            assert torch.equal(tensor, same.state_dict()[name])
            if tensor.dim() > 1:
                assert not torch.equal(tensor, other.state_dict()[name])

    def test_a_seed_of_any_size(self):
        network = make(seed=2**70 + 1)
        network.seed_noise(network.settings.seed, 0)
        assert network(torch.from_numpy(X)).shape == (5, 12)

    def test_the_global_random_state_is_left_alone(self):
        before = torch.get_rng_state()
        Network(small(), F, L, sparse=True)
        network = make(dropout=0.5)
        network.seed_noise(1, 2)
        network(torch.from_numpy(X))
        assert torch.equal(before, torch.get_rng_state())

    def test_noise_follows_from_the_numbers(self):
        network = make(hidden=(50,))
        batch = torch.from_numpy(X)
        outputs = []
        for parts in ((1, 2), (1, 2), (2, 1), (1,)):
            network.seed_noise(*parts)
            outputs.append(network(batch))
        assert torch.equal(outputs[0], outputs[1])
        assert not torch.equal(outputs[0], outputs[2])
        assert not torch.equal(outputs[0], outputs[3])

    def test_dropout_draws_from_the_networks_noise(self):
        network = make(hidden=(8, 8, 8), dropout=0.3)
        (dropout,) = (module for module in network.modules() if isinstance(module, Dropout))
        assert dropout.generator is network.noise
        assert dropout.p == 0.3


class TestStart:
    COUNTS = torch.tensor([0, 1, 5, 10, 0, 2, 2, 2, 9, 0, 1])

    @pytest.mark.parametrize("head", ["chrr", "hrr", "fc"])
    def test_with_bce_a_label_is_as_likely_as_it_is_frequent(self, head):
        network = make(head=head)
        network.start_from(self.COUNTS, 10)
        bias = network.head.output.bias if head == "fc" else network.scorer.bias[:L]
        torch.testing.assert_close(bias.detach().sigmoid(), (self.COUNTS + 0.5) / 11)

    @pytest.mark.parametrize(("head", "loss"), [("chrr", "cosine"), ("chrr", "softmax"), ("fc", "softmax")])
    def test_the_other_losses_have_no_use_for_it(self, head, loss):
        network, same = make(head=head, loss=loss), make(head=head, loss=loss)
        network.start_from(self.COUNTS, 10)
        for name, tensor in network.state_dict().items():
            assert torch.equal(tensor, same.state_dict()[name])


class TestOwnEncoder:
    def test_takes_the_place_of_the_librarys(self):
        encoder = nn.Sequential(nn.Linear(F, 8), nn.Tanh())
        network = Network(small(), F, L, sparse=False, encoder=encoder)
        assert network.encoder is encoder
        assert network.logits(torch.from_numpy(X)).shape == (5, L)
        assert network.parameter_counts()["encoder"] == F * 8 + 8

    def test_one_without_layers_passes_features_on(self):
        # An empty nn.Sequential has length 0, and so is false.
        encoder = nn.Sequential()
        network = Network(small(hidden=(F,)), F, L, sparse=False, encoder=encoder)
        assert network.encoder is encoder
        assert network.parameter_counts()["encoder"] == 0

    def test_of_any_input(self):
        encoder = nn.EmbeddingBag(20, 8)
        network = Network(small(), 20, L, sparse=False, encoder=encoder)
        assert network.logits(torch.tensor([[1, 2, 3], [4, 5, 6]])).shape == (2, L)


class TestParameterCounts:
    def test_by_hand(self):
        network = make(hidden=(8, 4))
        assert network.parameter_counts() == {
            "encoder": F * 8 + 8 + 8 * 4 + 4,
            "head": 4 * 12 + 12,
            "loss": 1 + network.codebook.length,
            "total": F * 8 + 8 + 8 * 4 + 4 + 4 * 12 + 12 + 1 + network.codebook.length,
        }

    @pytest.mark.parametrize("loss", LOSSES)
    @pytest.mark.parametrize("head", HEADS)
    def test_the_parts_are_all_there_is(self, head, loss):
        network = make(head=head, loss="bce" if head == "fc" and loss in COSINES else loss)
        counts = network.parameter_counts()
        assert counts["total"] == sum(p.numel() for p in network.parameters())
        assert counts["total"] == counts["encoder"] + counts["head"] + counts["loss"]

    @pytest.mark.parametrize("head", sorted(set(HEADS) - {"fc"}))
    def test_with_cosine_they_do_not_depend_on_the_labels(self, head):
        few, many = (Network(small(head=head, loss="cosine"), F, n, sparse=True) for n in (10, 100_000))
        assert few.parameter_counts() == many.parameter_counts()


def test_a_blank_network_has_the_shapes_of_a_drawn_one():
    drawn, blank = (
        Network(NetworkSettings(head="chrr-half", dim=6, hidden=(8, 4)), 5, 9, sparse=True, blank=blank)
        for blank in (False, True)
    )
    shapes = [{name: tensor.shape for name, tensor in made.state_dict().items()} for made in (drawn, blank)]
    assert shapes[0] == shapes[1]
    blank.load_state_dict(drawn.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(drawn.parameters(), blank.parameters(), strict=True))
