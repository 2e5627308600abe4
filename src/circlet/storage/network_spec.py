"""The networks that a configuration describes, and the names and shapes of their weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from circlet.checks import is_integer
from circlet.encoders import TextEncoder
from circlet.errors import DataError
from circlet.scoring.heads import HEADS
from circlet.settings.network import NetworkSettings
from circlet.storage.layout import MOST_LABELS
from circlet.storage.tensors import Stored, type_name

#: The layer that takes an encoder's vectors beside features.
BESIDE = "beside"
#: The names of a scorer's weights.
LOG_SCALE, BIAS = "log_scale", "bias"


@dataclass(frozen=True)
class Member:
    """One of the networks of a model, usually the only one."""

    settings: NetworkSettings
    codebook: dict[str, Any] | None  # state of the network's codebook; None for head `fc`
    #: Slope and intercept of the curve from the network's scores to probabilities. With only one network, the
    #: model has the curve, and this is (1, 0).
    calibration: tuple[float, float]
    prefix: str  # of the names of the network's weights

    def layer(self, weights: Mapping[str, Stored], name: str) -> tuple[Stored, Stored]:
        """Weight and bias of one of its layers, as `hidden_layers` and `circlet.scoring.heads` name them."""
        return weights[f"{self.prefix}{name}.weight"], weights[f"{self.prefix}{name}.bias"]

    @property
    def capacity(self) -> int:
        """Number of labels with a bias, if the network has biases."""
        codebook = self.codebook or {}
        return int(codebook.get("length", codebook.get("n_labels", 0)))


def members_of(config: dict[str, Any]) -> list[Member]:
    """Return the networks of a model with this configuration."""
    settings = NetworkSettings(**config["network"])
    members = [
        Member(
            replace(settings, seed=each["seed"]),
            each["codebook"],
            (float(each["calibration"][0]), float(each["calibration"][1])),
            member_prefix(number),
        )
        for number, each in enumerate(config["members"])
    ]
    for member in members:
        _check_codebook(member, config["n_labels"])
    return members


def member_prefix(number: int) -> str:
    """Return the prefix of the names of a network's weights."""
    return f"members.{number}."


def hidden_layers(settings: NetworkSettings) -> list[str]:
    """Return the names of the layers over features; each has a weight and a bias."""
    return [f"hidden.{number}" for number in range(len(settings.hidden))]


def check_weights(
    path: Path,
    members: list[Member],
    config: dict[str, Any],
    weights: Mapping[str, Stored],
    *,
    own_encoder: bool = False,
    texts: TextEncoder | None = None,
) -> None:
    """Raise `DataError` if weights do not match the networks in a configuration.

    Call this before making networks, since the sizes that a configuration claims may not fit into memory. `path`
    is the weights' file. With `own_encoder`, the networks have a custom encoder, whose weights are not checked;
    `texts` is their encoder of texts.
    """
    layers = len(members[0].settings.hidden)
    if layers > len(weights) and not own_encoder:
        raise DataError(f"{path}: found {len(weights)} tensors; wanted those of {layers} hidden layers")
    shapes = [shapes_of(each, config, own_encoder=own_encoder, texts=texts) for each in members]
    wanted = {name: (shape, "float32") for each in shapes for name, shape in each.items()}
    known = {name: each for name, each in weights.items() if not (own_encoder and _in_encoder(name))}
    encoders = [set(filter(_in_encoder, names)) for names in (wanted, known)]
    if encoders[1] and not encoders[1] & encoders[0]:
        raise DataError(
            f"{path.parent}: found a model with an encoder of its own, which only torch can run; load it with "
            "circlet.model.Model.load(folder, encoder=...) or CircletClassifier.load(folder, encoder=...)"
        )
    check_shapes(path, wanted, known)


def _in_encoder(name: str) -> bool:
    return ".encoder." in f".{name}"


def shapes_of(
    member: Member, config: dict[str, Any], *, own_encoder: bool = False, texts: TextEncoder | None = None
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a network's weights by name, without those of a custom encoder."""
    settings, n_features, n_labels = member.settings, config["n_features"], config["n_labels"]
    shapes: dict[str, tuple[int, ...]] = {}
    if texts is not None:
        shapes = {f"reader.{name}": shape for name, shape in texts.shapes().items()}
        if settings.takes_features:
            shapes |= {
                f"{BESIDE}.weight": (settings.hidden[0], texts.width),
                f"{BESIDE}.bias": settings.hidden[:1],
            }
    if not own_encoder:
        first = (n_features, settings.hidden[0]) if config["sparse"] else (settings.hidden[0], n_features)
        names = hidden_layers(settings)
        shapes |= {f"{names[0]}.weight": first, f"{names[0]}.bias": (settings.hidden[0],)}
        for name, (before, after) in zip(names[1:], pairwise(settings.hidden), strict=True):
            shapes |= {f"{name}.weight": (after, before), f"{name}.bias": (after,)}
    outputs = n_labels if settings.codes is None else settings.dim
    head = HEADS[settings.head]
    after, before = head.shape(settings.hidden[-1], outputs)
    for name in head.parts:
        shapes |= {f"{name}.weight": (after, before), f"{name}.bias": (after,)}
    if settings.learned.scale:
        shapes[LOG_SCALE] = ()
    if settings.learned.bias:
        shapes[BIAS] = (member.capacity,)
    return {member.prefix + name: shape for name, shape in shapes.items()}


def check_shapes(
    path: Path, wanted: Mapping[str, tuple[tuple[int, ...], str]], found: Mapping[str, Stored]
) -> None:
    """Raise `DataError` for tensors whose names, shapes or types differ from `wanted`."""
    for name in sorted({*wanted, *found}):
        shape = found[name].shape if name in found else None
        wanted_shape, wanted_type = wanted.get(name, (None, ""))
        if shape != wanted_shape:
            raise DataError(f"{path}: found {name} of shape {shape}; wanted {wanted_shape}")
        kind = type_name(found[name].dtype)
        if kind != wanted_type:
            raise DataError(f"{path}: found {name} in {kind}; wanted {wanted_type}")


def _check_codebook(member: Member, n_labels: int) -> None:
    """Raise `DataError` if the codebook's labels or dimension differ from the network's."""
    settings, state = member.settings, member.codebook
    wanted = {"n_labels": n_labels, "dim": settings.dim}
    found = state and {name: state.get(name) for name in wanted}
    if found != (None if settings.codes is None else wanted):
        raise DataError(
            f"found the codebook {str(state)[:120]}; wanted one that fits {wanted} and head {settings.head}"
        )
    numbers, longest = state or {}, 4 * MOST_LABELS
    if not is_integer(numbers.get("seed", 0), 0) or not is_integer(numbers.get("length", 0), 0):
        raise DataError(f"found the codebook {str(state)[:120]}; wanted a seed and a length that are integers")
    if numbers.get("length", 0) > longest:
        raise DataError(f"found a codebook of length {numbers['length']}; wanted at most {longest:,}")
