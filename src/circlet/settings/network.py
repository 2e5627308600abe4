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
            valid = isinstance(value, str) and (value in self.names or (self.auto and value == AUTO))
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


class _EncoderNames(Collection[str]):
    """`features` and all known encoders of texts; installed packages are asked only if another name is."""

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
        "What the hidden layers take",
        "features is feature rows, or the weighted words of texts in any order; the others make vectors of texts. "
        "See `circlet.encoders`.",
        panel=NETWORK,
    )
    bag_of_words: bool = setting(
        False,
        switch(),
        "Take the weighted words of texts beside an encoder's vectors of them.",
        panel=NETWORK,
        option="--bag-of-words/--no-bag-of-words",
    )
    embedding: int | None = setting(
        None,
        whole(1, optional=True),
        "Numbers per word in an encoder that learns them; by default 256.",
        panel=NETWORK,
    )
    max_words: int | None = setting(
        None, whole(1, optional=True), "Words of a text that an encoder reads; by default 256.", panel=NETWORK
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
        given = {
            name: getattr(self, name) for name in ("embedding", "max_words") if getattr(self, name) is not None
        }
        text_encoder = self.text_encoder
        for name in given:
            if text_encoder is None or name not in text_encoder.options:
                raise ParameterError(
                    f"encoder {self.encoder} has no `{name}`: leave it out, or choose another encoder "
                    f"({', '.join(ENCODERS)})"
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
        """Ready for JSON."""
        return {**asdict(self), "hidden": list(self.hidden)}
