"""The folder of a `CircletClassifier`: a model's folder with `estimator.json`, the estimator's own state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from circlet.devices import resolve_device
from circlet.errors import DataError, ParameterError
from circlet.estimator.targets import Targets
from circlet.model import Model
from circlet.model.model import write
from circlet.settings import RunSettings
from circlet.storage.contents import ESTIMATOR_FORMAT, classes_of, explained, read
from circlet.storage.layout import ESTIMATOR as NAME
from circlet.storage.layout import located
from circlet.version import __version__

__all__ = ["NAME", "Saved", "load", "save"]


class Saved(NamedTuple):
    """The parts of a fitted classifier."""

    parameters: dict[str, Any]
    model: Model
    targets: Targets
    feature_names: Any


def save(folder: Path, classifier: Saved, store: str = "float32") -> None:
    """Write a fitted classifier."""
    parameters, model, targets, names = classifier
    classes = None
    if targets.kind != "indicator":
        dtype, text = targets.classes.dtype, targets.classes.dtype.kind in "OU"
        classes = {
            "dtype": "str" if dtype.kind == "U" else dtype.name,
            "values": None if text else targets.classes.tolist(),  # labels that are text are in labels.txt
        }
    custom = parameters["encoder"] if isinstance(parameters["encoder"], nn.Module) else None
    plain = {name: _plain(value) for name, value in parameters.items() if name != "encoder" or custom is None}
    state = {
        "format": ESTIMATOR_FORMAT,
        "circlet": __version__,
        "parameters": {"encoder": None, **plain},
        "encoder": None if custom is None else type(custom).__name__,
        "target": targets.kind,
        "classes": classes,
        "feature_names": None if names is None else names.tolist(),
    }
    write(folder, replace(model.contents(), estimator=state), store)


def load(folder: Path, defaults: dict[str, Any], given: dict[str, Any], encoder: nn.Module | None) -> Saved:
    """Read a classifier; `given` parameters override saved ones, and `defaults` replace those not saved."""
    with explained(folder):
        saved = read(folder, whole=True, estimator=True)
    state, path = saved.estimator, located(folder, saved.config, NAME)
    if state is None:
        place = resolve_device(given.get("device", "auto"))
        with explained(folder):
            model = Model.restore(folder, saved, place, encoder)
        targets = Targets("indicator", np.arange(model.n_labels))
        if model.label_names is not None:
            targets = Targets("named", np.array(model.label_names, dtype=object))
        return Saved({**_parameters_of(model), **given}, model, targets, None)
    # Older versions had fewer parameters; those added since have their defaults.
    if not set(state["parameters"]) <= set(defaults):
        found = sorted(state["parameters"])
        raise DataError(f"{path}: found the parameters {found}; wanted some of {sorted(defaults)}")
    if state["encoder"] is not None and encoder is None:
        raise ParameterError(
            f"{folder}: this classifier was fitted with a custom encoder, a {state['encoder']}: "
            "load(folder, encoder=...) with one like it"
        )
    lists = ("hidden", "word_ngrams", "char_ngrams")
    parameters: dict[str, Any] = {
        name: tuple(value) if name in lists and isinstance(value, list) else value
        for name, value in {**defaults, **state["parameters"], **given}.items()
    }
    try:
        place = resolve_device(parameters["device"])
    except ParameterError as error:
        if "device" in given:
            raise
        raise DataError(f"{path}: {error}; to use another one, load(folder, device=...)") from error
    with explained(folder):
        model = Model.restore(folder, saved, place, encoder)
    classes = classes_of(path, state, model.n_features, model.n_labels, model.label_names)
    return Saved(parameters, model, Targets(state["target"], classes), state["feature_names"])


def _parameters_of(model: Model) -> dict[str, Any]:
    """Return the parameters stored in the model itself."""
    words = {} if model.vectorizer is None else model.vectorizer.parameters()
    known = {**model.network.settings.as_dict(), **model.training, **words, "members": len(model.networks)}
    return {
        **{name: known[name] for name in RunSettings.names() if name in known},
        "hidden": tuple(model.network.settings.hidden),
        "scaling": model.scaling.kind,
        "random_state": model.network.settings.seed,
        "keep_index": model.index is not None,
    }


def _plain(value: Any) -> Any:
    """Convert a parameter for JSON."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
