"""How a setting is declared, and the settings of a network.

Help, valid values and defaults of a setting stand in the metadata of its dataclass field. The options of
`circlet train`, Annif's parameters and the estimator's docstring are made from them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from circlet import encoders
from circlet.checks import is_integer, is_real
from circlet.encoders import FEATURES, TextEncoder
from circlet.errors import ParameterError
from circlet.scoring.heads import HEADS

NGrams = tuple[int, int]
#: The value of a setting that is decided from the data.
AUTO = "auto"
#: The panels of `circlet train --help`, in their order.
DATA, MAIN, NETWORK, OPTIMIZATION, OUTPUT = "Data", "What matters", "Network", "Optimization", "Output"


def _read_switch(text: str) -> bool:
    if text.lower() in ("1", "yes", "true", "on"):
        return True
    if text.lower() in ("0", "no", "false", "off"):
        return False
    raise ValueError(text)


#: For each type of a setting: a description of its values as text, and their parser, which may raise ValueError.
_TEXTS: dict[type, tuple[str, Callable[[str], Any]]] = {
    int: ("an integer", int),
    float: ("a number", lambda text: int(text) if text.strip().isdecimal() else float(text)),
    bool: ("true or false", _read_switch),
    str: ("a word", str),
    tuple: ("integers separated by commas", lambda text: tuple(int(part) for part in text.split(","))),
}


@dataclass(frozen=True)
class Kind:
    """The type and the valid values of a setting."""

    type: type  # int, float, bool, str, or tuple for several integers
    metavar: str  # placeholder for a value in the help
    wanted: str = ""  # description of valid values
    valid: Callable[[Any], bool] = lambda value: True
    documented: str = ""  # name of the type in docstrings; by default the type's own
    names: Collection[str] = ()  # that are valid values; may grow later
    auto: bool = False  # whether "auto" is valid as well
    listed: bool = True  # whether the help lists the names; False if finding them is slow

    @property
    def words(self) -> str:
        """Description of a value as text."""
        return _TEXTS[self.type][0]

    def read(self, text: str) -> Any:
        """Parse a value; raise ValueError if it has another type."""
        return _TEXTS[self.type][1](text)

    @property
    def choices(self) -> tuple[str, ...]:
        """The names that the help lists; empty if values are not names."""
        return (*([AUTO] if self.auto else []), *self.names) if self.listed else ()

    def checked(self, name: str, value: Any) -> Any:
        """Convert a valid value to Python's types (JSON has no NumPy numbers), or raise `ParameterError`."""
        if self.names:
            valid = isinstance(value, str) and (value in self.names or (self.auto and value == AUTO))
        else:
            valid = self.valid(value)
        if not valid:
            among = f"{'auto or ' if self.auto else ''}one of {', '.join(self.names)}"
            raise ParameterError(f"`{name}`: found {value!r}; wanted {self.wanted or among}")
        if value is None or self.type is str:
            return value
        return tuple(int(each) for each in value) if self.type is tuple else self.type(value)


@dataclass(frozen=True)
class Setting:
    """A setting of a run."""

    kind: Kind
    help: str  # one line
    more: str  # further documentation
    usual: Any  # default of a run; that of `RunSettings`, which decides nothing from data, may differ
    panel: str | None  # of `circlet train --help`; None if there is no option
    option: str  # name of the option, if it is not that of the setting


def setting(
    panel: str | None, default: Any, kind: Kind, line: str, more: str = "", *, usual: Any = None, option: str = ""
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
    return Kind(str, "NAME", names=names, auto=auto)


def whole(least: int) -> Kind:
    """An integer."""
    return Kind(int, "N", f"an integer >= {least}", lambda value: is_integer(value, least))


def optional(least: int) -> Kind:
    """An integer, or None."""
    wanted = f"None or an integer >= {least}"
    return Kind(int, "N", wanted, lambda value: value is None or is_integer(value, least), "int or None")


def number(wanted: str, valid: Callable[[Any], bool]) -> Kind:
    """A finite number that satisfies `valid`."""
    return Kind(float, "X", wanted, lambda value: is_real(value) and valid(value))


#: A fraction below 1.
SHARE = number("at least 0 and below 1", lambda value: bool(0 <= value < 1))
SWITCH = Kind(bool, "", "true or false", lambda value: isinstance(value, (bool, np.bool_)))


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
        value = tuple(found["value"]) if isinstance(found["value"], list) else found["value"]
        return cls(found["setting"], value, found["why"], found["tried"])


def check_ngrams(word_ngrams: Any, char_ngrams: Any) -> tuple[NGrams | None, NGrams | None]:
    """Return the lengths of n-grams as plain numbers; raise `ParameterError` if texts would have no features."""
    lengths: list[NGrams | None] = []
    for name, value in (("word_ngrams", word_ngrams), ("char_ngrams", char_ngrams)):
        pair = isinstance(value, (tuple, list)) and len(value) == 2 and all(is_integer(size) for size in value)
        if value is not None and not (pair and 1 <= value[0] <= value[1]):
            raise ParameterError(
                f"`{name}`: found {value!r}; wanted (shortest, longest) with 1 <= shortest <= longest"
            )
        lengths.append(None if value is None else (int(value[0]), int(value[1])))
    if lengths == [None, None]:
        raise ParameterError("`word_ngrams`, `char_ngrams`: found None for both; wanted features of texts")
    return lengths[0], lengths[1]


def check_frequencies(min_df: Any, max_features: Any) -> tuple[int | float, int | None]:
    """Return the limits of frequent terms as plain numbers; raise `ParameterError` if they are invalid."""
    if not is_integer(min_df, 1) and not (isinstance(min_df, float) and 0 < min_df < 1):
        raise ParameterError(f"`min_df`: found {min_df!r}; wanted an integer >= 1 or a fraction below 1")
    if max_features is not None and not is_integer(max_features, 1):
        raise ParameterError(f"`max_features`: found {max_features!r}; wanted an integer >= 1 or None")
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

    scale: bool  # a factor
    bias: bool  # an offset for each label


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


class _EncoderNames(Collection[str]):
    """`features` and all known encoders of texts; installed packages are searched only for other names."""

    def __contains__(self, name: object) -> bool:
        return name == FEATURES or name in encoders.names()

    def __iter__(self) -> Iterator[str]:
        return iter([FEATURES, *encoders.names()])

    def __len__(self) -> int:
        return 1 + len(encoders.names())

    def __bool__(self) -> bool:
        return True


#: The values of the setting `encoder`.
ENCODERS = _EncoderNames()


def why_no_feedback(head: str, loss: str, *, texts: bool, remembered: bool) -> str | None:
    """Return why `circlet.model.feedback` does not support a model, with or without texts and kept training rows.

    None if it does.
    """
    if not texts:
        return "this model was trained on feature rows; feedback needs one trained on texts"
    if not remembered:
        return (
            "this model has no training rows and would forget the rest; wanted one without --remember 0, and "
            "without an encoder that was trained or has a bag of words beside it"
        )
    # Feedback adds codes to outputs, and sets biases.
    if HEADS[head].additive and (HEADS[head].codes is None or LOSSES[loss].bias):
        return None
    return f"a model with head {head} and loss {loss} takes no feedback; train it with `circlet train --feedback`"


def _are_widths(value: Any) -> bool:
    layers = value if isinstance(value, (tuple, list, np.ndarray)) else ()
    return len(layers) > 0 and all(is_integer(width, 1) for width in layers)


@dataclass(frozen=True)
class NetworkSettings:
    """The settings of a network; see `CircletClassifier` for their meaning."""

    head: str = setting(
        NETWORK,
        "chrr-amplitude",
        among(HEADS),
        "Output layer",
        "fc is the usual layer with an output per label, and has no codes. See `circlet.scoring.heads`.",
    )
    dim: int = setting(MAIN, 800, whole(1), "Dimension of the labels' codes.", usual=AUTO)
    hidden: tuple[int, ...] = setting(
        MAIN,
        (1024,),
        Kind(tuple, "N,N", "one or more integers >= 1", _are_widths, "tuple of int"),
        "Widths of the hidden layers.",
        usual=AUTO,
    )
    encoder: str = setting(
        NETWORK,
        FEATURES,
        Kind(str, "NAME", names=ENCODERS, listed=False),
        "Input of the hidden layers: features, or an encoder of texts, such as cnn.",
        "features is feature rows, or the weighted words of texts in any order; the others make vectors of texts. "
        "See `circlet.encoders`.",
    )
    bag_of_words: bool = setting(
        NETWORK,
        False,
        SWITCH,
        "Add the weighted words of texts to an encoder's vectors of them.",
        option="--bag-of-words/--no-bag-of-words",
    )
    embedding: int | None = setting(
        NETWORK, None, optional(1), "Length of a word's vector, for encoders that learn them; by default 256."
    )
    max_words: int | None = setting(
        NETWORK, None, optional(1), "Words of a text that an encoder reads; by default 256."
    )
    codebook: str = setting(
        NETWORK,
        AUTO,
        among(CODEBOOKS, auto=True),
        "Source of the labels' codes",
        "auto is spectral for circular codes, and holographic for real ones.",
    )
    slots: int | None = setting(
        NETWORK, None, optional(1), "Maximum labels of a spectral codebook; by default 5% more than there are."
    )
    loss: str = setting(
        NETWORK,
        "bce",
        among(LOSSES),
        "Loss; cosine is the paper's",
        "With absolute-cosine, labels are ranked by the absolute value of their similarity. See "
        "`circlet.network.losses`.",
    )
    activation: str = setting(NETWORK, "relu", among(("relu", "leaky-relu")), "Activation of the hidden layers")
    initial: str = setting(
        NETWORK,
        "he",
        among(("he", "torch")),
        "Initial weights",
        "he is He's rule for ReLU; torch is the default of torch's layers.",
    )
    dropout: float = setting(NETWORK, 0.7, SHARE, "Share of hidden units dropped in training.", usual=AUTO)
    #: Determines initial weights, codes, dropout and the order of the rows.
    seed: int = setting(None, 0, whole(0), "Seed of all random numbers.")

    def __post_init__(self) -> None:
        check(self)
        if self.codes is None and self.loss in COSINES:
            raise ParameterError(
                f"found loss {self.loss} for head fc, which has no codes; wanted bce, mean-bce or softmax"
            )
        fitting = ["auto", *(name for name, codes in CODEBOOKS.items() if codes == self.codes)]
        if self.codebook not in fitting:
            raise ParameterError(
                f"found codebook {self.codebook} for head {self.head}; wanted {' or '.join(fitting)}"
            )
        if self.slots is not None and self.codebook_name != "spectral":
            raise ParameterError(
                f"found `slots` for codebook {self.codebook_name}; wanted codebook spectral with a circular head"
            )
        options = {name: getattr(self, name) for name in ("embedding", "max_words")}
        given = {name: value for name, value in options.items() if value is not None}
        text_encoder = self.text_encoder
        for name in given:
            if text_encoder is None or name not in text_encoder.options:
                raise ParameterError(
                    f"found `{name}` for encoder {self.encoder}, which has none; wanted another encoder of "
                    f"{', '.join(ENCODERS)}"
                )
        if text_encoder is not None and given:
            text_encoder.of(given)  # raises an error for values that do not fit

    @property
    def text_encoder(self) -> type[TextEncoder] | None:
        """The class of its encoder of texts; None if it takes features only."""
        return None if self.encoder == FEATURES else encoders.find(self.encoder)

    @property
    def takes_features(self) -> bool:
        """Whether the first hidden layer takes features; otherwise it takes only an encoder's vectors."""
        return self.encoder == FEATURES or self.bag_of_words

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
        """Return the settings as a dictionary for JSON."""
        return {**asdict(self), "hidden": list(self.hidden)}
