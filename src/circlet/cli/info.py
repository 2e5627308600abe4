"""`circlet info`: what a model is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from circlet import files
from circlet.cli import options
from circlet.cli.console import check_picture, mark, out, print_json, write_picture
from circlet.errors import DataError
from circlet.report import Table
from circlet.settings import Decision, NetworkSettings
from circlet.settings.network import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def info(
    model: options.ModelFolder,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Draw the training history to this file (.png, .svg, .pdf) or device; a link stays a link."
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare every byte of the model with the saved digests.")
    ] = False,
    near: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="Show the labels that are most similar to this one instead."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Show the parts of a model with their sizes, and the data it was trained on.

    Commands that use a model check the sizes of its files and the digests of all but large weights. --verify
    checks these weights too, and fails if anything has changed.

    --near shows the labels that the model would suggest for the same documents: a similarity of 1 is the same
    label, 0 an unrelated one.
    """
    check_picture(plot)
    from circlet.runtime import RuntimeModel
    from circlet.storage.contents import kept_epochs, read
    from circlet.storage.layout import CARD, CONFIG, HISTORY, located
    from circlet.storage.model import explained

    if near is not None:
        _print_near(model, near, as_json)
        return
    with explained(model):
        saved = read(model, whole=verify, estimator=verify)
        loaded = RuntimeModel.restore(model, saved, used=False)
    listed = {located(model, saved.config, name) for name in (CONFIG, *saved.config["files"])}
    if (model / CARD).is_file():
        listed.add(model / CARD)
    sizes = {path.name: files.check_regular(path) for path in sorted(listed)}
    described = {
        "model": str(model),
        "members": len(loaded.members),
        "network": loaded.members[0].settings.as_dict(),
        "encoder": None if saved.encoder is None else saved.encoder.settings(),
        "codebook": repr(loaded.codebook),
        "documents_are": "texts" if loaded.vectorizer is not None else "feature rows",
        "scaling": loaded.scaling.kind,
        "threshold": loaded.threshold,
        "n_features": loaded.n_features,
        "n_labels": loaded.n_labels,
        "uris": loaded.label_uris is not None,
        "parameters": loaded.parameter_counts,
        "store": saved.config["store"],
        "verified": verify,
        "bytes": {**sizes, "total": sum(sizes.values())},
        "training": loaded.training,
        "epochs": len(loaded.history),
        "indexed": 0 if loaded.index is None else len(loaded.index),
        "kept_epochs": [record["epoch"] for record in kept_epochs(loaded.history)],
    }
    if plot is not None:
        if not loaded.history:
            raise DataError(
                f"{located(model, saved.config, HISTORY)}: found no epochs to draw; wanted at least one"
            )
        write_picture(plot, draw_history(loaded.history))
    if as_json:
        print_json(described)
    else:
        out.print(_table(described).rich())


def _print_near(folder: Path, name: str, as_json: bool) -> None:
    from circlet.cli.explain import known_label
    from circlet.runtime import load
    from circlet.runtime.answers import rounded, shown

    tagger = load(folder)
    labels, similarities = tagger.near_labels(known_label(tagger, name, "--near"))
    found = list(zip(labels.tolist(), similarities.tolist(), strict=True))
    if as_json:
        near = [{"label": label, "similarity": rounded(much)} for label, much in found]
        print_json({"label": name, "near": near})
    else:
        rows = [(str(label), shown(much)) for label, much in found]
        out.print(Table(f"Labels near {name}", ("label", "similarity"), rows).rich())


def _table(described: dict[str, Any]) -> Table:
    network, training = described["network"], described["training"]
    settings = NetworkSettings(**network)
    kind = "features" if settings.takes_features else "numbers of an encoder"
    own = [f"{name} {shown(value)}" for name, value in (described["encoder"] or {}).items()]
    bags = ["beside a bag of words"] if settings.bag_of_words else []
    kept = described["kept_epochs"]
    decided = [Decision.from_dict(each) for each in training.get("decided", [])]
    rows: list[tuple[str, str]] = [
        *([("networks", f"{described['members']}")] if described["members"] > 1 else []),
        ("head", f"{network['head']}, loss {network['loss']}"),
        ("codes", described["codebook"]),
        ("encoder", ", ".join([settings.encoder, *own, *bags])),
        ("hidden layers", ", ".join(map(str, network["hidden"]))),
        ("documents", f"{described['documents_are']}, {described['n_features']:,} {kind}"),
        ("labels", f"{described['n_labels']:,}" + (", with names and URIs" if described["uris"] else "")),
        ("threshold", _threshold(described["threshold"], training)),
        *((f"parameters, {part}", f"{count:,}") for part, count in described["parameters"].items()),
        ("weights stored as", described["store"]),
        *((f"bytes, {name}", f"{size:,}") for name, size in described["bytes"].items()),
        ("digests", "of all files" + (", verified" if described["verified"] else "")),
        ("trained on", f"{training.get('data', '?')}, {training.get('documents', 0):,} documents"),
        *([("documents in the index", f"{described['indexed']:,}")] if described["indexed"] else []),
        ("epochs", f"{described['epochs']}" + (" of all networks together" if described["members"] > 1 else "")),
        *([("kept", f"epoch {', '.join(map(str, kept))}, the best on held-out rows")] if kept else []),
        *((f"decided, {each.name}", f"{each.shown}: {each.why}") for each in decided),
    ]
    return Table(described["model"], ("", "what"), rows)


def _threshold(threshold: float | None, training: dict[str, Any]) -> str:
    if threshold is None:
        return "none stored; `circlet predict` gives the k best labels"
    goal = training.get("threshold_for", "f1")
    return f"{threshold:.4f}, for {'the best F1' if goal == 'f1' else goal} on held-out rows"


def draw_history(history: list[dict[str, Any]]) -> Figure:
    """Draw loss and validation metric over the epochs, a line for each network, and mark the kept epochs."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    from circlet.storage.contents import kept_epochs, metrics_of

    metrics = list(metrics_of(history[0]))
    members = sorted({record.get("member", 1) for record in history})

    def draw(axis: Axes, name: str, factor: float, color: str) -> None:
        for member in members:
            # Epochs on all rows, and those of training further, have no metric.
            own = [record for record in history if record.get("member", 1) == member and name in record]
            axis.plot([each["epoch"] for each in own], [factor * each[name] for each in own], color=color)

    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axis = figure.subplots()
    draw(axis, "loss", 1, "#1f5fbf")
    axis.set_xlabel("epoch")
    axis.set_ylabel("training loss", color="#1f5fbf")
    axis.spines[["top", "right"]].set_visible(False)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    last = history[-1]["epoch"]
    kept = [(record["epoch"], "kept") for record in kept_epochs(history)] or [(last, "kept: the last")]
    for epoch, word in kept:
        mark(axis, epoch, word, left=epoch > last / 2)  # a word on the right might cross the edge
    for name in metrics:
        other = axis.twinx()
        draw(other, name, 100, "#d1701f")
        other.set_ylabel(f"{name} on validation rows, %", color="#d1701f")
        other.spines["top"].set_visible(False)
    return figure
