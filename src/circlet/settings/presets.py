"""Named settings for a whole training run."""

from __future__ import annotations

from typing import Any

from circlet.errors import ParameterError

__all__ = ["PRESETS", "resolve"]

#: What differs from the library's defaults, which serve users best.
PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    # Wider, more dropout and twice the time: for those who would rather wait.
    "accurate": {"hidden": (2048,), "dropout": 0.8, "epochs": 60},
    # The paper's section 4.3: two hidden layers, batch 64, 100 epochs, learning rate 1, its own loss and codes. It
    # names no optimiser; Adadelta is the one that a rate of 1 is usual for. Nor does it say which epoch it
    # reports: after 100 without dropout these networks have overfitted, so as elsewhere held-out rows choose.
    # Twenty epochs without a better one are enough to know.
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
}


def resolve(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """The settings of a preset, with those given in place of its own; what is None was not given."""
    if name not in PRESETS:
        raise ParameterError(f"`preset` must be one of {', '.join(PRESETS)}, got {name!r}")
    own = dict(PRESETS[name])
    head = given.get("head") or own.get("head")
    if name == "paper" and head == "fc":
        own |= {"hidden": (2048, 2048), "loss": "bce"}
    elif name == "paper" and head != "hrr":
        own["codebook"] = "independent"
    return {**own, **{key: value for key, value in given.items() if value is not None}}
