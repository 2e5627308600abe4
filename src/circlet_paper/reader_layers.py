"""The layers of the readers: from the numbers of words, in their order, to a vector of the text.

Each word has a learned vector. A *reader* makes one vector of those of a text:

| name | what it is |
|---|---|
| `cnn` | XML-CNN (Liu et al. 2017): filters over 2, 4 and 8 words, the maximum of each in every part of a text |
| `lstm` | an LSTM in each direction; mean and maximum of its states |
| `transformer` | two layers of attention with learned positions; their mean |

Short texts of a batch are padded, and padding never changes what a text's own words give: filters and maxima end
with the text, states at the padding are left out, and nobody attends to it. A text without words counts as one
word whose vector is zero.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu, scaled_dot_product_attention

from circlet.network import Dropout, NetworkSettings, linear, normal
from circlet_paper.readers import (
    ATTENTION_HEADS,
    CHUNKS,
    FILTER_SIZES,
    FILTERS,
    LAYERS,
    PADDING,
    RESERVED,
    WIDENED,
    WordReader,
)

#: What initial weights are drawn from; None if they will be loaded.
Source = torch.Generator | None
#: Deviation of the vectors of words at first, and of positions.
SPREAD, POSITION_SPREAD = 0.1, 0.02


class ReaderNetwork(nn.Module):
    """From the numbers of words, `(batch, longest)` with `PADDING` at the end of short texts, to vectors.

    Parameters
    ----------
    of : WordReader
        Knows the words, and the sizes.
    settings : NetworkSettings
        Half of its dropout is that of the vectors of words, as in XML-CNN.
    generator : torch.Generator or None
        For the initial weights; None if they will be loaded.
    noise : torch.Generator
        For dropout, on the device of training.
    """

    def __init__(
        self, of: WordReader, settings: NetworkSettings, *, generator: Source, noise: torch.Generator
    ) -> None:
        super().__init__()
        words = normal((of.n_words, of.embedding), SPREAD, generator)
        words[:RESERVED] = 0
        self.words = nn.Parameter(words)
        self.drop = Dropout(settings.dropout / 2, noise)
        self.reader: nn.Module = READERS[of.name](of, settings, generator, noise)

    def forward(self, ids: Tensor) -> Tensor:
        """Map the words of a batch to `(batch, width)`."""
        lengths = (ids != PADDING).sum(1).clamp_(min=1)
        # The gradient of the padding's vector is zero, so the vector stays zero.
        vectors = nn.functional.embedding(ids, self.words, padding_idx=PADDING)
        read: Tensor = self.reader(self.drop(vectors), lengths)
        return read


class ConvolutionalReader(nn.Module):
    """`cnn`: a filter looks at every word and those that follow it, with zeros after the last."""

    def __init__(
        self, of: WordReader, settings: NetworkSettings, generator: Source, noise: torch.Generator
    ) -> None:
        super().__init__()
        self.filters = nn.ModuleList(_convolution(of.embedding, size, generator) for size in FILTER_SIZES)

    def forward(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """Map vectors `(batch, longest, width)` to `(batch, filters · parts)`."""
        by_number = vectors.transpose(1, 2)
        filters = zip(self.filters, FILTER_SIZES, strict=True)
        maps = [layer(pad(by_number, (0, size - 1))) for layer, size in filters]
        # ReLU after the maximum gives the same as before it, of fewer numbers.
        return relu(dynamic_max_pool(torch.cat(maps, dim=1), lengths, CHUNKS)).flatten(1)


def dynamic_max_pool(maps: Tensor, lengths: Tensor, parts: int) -> Tensor:
    """The maximum of each filter in every part of a text, `(batch, filters, parts)`.

    Part j of a text of n words are those from ⌊j n / parts⌋ to ⌈(j + 1) n / parts⌉, so no part is empty, and the
    parts of a short text overlap.

    Parameters
    ----------
    maps : Tensor of shape (batch, filters, longest)
    lengths : Tensor of shape (batch,)
        At least 1 each.
    parts : int
    """
    places, ends = torch.arange(maps.shape[2], device=maps.device), lengths[:, None]
    with torch.no_grad():
        # Finding the places first, and the gradient of what is there later, takes a tenth of amax's time.
        best = []
        for part in range(parts):
            first, last = part * ends // parts, ((part + 1) * ends + parts - 1) // parts
            outside = (places < first) | (places >= last)
            best.append(maps.masked_fill(outside[:, None], -torch.inf).argmax(2))
    return maps.gather(2, torch.stack(best, dim=2))


class RecurrentReader(nn.Module):
    """`lstm`: states in both directions, each as wide as a word's vector."""

    def __init__(
        self, of: WordReader, settings: NetworkSettings, generator: Source, noise: torch.Generator
    ) -> None:
        super().__init__()
        self.forwards, self.backwards = (_lstm(of.embedding, generator) for _ in range(2))

    def forward(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """Map vectors `(batch, longest, width)` to `(batch, 4 · width)`."""
        places, ends = torch.arange(vectors.shape[1], device=vectors.device), lengths[:, None]
        present = (places < ends)[:, :, None]
        # Words in reverse, with the padding still last: what comes after a word never changes its state.
        turned = torch.where(places < ends, ends - 1 - places, places)
        backwards = vectors.gather(1, turned[:, :, None].expand_as(vectors))
        pooled = []
        # In float32: where layers compute in bfloat16, cuDNN's LSTM takes float16, in which gradients vanish.
        with torch.autocast(vectors.device.type, enabled=False):
            read = self.forwards(vectors.float()), self.backwards(backwards.float())
        for states, _ in read:
            highest = dynamic_max_pool(states.transpose(1, 2), lengths, 1).squeeze(2)
            pooled += [_mean(states, present, ends), highest]
        return torch.cat(pooled, dim=1)


class AttentionReader(nn.Module):
    """`transformer`."""

    def __init__(
        self, of: WordReader, settings: NetworkSettings, generator: Source, noise: torch.Generator
    ) -> None:
        super().__init__()
        width = of.embedding
        self.positions = nn.Parameter(normal((of.max_words, width), POSITION_SPREAD, generator))
        self.layers = nn.ModuleList(_AttentionLayer(of, settings, generator, noise) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(width)

    def forward(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """Map vectors `(batch, longest, width)` to `(batch, width)`."""
        places, ends = torch.arange(vectors.shape[1], device=vectors.device), lengths[:, None]
        present = places < ends
        x = vectors + self.positions[: vectors.shape[1]]
        for layer in self.layers:
            x = layer(x, present)
        return _mean(self.norm(x), present[:, :, None], ends)


class _AttentionLayer(nn.Module):
    """Attention, then a wide layer for each word; both add to what they are given, and normalize it first."""

    def __init__(
        self, of: WordReader, settings: NetworkSettings, generator: Source, noise: torch.Generator
    ) -> None:
        super().__init__()
        width, layer = of.embedding, partial(linear, generator=generator, initial=settings.initial)
        self.before_attention, self.before_widening = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.attended = layer(width, 3 * width), layer(width, width)
        self.widened, self.narrowed = layer(width, WIDENED * width), layer(WIDENED * width, width)
        self.drop = Dropout(settings.dropout / 2, noise)

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        batch, longest, width = x.shape
        split = self.attention(self.before_attention(x)).view(batch, longest, 3, ATTENTION_HEADS, -1)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        found = scaled_dot_product_attention(query, key, value, attn_mask=present[:, None, None, :])
        x = x + self.drop(self.attended(found.transpose(1, 2).reshape(batch, longest, width)))
        out: Tensor = x + self.drop(self.narrowed(relu(self.widened(self.before_widening(x)))))
        return out


#: By the names of `circlet_paper.readers`.
READERS: dict[str, Any] = {
    "cnn": ConvolutionalReader,
    "lstm": RecurrentReader,
    "transformer": AttentionReader,
}


def _mean(states: Tensor, present: Tensor, lengths: Tensor) -> Tensor:
    """The mean of the states of a text's own words, `(batch, width)`."""
    return states.masked_fill(~present, 0).sum(1) / lengths


def _convolution(width: int, size: int, generator: Source) -> nn.Conv1d:
    with torch.device("meta"):
        layer = nn.Conv1d(width, FILTERS, size)
    layer.weight = nn.Parameter(normal((FILTERS, width, size), (2 / (width * size)) ** 0.5, generator))
    layer.bias = nn.Parameter(torch.zeros(FILTERS))
    return layer


def _lstm(width: int, generator: Source) -> nn.LSTM:
    """An LSTM that starts with what torch's have, drawn from `generator`."""
    with torch.device("meta"):
        layer = nn.LSTM(width, width, batch_first=True)
    layer.to_empty(device="cpu")
    if generator is not None:
        with torch.no_grad():
            for weight in layer.parameters():
                weight.uniform_(-(width**-0.5), width**-0.5, generator=generator)
    return layer
