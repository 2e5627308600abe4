"""Encoders of texts, found by name: what makes vectors of documents, in place of a bag of words or beside one.

An encoder is a subclass of `TextEncoder`. A package offers it as an entry point of the group `circlet.encoders`:

    [project.entry-points."circlet.encoders"]
    mine = "my_package.encoders:Mine"

Other code calls `register`. The name is then a value of the setting `encoder` (`circlet train --encoder mine`). A
model's folder stores this name to find the class again. Its `encoder.json` has the encoder's settings and what it
has learned, never a module to import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from circlet.errors import DataError, ParameterError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    import torch

__all__ = [
    "FEATURES",
    "GROUP",
    "RowPairs",
    "Shapes",
    "TextEncoder",
    "TextInput",
    "TextRows",
    "find",
    "names",
    "register",
]

#: The value of the setting `encoder` for networks without an encoder of texts.
FEATURES = "features"
#: The group of entry points.
GROUP = "circlet.encoders"
#: Packages beside this one, whose `ENCODERS` need no installed metadata: a checkout may have none, or old ones.
BESIDE = ("circlet_paper",)

Shapes = dict[str, tuple[int, ...]]


class TextEncoder:
    """Makes vectors of texts. Several threads may call `documents` at once.

    A subclass needs `name`, `width` and `documents`. If it has something to learn from the training texts before
    the network is trained, it overrides `fit`, `state` and `restore`. If it is trained with the network, it sets
    `learns` and overrides `module` and `shapes`.

    >>> class Lengths(TextEncoder):
    ...     name, width = "lengths", 2
    ...
    ...     def documents(self, texts):
    ...         return np.array([[len(text), text.count(" ")] for text in texts], dtype=np.float32)
    """

    #: The name by which it is found again.
    name: ClassVar[str]
    #: Whether it is trained with the network. Then only torch can run it.
    learns: ClassVar[bool] = False
    #: Names of the arguments of its constructor, which are attributes too and ready for JSON. If there are
    #: settings of a run by these names, such as `embedding`, they are passed on.
    options: ClassVar[tuple[str, ...]] = ()
    #: Rules for settings of a run that are left open, instead of those of `circlet.settings.auto`.
    rules: ClassVar[Mapping[str, Callable[..., tuple[Any, str]]]] = {}
    #: Numbers of a document's vector.
    width: int

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> TextEncoder:
        """Make an encoder with those settings of a run that are among its `options` and not None."""
        return cls(**{name: settings[name] for name in cls.options if settings.get(name) is not None})

    def settings(self) -> dict[str, Any]:
        """Return the arguments of an equal encoder, ready for JSON."""
        return {name: getattr(self, name) for name in self.options}

    def fit(self, texts: Sequence[str]) -> Any:
        """Learn what is needed from the training texts, such as a vocabulary, and return their `documents`."""
        return self.documents(texts)

    def documents(self, texts: Sequence[str]) -> Any:
        """Return vectors, a float32 array `(n, width)`; or `TextRows`, of which `module` makes vectors."""
        raise NotImplementedError

    def module(
        self, settings: Any, *, generator: torch.Generator | None, noise: torch.Generator
    ) -> torch.nn.Module:
        """Return a new module that maps a batch of `documents`, as a tensor, to `(batch, width)`.

        Parameters
        ----------
        settings : NetworkSettings
            Settings of the network, such as its dropout.
        generator : torch.Generator or None
            For the initial weights; None if they will be loaded.
        noise : torch.Generator
            For dropout (`circlet.network.Dropout`), on the device of training.
        """
        raise NotImplementedError

    def shapes(self) -> Shapes:
        """Return the shapes of the module's weights by name; without torch, they tell a damaged folder."""
        return {}

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return what `fit` learned: values ready for JSON, and arrays by name."""
        return {}, {}

    def restore(self, values: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Take what `state` returned; raise `DataError` if it is damaged."""


class TextRows:
    """What an encoder that learns makes of texts, as input of its module; selected like the rows of a matrix."""

    ndim = 2
    #: Number of texts, and `width` of their encoder.
    shape: tuple[int, int]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> TextRows:
        """Return some of the texts, selected by a slice or an array of positions from 0."""
        raise NotImplementedError

    @property
    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """The whole content, for digests."""
        raise NotImplementedError

    def batch(self) -> npt.NDArray[Any]:
        """Return all rows as one array, the module's input."""
        raise NotImplementedError

    def counts(self) -> npt.NDArray[np.int64]:
        """Return how many values each row has, `(n,)`: those that input dropout may drop."""
        raise NotImplementedError

    def without(self, dropped: npt.NDArray[np.bool_]) -> TextRows:
        """Return the same rows without the values where the mask, over the values of all rows, is true."""
        raise NotImplementedError

    def as_if_new(self, held_out: npt.NDArray[np.int64]) -> TextRows:
        """Return the rows at these positions as if no other text had been known but those of the other rows."""
        raise NotImplementedError


class RowPairs:
    """Bags of words, and beside them what an encoder made of the same texts: rows of both, or a batch of both."""

    ndim = 2

    def __init__(self, features: Any, texts: Any) -> None:
        self.features, self.texts = features, texts

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, rows: Any) -> RowPairs:
        """Return some of the rows, selected by a slice or an array of positions from 0."""
        return RowPairs(self.features[rows], self.texts[rows])

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the bags of words."""
        shape: tuple[int, int] = self.features.shape
        return shape

    def to(self, device: torch.device) -> RowPairs:
        """Return the same batch on a device."""
        return RowPairs(self.features.to(device), self.texts.to(device))


def features_of(rows: Any) -> Any:
    """Return the bags of words of row pairs; other rows as they are."""
    return rows.features if isinstance(rows, RowPairs) else rows


class TextInput:
    """Makes rows of texts for a model with an encoder, as a `TextVectorizer` does for a model without one.

    The vectorizer `words` makes the bags of words beside the encoder's vectors, if the network has both.
    """

    def __init__(self, encoder: TextEncoder, words: Any = None) -> None:
        self.encoder, self.words = encoder, words

    @property
    def n_features(self) -> int:
        """Number of columns: of the bags of words, or of the encoder's vectors if they are alone."""
        return self.encoder.width if self.words is None else self.words.n_features

    def parameters(self) -> dict[str, Any]:
        """Return the settings of encoder and vectorizer."""
        return {**self.encoder.settings(), **({} if self.words is None else self.words.parameters())}

    def fit_transform(self, texts: Sequence[str]) -> Any:
        """Learn from `texts` and return their rows."""
        bags = None if self.words is None else self.words.fit_transform(texts)
        return self._beside(bags, self.encoder.fit(texts))

    def transform(self, texts: Sequence[str]) -> Any:
        """Return the rows of texts: `RowPairs` with a bag of words, else the encoder's `documents`."""
        return self._beside(self.words and self.words.transform(texts), self.encoder.documents(texts))

    def entries(self, texts: Sequence[str]) -> Any:
        """Return the rows of texts as models without torch take them."""
        return self._beside(self.words and self.words.entries(texts), self.encoder.documents(texts))

    def _beside(self, bags: Any, rows: Any) -> Any:
        if not isinstance(rows, TextRows):
            rows = np.asarray(rows, dtype=np.float32)
            if rows.ndim != 2 or rows.shape[1] != self.encoder.width or not np.isfinite(rows).all():
                raise DataError(
                    f"found vectors of shape {rows.shape} from encoder {self.encoder.name}; wanted "
                    f"{self.encoder.width} finite numbers for each text"
                )
        return rows if bags is None else RowPairs(bags, rows)


_registered: dict[str, type[TextEncoder]] = {}


def register(encoder: type[TextEncoder]) -> type[TextEncoder]:
    """Make a class of encoders known by its name; as a decorator, or before a model that has one is loaded."""
    if _registered.setdefault(encoder.name, encoder) is not encoder or encoder.name == FEATURES:
        raise ParameterError(f"found a second encoder with the name {encoder.name!r}; wanted a name of its own")
    return encoder


@cache
def _installed() -> dict[str, EntryPoint]:
    from importlib.metadata import EntryPoint, entry_points  # which most commands need not wait for

    found = {each.name: each for each in entry_points(group=GROUP)}
    for package in BESIDE:
        own: dict[str, str] = import_module(package).ENCODERS
        found |= {name: EntryPoint(name, place, GROUP) for name, place in own.items()}
    return found


def names() -> list[str]:
    """Return the names of all encoders that are installed or registered, sorted."""
    return sorted({*_installed(), *_registered})


def find(name: str) -> type[TextEncoder]:
    """Return the class of an encoder by its name."""
    if name not in _registered:
        if name not in _installed():
            raise ParameterError(
                f"`encoder`: found {name!r}; wanted one of {', '.join([FEATURES, *names()])}, or another that is "
                "installed or registered (circlet.encoders.register)"
            )
        try:
            register(_installed()[name].load())
        except (ImportError, AttributeError) as error:
            raise ParameterError(f"`encoder`: found {name!r}, which its package cannot load ({error})") from error
    return _registered[name]
