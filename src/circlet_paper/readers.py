"""`--encoder cnn`, `lstm` and `transformer`: networks trained from scratch that read a text's words in order.

Words are defined, and texts prepared, as in `circlet.features.vectorizer`. Each known word has a number, and texts
become rows of numbers. `circlet_paper.reader_layers` makes vectors of them; this module, without torch, knows the
shapes of its weights.

The settings that are left open have rules of their own. The hidden layer is that of XML-CNN (Liu et al. 2017).
Learning rate and dropout come from a few short trials on held-out rows of pydocs, without stored results: the CNN
learned more at 0.003 and 0.006 than at 0.001, and less with XML-CNN's dropout of 0.5 than with 0.2. More documents
need fewer epochs by the same power as with features. No trial was made for the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from circlet.checks import is_integer
from circlet.encoders import Shapes, TextEncoder, TextRows
from circlet.errors import DataError, ParameterError
from circlet.features.vectorizer import Vocabulary, Words, check_texts, normalize_text
from circlet.settings import Facts, NetworkSettings
from circlet.settings.auto import ALL_EPOCHS, MANY_DOCUMENTS, VERY_MANY, Effort, batch_size
from circlet.settings.network import check_frequencies

if TYPE_CHECKING:
    import torch

#: The number that pads short texts, and the number of all unknown words.
PADDING, UNKNOWN = 0, 1
#: How many numbers are reserved: the known words follow.
RESERVED = 2
#: XML-CNN: words that filters look at, filters of each size, and parts of a text of which each filter's maximum is
#: kept. Its authors choose the last one by dataset; for texts of a dozen words, more parts would have a word each.
FILTER_SIZES, FILTERS, CHUNKS = (2, 4, 8), 128, 4
#: The transformer: layers, how many times wider than a word's vector the inside of each is, and heads of its
#: attention, which share the numbers of a word.
LAYERS, WIDENED, ATTENTION_HEADS = 2, 4, 4


class WordRows(TextRows):
    """Word numbers of texts, concatenated.

    Parameters
    ----------
    ids : int32 ndarray
        Word numbers of all texts; none is `PADDING`.
    starts : int64 ndarray of shape (n + 1,)
        The words of text i are from ``starts[i]`` to ``starts[i + 1]``.
    width : int
        Numbers of the vector that is made of each text.
    """

    def __init__(self, ids: npt.NDArray[np.int32], starts: npt.NDArray[np.int64], width: int) -> None:
        self.ids, self.starts = ids, starts
        self.shape = len(starts) - 1, width

    def __getitem__(self, rows: Any) -> WordRows:
        chosen = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else np.asarray(rows)
        lengths = self.starts[chosen + 1] - self.starts[chosen]
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        places = np.arange(starts[-1]) + np.repeat(self.starts[chosen] - starts[:-1], lengths)
        return WordRows(self.ids[places], starts, self.shape[1])

    @property
    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        return self.ids, self.starts

    def batch(self) -> npt.NDArray[np.int64]:
        """Return the word numbers as an array `(n, longest)`, at least one wide, padded with `PADDING`."""
        lengths = self.counts()
        present = np.arange(max(1, int(lengths.max(initial=0)))) < lengths[:, None]
        grid = np.full(present.shape, PADDING, dtype=np.int64)
        grid[present] = self.ids
        return grid

    def counts(self) -> npt.NDArray[np.int64]:
        return np.diff(self.starts)

    def without(self, dropped: npt.NDArray[np.bool_]) -> WordRows:
        """Return the same texts with `UNKNOWN` where the mask over `ids` is true."""
        return WordRows(np.where(dropped, np.int32(UNKNOWN), self.ids), self.starts, self.shape[1])

    def as_if_new(self, held_out: npt.NDArray[np.int64]) -> WordRows:
        """Return some texts, with `UNKNOWN` for the words that no other text has."""
        own, all_times = self[held_out], np.bincount(self.ids)
        return own.without((all_times == np.bincount(own.ids, minlength=len(all_times)))[own.ids])


class WordReader(TextEncoder):
    """Turns texts into word numbers, in the order of the words, and these into vectors.

    Parameters
    ----------
    embedding : int
        Numbers per word.
    max_words : int
        Keep only the first `max_words` words of a text.
    min_df : int or float
        Leave out words that occur in fewer texts than this: a count, or a fraction below 1 of the texts.
    max_features : int or None
        Keep only this many words, the most frequent ones.

    Examples
    --------
    >>> from circlet_paper.readers import Recurrent
    >>> reader = Recurrent(max_words=3)
    >>> reader.fit(["a red fox", "the red car"]).shape
    (2, 1024)
    >>> reader.words()
    ['a', 'car', 'fox', 'red', 'the']
    >>> reader.documents(["The blue fox ran", "red"]).batch().tolist()  # 1 is unknown, 0 is padding
    [[6, 1, 4], [5, 0, 0]]
    """

    learns = True
    options = ("embedding", "max_words", "min_df", "max_features")

    def __init__(
        self,
        *,
        embedding: int = 256,
        max_words: int = 256,
        min_df: int | float = 1,
        max_features: int | None = None,
    ) -> None:
        for name, value in {"embedding": embedding, "max_words": max_words}.items():
            if not is_integer(value, 1):
                raise ParameterError(f"`{name}`: found {value!r}; wanted an integer >= 1")
        self.embedding, self.max_words = int(embedding), int(max_words)
        self.min_df, self.max_features = check_frequencies(min_df, max_features)
        self._terms = Words(1, 1)
        self._vocabulary: Vocabulary | None = None

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.settings().items())})"
        )

    def fit(self, texts: Iterable[str]) -> WordRows:
        """Learn the words of `texts`, and return their rows."""
        first_seen: dict[str, int] = {}
        found = [
            np.fromiter((first_seen.setdefault(word, len(first_seen)) for word in words), np.int64, len(words))
            for words in map(self._terms, map(normalize_text, check_texts("fit", texts)))
        ]
        starts = _ends(found)
        ids = np.concatenate([*found, np.empty(0, dtype=np.int64)])
        # Sorted by code points, as in a vectorizer; of equally frequent words, the first ones in this order stay.
        words = np.array(list(first_seen), dtype=object)
        order = np.array(sorted(range(len(words)), key=words.__getitem__), dtype=np.int64)
        kept = order[self._frequent(ids, starts, len(words))[order]]
        if len(kept) and self.max_features is not None:
            times = np.bincount(ids, minlength=len(words))[kept]
            kept = kept[np.sort(np.argsort(-times, kind="stable")[: self.max_features])]
        if not len(kept):
            raise DataError(
                f"found no word in at least min_df={self.min_df} of the {len(found)} texts; "
                "wanted texts that have words"
            )
        self._vocabulary = Vocabulary(words[kept].tolist())
        numbers = np.full(len(words), UNKNOWN, dtype=np.int32)
        numbers[kept] = RESERVED + np.arange(len(kept), dtype=np.int32)
        # Only now are texts cut: words behind the cut count, too, when the vocabulary is learned.
        lengths = np.diff(starts)
        place = np.arange(len(ids)) - np.repeat(starts[:-1], lengths)
        shorter = np.append(0, np.cumsum(np.minimum(lengths, self.max_words)))
        return WordRows(numbers[ids][place < self.max_words], shorter, self.width)

    def documents(self, texts: Iterable[str]) -> WordRows:
        """Return the word numbers of each text; unknown words get the number `UNKNOWN`."""
        known = self._known()
        found = [
            known.lookup(self._terms(text)[: self.max_words])
            for text in map(normalize_text, check_texts("documents", texts))
        ]
        columns = np.concatenate([*found, np.empty(0, dtype=np.intc)])
        ids = np.where(columns < 0, UNKNOWN, columns + RESERVED).astype(np.int32)
        return WordRows(ids, _ends(found), self.width)

    def words(self) -> list[str]:
        """Return the known words, in order of code points."""
        return self._known().terms

    def module(
        self, settings: NetworkSettings, *, generator: torch.Generator | None, noise: torch.Generator
    ) -> torch.nn.Module:
        from circlet_paper.reader_layers import ReaderNetwork

        return ReaderNetwork(self, settings, generator=generator, noise=noise)

    @property
    def n_words(self) -> int:
        """Number of different word numbers, including the reserved ones."""
        return RESERVED + len(self._known())

    def shapes(self) -> Shapes:
        own = {f"reader.{name}": shape for name, shape in self._own_shapes().items()}
        return {"words": (self.n_words, self.embedding), **own}

    def _own_shapes(self) -> Shapes:
        """Return the shapes of the weights that make one vector of those of a text's words."""
        raise NotImplementedError

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        return {"words": self.words()}, {}

    def restore(self, values: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> None:
        words = values.get("words")
        if set(values) != {"words"} or arrays or not isinstance(words, list) or set(map(type, words)) != {str}:
            raise DataError("found damaged words of an encoder; wanted a list of text strings")
        self._vocabulary = Vocabulary(words)
        if not self._vocabulary.all_different:
            raise DataError("found a word twice among those of an encoder; wanted each once")

    def _frequent(
        self, ids: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], n_words: int
    ) -> npt.NDArray[np.bool_]:
        """Return a mask of the words that occur in enough texts, `(n_words,)`."""
        n = len(starts) - 1
        texts = np.repeat(np.arange(n), np.diff(starts))
        once = np.unique(texts * max(1, n_words) + ids)
        least = self.min_df if is_integer(self.min_df) else self.min_df * n
        enough: npt.NDArray[np.bool_] = np.bincount(once % max(1, n_words), minlength=n_words) >= least
        return enough

    def _known(self) -> Vocabulary:
        if self._vocabulary is None:
            raise ParameterError(f"this {type(self).__name__} is not fitted: call `fit` first")
        return self._vocabulary


class Convolutional(WordReader):
    """`cnn`: XML-CNN (Liu et al. 2017)."""

    name, width = "cnn", len(FILTER_SIZES) * FILTERS * CHUNKS

    def _own_shapes(self) -> Shapes:
        shapes: Shapes = {}
        for i, size in enumerate(FILTER_SIZES):
            shapes |= {f"filters.{i}.weight": (FILTERS, self.embedding, size), f"filters.{i}.bias": (FILTERS,)}
        return shapes


class Recurrent(WordReader):
    """`lstm`: a bidirectional LSTM."""

    name = "lstm"

    @property
    def width(self) -> int:  # type: ignore[override]
        return 4 * self.embedding

    def _own_shapes(self) -> Shapes:
        width = self.embedding
        gates: Shapes = {"weight_ih_l0": (4 * width, width), "weight_hh_l0": (4 * width, width)}
        gates |= {"bias_ih_l0": (4 * width,), "bias_hh_l0": (4 * width,)}
        directions = ("forwards", "backwards")
        return {f"{direction}.{name}": shape for direction in directions for name, shape in gates.items()}


class Transformer(WordReader):
    """`transformer`: a small one, with learned positions."""

    name = "transformer"

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        if self.embedding % ATTENTION_HEADS:
            raise ParameterError(
                f"`embedding`: found {self.embedding}; wanted a multiple of {ATTENTION_HEADS} for {self.name}"
            )

    @property
    def width(self) -> int:  # type: ignore[override]
        return self.embedding

    def _own_shapes(self) -> Shapes:
        width = self.embedding
        shapes: Shapes = {"positions": (self.max_words, width), **_norm("norm", width)}
        for i in range(LAYERS):
            layer = f"layers.{i}"
            shapes |= _norm(f"{layer}.before_attention", width) | _norm(f"{layer}.before_widening", width)
            shapes |= _linear(f"{layer}.attention", width, 3 * width) | _linear(f"{layer}.attended", width, width)
            shapes |= _linear(f"{layer}.widened", width, WIDENED * width)
            shapes |= _linear(f"{layer}.narrowed", WIDENED * width, width)
        return shapes


def _linear(name: str, before: int, after: int) -> Shapes:
    return {f"{name}.weight": (after, before), f"{name}.bias": (after,)}


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _ends(found: list[Any]) -> npt.NDArray[np.int64]:
    return np.append(0, np.cumsum([len(each) for each in found], dtype=np.int64))


# Rules for settings that are left open


def _epochs(facts: Facts, effort: Effort) -> tuple[int, str]:
    n, most = facts.documents, min(40, 2 * effort.epochs + 6)
    if n > ALL_EPOCHS:
        fewer = round(most * (ALL_EPOCHS / n) ** effort.fewer)
        return max(effort.fewest, fewer), "more documents need fewer epochs"
    # The encoder starts with random word vectors, so it needs three times the steps of a preset.
    needed = math.ceil(3 * effort.steps / math.ceil(n / batch_size(facts, effort)[0]))
    if needed > most:
        return min(needed, 3 * most), "few documents need more epochs"
    return most, "the encoder learns what words mean, too"


def _hidden(facts: Facts, effort: Effort) -> tuple[tuple[int, ...], str]:
    many = facts.documents > MANY_DOCUMENTS
    return ((1024,), "many documents can teach more") if many else ((512,), "as in XML-CNN")


def _dropout(facts: Facts, effort: Effort) -> tuple[float, str]:
    if facts.documents > VERY_MANY:
        return 0.1, "very many documents need little of it"
    if facts.documents > MANY_DOCUMENTS:
        return 0.2, "more documents need less of it"
    return 0.3, "more of it makes learning slow"


def _min_df(facts: Facts, effort: Effort) -> tuple[int, str]:
    if facts.documents > 200:
        return 2, "words of a single text show what an unknown word means"
    return 1, "all words"


WordReader.rules = {
    "scaling": lambda facts, effort: ("none", "the encoder reads words"),
    "char_ngrams": lambda facts, effort: (None, "the encoder reads words"),
    "min_df": _min_df,
    "max_features": lambda facts, effort: (None, "all of them"),
    "hidden": _hidden,
    "dropout": _dropout,
    "first_layer": lambda facts, effort: ("same", "the encoder reads words, and has no features"),
    "epochs": _epochs,
    "lr": lambda facts, effort: (3e-3, "words that mean nothing at first are learned faster"),
}
