"""Named settings for a whole training run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from circlet.errors import ParameterError

__all__ = ["PRESETS", "resolve"]

#: What differs from the defaults of `RunSettings`. What the first three leave open is decided from the data, by
#: the rules of `circlet.settings.auto`.
PRESETS: dict[str, dict[str, Any]] = {
    # Seconds: few epochs.
    "fast": {"join": True},
    "default": {"join": True},
    # Five times the epochs, with more dropout and smaller batches.
    "accurate": {"join": True},
    # The paper's section 4.3: two hidden layers, batch 64, 100 epochs, learning rate 1, its own loss and codes. It
    # names no optimizer; a rate of 1 is usual for Adadelta. It does not say which epoch it reports either. After
    # 100 epochs without dropout these networks have overfitted, so held-out rows choose the epoch, as elsewhere,
    # and training stops after 20 epochs without a better one.
    "paper": {
        "head": "chrr",
        "hidden": (768, 768),
        "loss": "cosine",
        "dropout": 0.0,
        "epochs": 100,
        "batch_size": 64,
        "optimizer": "adadelta",
        "lr": 1.0,
        "schedule": "constant",
        "scaling": "l2",
        "patience": 20,
    },
    # What the authors' published scripts do where the paper's text is silent or says otherwise: Adam at 0.001,
    # × 0.7 an epoch, 25 epochs, unscaled features, leaky ReLU, torch's initial weights, and the epoch of the least
    # loss on a tenth of the rows. Loss and ranking take the absolute value of the cosine, which the text has not:
    # loss cosine leaves it out.
    "authors": {
        "head": "chrr",
        "hidden": (768, 768),
        "activation": "leaky-relu",
        "initial": "torch",
        "loss": "absolute-cosine",
        "dropout": 0.0,
        "epochs": 25,
        "batch_size": 64,
        "optimizer": "adam",
        "lr": 1e-3,
        "schedule": "step",
        "precision": "float32",
        "scaling": "none",
        "validation": 0.1,
        "metric": "loss",
    },
}
#: The loss of head fc in the presets that follow the paper.
_FULL_LOSS = {"paper": "bce", "authors": "mean-bce"}


def resolve(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a preset, overridden by those of `given` that are not None."""
    if name not in PRESETS:
        raise ParameterError(f"`preset` must be one of {', '.join(PRESETS)}, got {name!r}")
    own = dict(PRESETS[name])
    head = given.get("head") or own.get("head")
    if name in _FULL_LOSS and head == "fc":
        own |= {"hidden": (2048, 2048), "loss": _FULL_LOSS[name]}
    elif name in _FULL_LOSS and head != "hrr":
        own["codebook"] = "independent"
    return {**own, **{key: value for key, value in given.items() if value is not None}}
