"""`MODEL_CARD.md`: describes a model to people who only get its folder; made from the model's own record."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from circlet.checks import is_real
from circlet.encoders import FEATURES, find, names
from circlet.settings import Decision
from circlet.storage.contents import kept_epochs, metrics_of
from circlet.storage.layout import encoder_of, takes_features
from circlet.version import __version__

_REST = """\
## How to use it

{install}. With this folder as `model`:

```console
circlet predict model documents.{suffix}
circlet info model
```

```python
import circlet

names, probabilities = circlet.{load}("model").suggest({documents}, k=5)
```

## Intended use, and limits

It is meant to suggest labels for documents like those it learned from, to people who check them, or where a wrong
label does little harm. It knows no other labels, repeats whatever was wrong or one-sided in its data, and its
numbers say nothing about other languages, sources or times.
"""


def model_card(config: dict[str, Any], history: list[dict[str, Any]], label_names: Sequence[str] | None) -> str:
    """Return a model's card, in Markdown; the configuration may lack the list of files."""
    training, texts = config["training"], bool(config.get("texts"))
    data = _plain(training["data"]) if "data" in training else "documents given in Python"
    parts = [
        f"# A tagger trained on {data}\n",
        f"Written by circlet {__version__}, and again whenever the model is saved: keep notes in another file.\n",
        _table(_facts(config, label_names, data)),
        "## How good it is\n",
        _quality(config, history),
    ]
    if decided := [Decision.from_dict(each) for each in training.get("decided", [])]:
        rows = [(_plain(each.name), f"{_plain(each.shown)}: {_plain(each.why)}") for each in decided]
        parts += ["## What was decided, and why\n", _table(rows)]
    install, load = "`pip install circlet` is enough, without torch, unless it has a custom encoder", "load"
    encoder = encoder_of(config)
    if encoder != FEATURES and (encoder not in names() or find(encoder).learns):
        install, load = "It needs torch: `pip install 'circlet[train]'`", "CircletClassifier.load"
    suffix, documents = ("jsonl", '["a text"]') if texts else ("svm", "rows")
    return "\n".join([*parts, _REST.format(install=install, load=load, suffix=suffix, documents=documents)])


def _facts(config: dict[str, Any], label_names: Sequence[str] | None, data: str) -> list[tuple[str, str]]:
    training, network = config["training"], config["network"]
    documents = int(training.get("documents", 0)) + int(training.get("held_out", 0))
    kind = f" ({_plain(training['format'])})" if "format" in training else ""
    labels = f"{config['n_labels']:,}"
    if label_names:
        examples = label_names[:: max(1, len(label_names) // 5)][:5]
        labels += f", such as {', '.join(map(_plain, examples))}"
    read = "features of texts (words or their parts)" if config.get("texts") else "features of rows"
    if not takes_features(config):
        read = f"numbers of encoder {_plain(network['encoder'])}"
    members = len(config["members"])
    layers, codes = (_plain(network.get(name)) for name in ("hidden", "dim"))
    encoder, head, loss = (_plain(network.get(name, "features")) for name in ("encoder", "head", "loss"))
    rows = [
        ("data", data + kind),
        ("then trained on", _plain(training["continued_on"]) if "continued_on" in training else ""),
        ("labels learned from feedback", _plain(training["taught"]) if "taught" in training else ""),
        ("documents", f"{documents:,}"),
        ("labels", labels),
        ("reads", f"{config['n_features']:,} {read}"),
        ("networks", f"{members}" if members > 1 else ""),
        ("hidden layers", f"{layers}, encoder {encoder}"),
        ("output", f"codes of {codes} dimensions, head {head}, loss {loss}"),
        ("weights stored as", _plain(config.get("store", "float32"))),
    ]
    return [(name, what) for name, what in rows if what]


def _quality(config: dict[str, Any], history: list[dict[str, Any]]) -> str:
    training = config["training"]
    records = [each for each in (*history, *kept_epochs(history)) if _measures(each)]
    measured = {each.get("member", 1): _measures(each) for each in records}  # each network's last record counts
    if not measured:
        return (
            "Nothing was held out to measure it on. Evaluate it on documents that it has not learned from "
            "(`circlet evaluate`) before you rely on it.\n"
        )
    rows = [
        (_plain(name) + (f", network {member}" if len(measured) > 1 else ""), value)
        for member, measures in sorted(measured.items())
        for name, value in measures.items()
    ]
    held_out = int(training.get("held_out", 0))
    where = "documents that were held out at first, and that it has learned from since"
    if held_out:
        where = f"{held_out:,} documents that it has not learned from"
    later = " Further training came after that." if {"continued_on", "taught"} & set(training) else ""
    notes = f"Measured on {where}. Choices were made on them too, so expect a little less elsewhere.{later}\n"
    if "threshold" in config:
        goal = training.get("threshold_for", "f1")
        best = "the best F1" if goal == "f1" else _plain(goal)
        least = f"{config['threshold']:.3f}"
        notes += f"\nIt gives labels with a probability of at least {least}: chosen for {best} there.\n"
    return f"{_table(rows)}\n{notes}"


def _measures(record: dict[str, Any]) -> dict[str, str]:
    """Format the measurements on held-out rows in an epoch's record."""
    shown = {name: f"{100 * value:.1f} %" for name, value in metrics_of(record).items()}
    loss = record.get("validation_loss")
    return {**shown, "loss": f"{loss:.4g}"} if not shown and is_real(loss) else shown


def _table(rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {what} |" for name, what in rows), ""])


def _plain(value: Any) -> str:
    """Format a value as one line of escaped Markdown, cut to 200 characters."""
    shown = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    line = " ".join("".join(each if each.isprintable() else " " for each in shown[:201]).split())
    return re.sub(r"([\\`*_\[\]<>#|~&$])", r"\\\1", line if len(shown) <= 200 else f"{line[:200]}…") or "?"
