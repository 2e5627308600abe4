"""How a setting is declared; the settings of a network; sizes and shapes of encoders that read texts.

Help, valid values and defaults of a setting stand in the metadata of its dataclass field. The options of
`circlet train`, Annif's parameters and the estimator's docstring are made from them.

`circlet.network.readers` computes with the weights of such encoders. Their shapes are defined here, without torch,
because a damaged folder must raise an error before anything too large is allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from circlet.checks import is_integer, is_real
from circlet.errors import ParameterError
from circlet.scoring.heads import HEADS

NGrams = tuple[int, int]
#: The value of a setting that is decided from the data.
AUTO = "auto"
#: The panels of `circlet train --help`, in their order.
DATA, MAIN, NETWORK, OPTIMIZATION, OUTPUT = "Data", "What matters", "Network", "Optimization", "Output"


@dataclass(frozen=True)
class Kind:
    """The type and the valid values of a setting.

    Parameters
    ----------
    type : type
        Type of the option on the command line: int, float, bool or str.
    metavar : str
        Placeholder for a value in the help.
    documented : str
        Name of the type in docstrings.
    words : str
        Description of a value as text, such as "integers separated by commas".
    read : callable
        Parses a text; raises ValueError for an invalid one.
    wanted : str
        Description of valid values, after "must be".
    valid : callable
        Whether a value is valid.
    plain : callable
        Converts a valid value to Python's types, since JSON has no NumPy numbers, which a search grid may pass.
    names : collection of str
        Names that are valid values; may grow later.
    auto : bool
        Whether "auto" is valid as well.
    """

    type: type = str
    metavar: str = "TEXT"
    documented: str = "str"
    words: str = "a word"
    read: Callable[[str], Any] = str
    wanted: str = ""
    valid: Callable[[Any], bool] = lambda value: True
    plain: Callable[[Any], Any] = lambda value: value
    names: Collection[str] = ()
    auto: bool = False

    @property
    def choices(self) -> tuple[str, ...]:
        """The names that are valid values; empty if values are not names."""
        return (*([AUTO] if self.auto else []), *self.names)

    def checked(self, name: str, value: Any) -> Any:
        """Convert a valid value to Python's types; raise `ParameterError` if it is not valid."""
        if self.names:
            wanted = f"{'auto or ' if self.auto else ''}one of {', '.join(self.names)}"
            valid = isinstance(value, str) and value in self.choices
        else:
            wanted, valid = self.wanted, self.valid(value)
        if not valid:
            raise ParameterError(f"`{name}` must be {wanted}, got {value!r}")
        return self.plain(value)


@dataclass(frozen=True)
class Setting:
    """A setting of a run.

    Parameters
    ----------
    kind : Kind
        Type and valid values.
    help : str
        Help, one line.
    more : str
        Further documentation.
    usual : Any
        Default of a run. The default of `RunSettings`, which decides nothing from data, may differ.
    panel : str or None
        Panel of `circlet train --help`; None if there is no option.
    option : str
        Name of the option.
    """

    kind: Kind
    help: str
    more: str
    usual: Any
    panel: str | None
    option: str


def setting(
    default: Any,
    kind: Kind,
    line: str,
    more: str = "",
    *,
    panel: str | None = None,
    usual: Any = None,
    option: str = "",
) -> Any:
    """Make a dataclass field with a `Setting` as metadata; `line` is the help, `usual` defaults to `default`."""
    about = Setting(kind, line, more, default if usual is None else usual, panel, option)
    return field(default=default, metadata={"setting": about})


def settings_in(settings: type) -> dict[str, Setting]:
    """Return the settings in a dataclass, by name."""
    return {each.name: each.metadata["setting"] for each in fields(settings) if "setting" in each.metadata}


def check(settings: Any) -> None:
    """Check the fields of a frozen dataclass, and convert their values to Python's types."""
    for name, each in settings_in(type(settings)).items():
        object.__setattr__(settings, name, each.kind.checked(name, getattr(settings, name)))


def among(names: Collection[str], *, auto: bool = False) -> Kind:
    """One of some names, or "auto"."""
    return Kind(metavar="NAME", names=names, auto=auto)


def whole(least: int, *, optional: bool = False) -> Kind:
    """An integer, or None."""
    return Kind(
        int,
        "N",
        "int or None" if optional else "int",
        "an integer",
        int,
        f"{'None or ' if optional else ''}an integer >= {least}",
        lambda value: (optional and value is None) or is_integer(value, least),
        lambda value: None if value is None else int(value),
    )


def number(wanted: str, valid: Callable[[Any], bool]) -> Kind:
    """A finite number that satisfies `valid`."""
    return Kind(
        float, "X", "float", "a number", _number, wanted, lambda value: is_real(value) and valid(value), float
    )


def share() -> Kind:
    """A fraction below 1."""
    return number("at least 0 and below 1", lambda value: bool(0 <= value < 1))


def integers(wanted: str = "", *, documented: str, valid: Callable[[Any], bool] | None = None) -> Kind:
    """A tuple of integers; without `valid`, any value is accepted unchanged."""
    return Kind(
        metavar="N,N",
        documented=documented,
        words="integers separated by commas",
        read=lambda text: tuple(int(part) for part in text.split(",")),
        wanted=wanted,
        valid=valid or (lambda value: True),
        plain=(lambda value: value) if valid is None else (lambda value: tuple(int(each) for each in value)),
    )


def switch() -> Kind:
    """True or false."""
    return Kind(
        bool, "", "bool", "true or false", _switch, "true or false",
        lambda value: isinstance(value, (bool, np.bool_)), bool,
    )  # fmt: skip


def _number(text: str) -> int | float:
    return int(text) if text.strip().isdecimal() else float(text)


def _switch(text: str) -> bool:
    if text.lower() in ("1", "yes", "true", "on"):
        return True
    if text.lower() in ("0", "no", "false", "off"):
        return False
    raise ValueError(text)


def shown(value: Any) -> str:
    """Format the value of a setting as on the command line."""
    return "none" if value is None else ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True)
class Decision:
    """The decided value of a setting, the reason, and whether a trial decided."""

    name: str
    value: Any
    why: str
    tried: bool = False

    @property
    def shown(self) -> str:
        """Format the value as text."""
        return shown(self.value)

    def as_dict(self) -> dict[str, Any]:
        """Return the decision as a dictionary for JSON."""
        value = list(self.value) if isinstance(self.value, tuple) else self.value
        return {"setting": self.name, "value": value, "why": self.why, "tried": self.tried}

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Decision:
        """Restore a decision from `as_dict`."""
        value = found["value"]
        return cls(
            found["setting"], tuple(value) if isinstance(value, list) else value, found["why"], found["tried"]
        )


def check_ngrams(word_ngrams: Any, char_ngrams: Any) -> tuple[NGrams | None, NGrams | None]:
    """Lengths of n-grams as plain numbers; `ParameterError` if texts would have no features."""
    lengths: list[NGrams | None] = []
    for name, value in (("word_ngrams", word_ngrams), ("char_ngrams", char_ngrams)):
        pair = isinstance(value, (tuple, list)) and len(value) == 2 and all(is_integer(size) for size in value)
        if value is not None and not (pair and 1 <= value[0] <= value[1]):
            raise ParameterError(
                f"`{name}` must be (shortest, longest) with 1 <= shortest <= longest, got {value!r}"
            )
        lengths.append(None if value is None else (int(value[0]), int(value[1])))
    if lengths == [None, None]:
        raise ParameterError("`word_ngrams` and `char_ngrams` are both None: there would be no features")
    return lengths[0], lengths[1]


def check_frequencies(min_df: Any, max_features: Any) -> tuple[int | float, int | None]:
    """Which terms are kept, by how frequent they are, as plain numbers; `ParameterError` if it makes no sense."""
    if not is_integer(min_df, 1) and not (isinstance(min_df, float) and 0 < min_df < 1):
        raise ParameterError(f"`min_df` must be an integer >= 1 or a fraction below 1, got {min_df!r}")
    if max_features is not None and not is_integer(max_features, 1):
        raise ParameterError(f"`max_features` must be an integer >= 1 or None, got {max_features!r}")
    # JSON knows no NumPy numbers.
    return int(min_df) if is_integer(min_df) else min_df, None if max_features is None else int(max_features)


#: The kind of codes in each codebook of `circlet.codebooks`. "auto" chooses the first of the kind.
CODEBOOKS: dict[str, str] = {
    "spectral": "circular",
    "independent": "circular",
    "four-phase": "circular",
    "two-phase": "circular",
    "holographic": "real",
}


class Learned(NamedTuple):
    """The learned parameters that turn similarities into scores."""

    #: A factor.
    scale: bool
    #: An offset for each label.
    bias: bool


#: The losses of `circlet.network.losses`, and the parameters learned with them if labels have codes.
LOSSES: dict[str, Learned] = {
    "cosine": Learned(scale=False, bias=False),
    "absolute-cosine": Learned(scale=False, bias=False),
    "bce": Learned(scale=True, bias=True),
    "mean-bce": Learned(scale=True, bias=True),
    "softmax": Learned(scale=True, bias=False),
}
#: The losses that compare codes and use only a document's own labels.
COSINES = ("cosine", "absolute-cosine")
#: The encoders, from documents to hidden vectors: layers over features, or networks that read a text's words.
FEATURES = "features"
ENCODERS = (FEATURES, "cnn", "lstm", "transformer")
#: Numbers per word, and words of a text that are read, unless settings say otherwise.
EMBEDDING, MAX_WORDS = 256, 256
#: Heads of the transformer's attention, which share the numbers of a word.
ATTENTION_HEADS = 4


def why_no_feedback(head: str, loss: str, *, texts: bool, remembered: bool) -> str | None:
    """Return why `circlet.model.feedback` does not support a model; None if it does.

    Parameters
    ----------
    head, loss : str
    texts, remembered : bool
        Whether the model was trained on texts, and whether it has kept training rows.
    """
    if not texts:
        return "this model was trained on feature rows; feedback needs one trained on texts"
    if not remembered:
        return "this model has no training rows and would forget the rest; wanted one trained without --remember 0"
    # Feedback adds codes to outputs, and sets biases.
    if HEADS[head].additive and (HEADS[head].codes is None or LOSSES[loss].bias):
        return None
    return f"a model with head {head} and loss {loss} takes no feedback; train it with `circlet train --feedback`"


def _are_widths(value: Any) -> bool:
    layers = value if isinstance(value, (tuple, list, np.ndarray)) else ()
    return len(layers) > 0 and all(is_integer(width, 1) for width in layers)


@dataclass(frozen=True)
class NetworkSettings:
    """What defines a network before it has seen data; `CircletClassifier` says what each setting means."""

    head: str = setting(
        "chrr-amplitude",
        among(HEADS),
        "Output layer",
        "fc is the usual layer with an output per label, and has no codes. See `circlet.scoring.heads`.",
        panel=NETWORK,
    )
    dim: int = setting(800, whole(1), "Dimension of the labels' codes.", panel=MAIN, usual=AUTO)
    hidden: tuple[int, ...] = setting(
        (1024,),
        integers("one or more integers >= 1", documented="tuple of int", valid=_are_widths),
        "Widths of the hidden layers.",
        panel=MAIN,
        usual=AUTO,
    )
    encoder: str = setting(
        FEATURES,
        among(ENCODERS),
        "What turns documents into hidden vectors",
        "features has layers over feature rows, or over the weighted words of texts, in any order; the others "
        "read texts word by word, in order.",
        panel=NETWORK,
    )
    embedding: int | None = setting(
        None,
        whole(1, optional=True),
        "Numbers per word in an encoder that reads texts; by default 256.",
        panel=NETWORK,
    )
    max_words: int | None = setting(
        None, whole(1, optional=True), "Words of a text that such an encoder reads; by default 256.", panel=NETWORK
    )
    codebook: str = setting(
        AUTO,
        among(CODEBOOKS, auto=True),
        "Where labels get their codes from",
        "auto is spectral for circular codes, and holographic for real ones.",
        panel=NETWORK,
    )
    slots: int | None = setting(
        None,
        whole(1, optional=True),
        "Labels that a spectral codebook has room for; by default 5% more than there are.",
        panel=NETWORK,
    )
    loss: str = setting(
        "bce",
        among(LOSSES),
        "Loss; cosine is the paper's",
        "With absolute-cosine, labels are ranked by the absolute value of their similarity. See "
        "`circlet.network.losses`.",
        panel=NETWORK,
    )
    activation: str = setting(
        "relu", among(("relu", "leaky-relu")), "What follows each hidden layer", panel=NETWORK
    )
    initial: str = setting(
        "he",
        among(("he", "torch")),
        "Initial weights",
        "he is He's rule for ReLU; torch is what torch's layers start with.",
        panel=NETWORK,
    )
    dropout: float = setting(0.7, share(), "Share of hidden units dropped in training.", panel=NETWORK, usual=AUTO)
    #: Determines initial weights, codes, dropout and the order of the rows.
    seed: int = setting(0, whole(0), "Seed of all random numbers.")

    def __post_init__(self) -> None:
        check(self)
        self._check_combination()

    def _check_combination(self) -> None:
        if self.codes is None and self.loss in COSINES:
            raise ParameterError(
                f"loss {self.loss} compares codes, and head fc has none: choose bce, mean-bce or softmax for fc"
            )
        fitting = ["auto", *(name for name, codes in CODEBOOKS.items() if codes == self.codes)]
        if self.codebook not in fitting:
            raise ParameterError(
                f"codebook {self.codebook} does not fit head {self.head}: choose {' or '.join(fitting)}"
            )
        if self.slots is not None and self.codebook_name != "spectral":
            raise ParameterError(
                "only a spectral codebook has `slots`: choose codebook spectral with a circular head, or leave "
                "`slots` out"
            )
        for name in ("embedding", "max_words"):
            if getattr(self, name) is not None and not self.reads_texts:
                raise ParameterError(
                    f"encoder {self.encoder} reads no words one by one: leave `{name}` out, or choose encoder "
                    f"{', '.join(ENCODERS[1:-1])} or {ENCODERS[-1]}"
                )
        if self.encoder == "transformer" and self.word_width % ATTENTION_HEADS:
            raise ParameterError(
                f"encoder transformer divides `embedding` by {ATTENTION_HEADS}: {self.word_width} can't be divided"
            )

    @property
    def reads_texts(self) -> bool:
        """Whether the encoder reads the words of texts one by one, and takes no features."""
        return self.encoder != FEATURES

    @property
    def word_width(self) -> int:
        """Length of a word's vector in an encoder that reads texts."""
        return self.embedding or EMBEDDING

    @property
    def words_read(self) -> int:
        """How many words of a text the encoder reads."""
        return self.max_words or MAX_WORDS

    @property
    def learned(self) -> Learned:
        """The parameters learned besides the layers; none for `fc`, whose last layer includes them."""
        return LOSSES[self.loss] if self.codes is not None else Learned(scale=False, bias=False)

    @property
    def absolute(self) -> bool:
        """Whether labels are ranked by the absolute value of their similarity."""
        return self.loss == "absolute-cosine"

    @property
    def leak(self) -> float:
        """The activation's factor for negative numbers; that of leaky-relu is torch's."""
        return 0.01 if self.activation == "leaky-relu" else 0.0

    @property
    def codes(self) -> str | None:
        """The kind of codes that the head predicts; None for `fc`."""
        return HEADS[self.head].codes

    @property
    def codebook_name(self) -> str | None:
        """The codebook to use, with "auto" resolved; None for `fc`."""
        if self.codebook != "auto":
            return self.codebook
        return next((name for name, codes in CODEBOOKS.items() if codes == self.codes), None)

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**asdict(self), "hidden": list(self.hidden)}


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
        shapes |= _linear(f"dense.hidden.{i}", before, after)
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
_OWN: dict[str, Callable[[NetworkSettings], Shapes]] = {"cnn": _cnn, "lstm": _lstm, "transformer": _transformer}


def _linear(name: str, before: int, after: int) -> Shapes:
    return {f"{name}.weight": (after, before), f"{name}.bias": (after,)}


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}
