"""The folder of a `CircletClassifier`: a model's, and `estimator.json` with what only the estimator knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from torch import nn

from circlet import files
from circlet.devices import resolve_device
from circlet.errors import DataError, ParameterError
from circlet.estimator.targets import KINDS, Targets
from circlet.folder.layout import CONFIG
from circlet.folder.layout import ESTIMATOR as NAME
from circlet.model import Model
from circlet.settings import RunSettings
from circlet.version import __version__

__all__ = ["NAME", "Saved", "load", "save"]

FORMAT = 1
_KEYS = {"format", "circlet", "weights_sha256", "parameters", "encoder", "target", "classes", "feature_names"}


class Saved(NamedTuple):
    """The parts of a fitted classifier."""

    parameters: dict[str, Any]
    model: Model
    targets: Targets
    feature_names: Any


def save(folder: Path, classifier: Saved, store: str = "float32") -> None:
    """Write a fitted classifier."""
    parameters, model, targets, names = classifier
    model.save(folder, store)
    classes = None
    if targets.kind != "indicator":
        dtype, text = targets.classes.dtype, targets.classes.dtype.kind in "OU"
        classes = {
            "dtype": "str" if dtype.kind == "U" else dtype.name,
            "values": None if text else targets.classes.tolist(),  # labels that are text are in labels.txt
        }
    encoder = parameters["encoder"]
    plain = {name: _plain(value) for name, value in parameters.items() if name != "encoder"}
    state = {
        "format": FORMAT,
        "circlet": __version__,
        "weights_sha256": files.read_json(folder / CONFIG)["weights_sha256"],
        "parameters": {**plain, "encoder": None},
        "encoder": None if encoder is None else type(encoder).__name__,
        "target": targets.kind,
        "classes": classes,
        "feature_names": None if names is None else names.tolist(),
    }
    files.write_json(folder / NAME, state)


def load(folder: Path, defaults: dict[str, Any], given: dict[str, Any], encoder: nn.Module | None) -> Saved:
    """Read a classifier; `given` parameters override saved ones, and `defaults` replace those not saved."""
    path = folder / NAME
    if not path.exists():
        model = Model.load(folder, resolve_device(given.get("device", "auto")), encoder)
        return Saved({**_parameters_of(model), **given}, model, _targets_of(model), None)
    state = _checked(path, defaults)
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
    model = Model.load(folder, resolve_device(parameters["device"]), encoder)
    if files.read_json(folder / CONFIG)["weights_sha256"] != state["weights_sha256"]:
        raise DataError(
            f"{path}: found the description of other weights than those of {CONFIG}; "
            "if `circlet train` has replaced the model, remove this file"
        )
    return Saved(parameters, model, _restored(path, state, model), state["feature_names"])


def _checked(path: Path, known: dict[str, Any]) -> dict[str, Any]:
    state = files.read_json(path)
    if not isinstance(state, dict) or "format" not in state:
        raise DataError(f"{path}: found no description of a classifier; wanted one that circlet saved")
    if state["format"] != FORMAT:
        raise DataError(f"{path}: found format {state['format']}; circlet {__version__} reads format {FORMAT}")
    if set(state) != _KEYS:
        raise DataError(f"{path}: found the keys {sorted(state)}; wanted {sorted(_KEYS)}")
    parameters, names = state["parameters"], state["feature_names"]
    # Older versions had fewer parameters; those added since have their defaults.
    if not isinstance(parameters, dict) or not set(parameters) <= set(known):
        found = sorted(parameters) if isinstance(parameters, dict) else parameters
        raise DataError(f"{path}: found the parameters {found}; wanted some of {sorted(known)}")
    if state["target"] not in KINDS:
        raise DataError(f"{path}: found the target {state['target']!r}; wanted one of {', '.join(KINDS)}")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise DataError(f"{path}: found feature names {names!r}; wanted a list of text strings")
    return state


def _restored(path: Path, state: dict[str, Any], model: Model) -> Targets:
    names = state["feature_names"]
    if names is not None and len(names) != model.n_features:
        raise DataError(f"{path}: found {len(names)} feature names; wanted {model.n_features}")
    if state["target"] == "indicator":
        return Targets("indicator", np.arange(model.n_labels))
    try:
        dtype, values = np.dtype(state["classes"]["dtype"]), state["classes"]["values"]
        classes: npt.NDArray[Any] = np.array(model.label_names if values is None else values, dtype=dtype)
        different = len(set(classes.tolist()))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{path}: found damaged classes ({error!r})") from error
    if classes.shape != (model.n_labels,) or different != model.n_labels or dtype.kind not in "OUiufb":
        raise DataError(
            f"{path}: found {different} different classes of type {dtype}; wanted {model.n_labels} labels"
        )
    return Targets(state["target"], classes)


def _targets_of(model: Model) -> Targets:
    if model.label_names is None:
        return Targets("indicator", np.arange(model.n_labels))
    return Targets("named", np.array(model.label_names, dtype=object))


def _parameters_of(model: Model) -> dict[str, Any]:
    """The parameters that the model itself knows."""
    words = {} if model.vectorizer is None else model.vectorizer.parameters()
    known = {**model.network.settings.as_dict(), **model.training, **words, "members": len(model.networks)}
    return {
        **{name: known[name] for name in RunSettings.names() if name in known},
        "hidden": tuple(model.network.settings.hidden),
        "scaling": model.scaling.kind,
        "random_state": model.network.settings.seed,
    }


def _plain(value: Any) -> Any:
    """A parameter in a form that JSON can hold."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
