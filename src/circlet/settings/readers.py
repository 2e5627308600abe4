"""The sizes of encoders that read texts, and the names and shapes of their weights; without torch.

`circlet.network.readers` computes with these weights. Their shapes are known here because a damaged folder must be
refused before anything is made that may not fit into memory.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from circlet.settings.network import NetworkSettings

__all__ = ["CHUNKS", "FILTERS", "FILTER_SIZES", "LAYERS", "WIDENED", "reader_shapes", "reader_width"]

#: XML-CNN: words that filters look at, filters of each size, and parts of a text of which each filter's maximum is
#: kept. Its authors choose the last one by dataset; for texts of a dozen words, more parts would have a word each.
FILTER_SIZES, FILTERS, CHUNKS = (2, 4, 8), 128, 4
#: The transformer: layers, and how many times wider than a word's vector the inside of each is.
LAYERS, WIDENED = 2, 4

Shapes = dict[str, tuple[int, ...]]


def reader_width(settings: NetworkSettings) -> int:
    """How many numbers the encoder makes of a text, before the hidden layers."""
    width = settings.word_width
    return {"cnn": len(FILTER_SIZES) * FILTERS * CHUNKS, "lstm": 4 * width, "transformer": width}[settings.encoder]


def reader_shapes(settings: NetworkSettings, n_words: int) -> Shapes:
    """The shapes of an encoder's weights by name."""
    shapes: Shapes = {"words": (n_words, settings.word_width)}
    shapes |= {f"reader.{name}": shape for name, shape in _OWN[settings.encoder](settings).items()}
    widths = (reader_width(settings), *settings.hidden)
    for i, (before, after) in enumerate(pairwise(widths)):
        shapes |= _linear(f"hidden.layers.{3 * i}", before, after)
    return shapes


def _cnn(settings: NetworkSettings) -> Shapes:
    shapes: Shapes = {}
    for i, size in enumerate(FILTER_SIZES):
        shapes |= {f"filters.{i}.weight": (FILTERS, settings.word_width, size), f"filters.{i}.bias": (FILTERS,)}
    return shapes


def _lstm(settings: NetworkSettings) -> Shapes:
    width = settings.word_width
    gates: Shapes = {"weight_ih_l0": (4 * width, width), "weight_hh_l0": (4 * width, width)}
    gates |= {"bias_ih_l0": (4 * width,), "bias_hh_l0": (4 * width,)}
    directions = ("forwards", "backwards")
    return {f"{direction}.{name}": shape for direction in directions for name, shape in gates.items()}


def _transformer(settings: NetworkSettings) -> Shapes:
    width = settings.word_width
    shapes: Shapes = {"positions": (settings.words_read, width), **_norm("norm", width)}
    for i in range(LAYERS):
        layer = f"layers.{i}"
        shapes |= _norm(f"{layer}.before_attention", width) | _norm(f"{layer}.before_widening", width)
        shapes |= _linear(f"{layer}.attention", width, 3 * width) | _linear(f"{layer}.attended", width, width)
        shapes |= _linear(f"{layer}.widened", width, WIDENED * width)
        shapes |= _linear(f"{layer}.narrowed", WIDENED * width, width)
    return shapes


#: The weights between the vectors of words and the hidden layers.
_OWN: dict[str, Callable[[NetworkSettings], Shapes]] = {
    "cnn": _cnn,
    "lstm": _lstm,
    "transformer": _transformer,
}


def _linear(name: str, before: int, after: int) -> Shapes:
    return {f"{name}.weight": (after, before), f"{name}.bias": (after,)}


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}
