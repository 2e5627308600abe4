"""`circlet train`: data in, a model folder out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from circlet import files
from circlet.cli.console import err
from circlet.errors import CircletError, DataError, ParameterError

#: The options of a run, kept beside its checkpoint so that resuming needs none of them.
RUN_FILE = "run.json"

Head = Annotated[
    str | None,
    typer.Option(help="chrr, chrr-amplitude, chrr-half, chrr-sin, chrr-tanh, hrr, fc.  [default: chrr-amplitude]"),
]
Codebook = Annotated[
    str | None, typer.Option(help="spectral, independent, four-phase or two-phase.  [default: spectral]")
]
Loss = Annotated[str | None, typer.Option(help="bce, cosine (the paper's) or softmax.  [default: bce]")]
Hidden = Annotated[str | None, typer.Option(help="Widths of hidden layers, as 768 or 768,768.  [default: 1024]")]
Scaling = Annotated[
    str | None, typer.Option(help="What is done to feature rows: auto, l2, sqrt, tfidf, standard, none.")
]
Schedule = Annotated[str | None, typer.Option(help="one-cycle, constant or step.  [default: one-cycle]")]
Optimizer = Annotated[str | None, typer.Option(help="adamw, adam, adadelta or sgd.  [default: adamw]")]
Validation = Annotated[
    float | None, typer.Option(help="Share of the training rows that epochs are judged by.  [default: 0.05]")
]
Patience = Annotated[int | None, typer.Option(help="Stop after so many epochs without a better metric.")]


def train(
    data: Annotated[str, typer.Argument(help="A dataset's name, or a file or folder with data.")],
    model: Annotated[Path, typer.Option(help="Folder for the model.")],
    preset: Annotated[
        str, typer.Option(help="default, accurate (slower), or paper for the paper's protocol.")
    ] = "default",
    head: Head = None,
    dim: Annotated[int | None, typer.Option(help="Dimension of the labels' codes.  [default: 800]")] = None,
    hidden: Hidden = None,
    codebook: Codebook = None,
    slots: Annotated[int | None, typer.Option(help="Labels that a spectral codebook has room for.")] = None,
    loss: Loss = None,
    dropout: Annotated[float | None, typer.Option(help="Of hidden units.  [default: 0.7]")] = None,
    input_dropout: Annotated[float | None, typer.Option(help="Of features.  [default: 0]")] = None,
    epochs: Annotated[int | None, typer.Option(help="Times through the data.  [default: 30]")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Documents per step.  [default: 256]")] = None,
    optimizer: Optimizer = None,
    lr: Annotated[float | None, typer.Option(help="Highest learning rate.  [default: 0.002]")] = None,
    schedule: Schedule = None,
    weight_decay: Annotated[float | None, typer.Option(help="[default: 0]")] = None,
    scaling: Scaling = None,
    validation: Validation = None,
    metric: Annotated[str | None, typer.Option(help="What epochs are judged by.  [default: nDCG@5]")] = None,
    patience: Patience = None,
    char_ngrams: Annotated[
        str | None, typer.Option(help="Character n-grams of texts beside words, as 3,5.  [default: none]")
    ] = None,
    min_df: Annotated[int | None, typer.Option(help="Texts a word must be in to count.  [default: 1]")] = None,
    max_features: Annotated[int | None, typer.Option(help="Most words to keep.")] = None,
    store: Annotated[
        str | None, typer.Option(help="How weights are stored: float32, bf16 or int8.  [default: float32]")
    ] = None,
    text_column: Annotated[str, typer.Option(help="Column or key of the text.")] = "text",
    label_column: Annotated[str, typer.Option(help="Column or key of the labels.")] = "labels",
    label_separator: Annotated[str, typer.Option(help="What separates labels in CSV and TSV.")] = ";",
    split: Annotated[int, typer.Option(min=0, help="Column of the Repository's split files.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Every random number follows from it.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")] = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the model folder's checkpoint.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was trained as JSON.")] = False,
) -> None:
    """Train a tagger on a dataset and save it as a folder.

    DATA is a name from `circlet datasets list`; or a file of JSONL, CSV, TSV,
    fastText, Annif TSV, svmlight or the Extreme Classification Repository's text;
    or a folder with such train.* and test.* files, or X.trn.npz and Y.trn.npz.

    A checkpoint is written after every epoch and on Ctrl-C; --resume goes on from it.

    Example: circlet train eurlex-4k --model eurlex-model
    """
    given = {
        "head": head, "dim": dim, "hidden": _widths("hidden", hidden), "codebook": codebook, "slots": slots,
        "loss": loss,
        "dropout": dropout, "input_dropout": input_dropout, "epochs": epochs, "batch_size": batch_size,
        "optimizer": optimizer, "lr": lr, "schedule": schedule, "weight_decay": weight_decay, "scaling": scaling,
        "validation": validation, "metric": metric, "patience": patience, "min_df": min_df,
        "char_ngrams": _widths("char_ngrams", char_ngrams), "max_features": max_features,
        "store": store,
    }  # fmt: skip
    columns = {"text_column": text_column, "label_column": label_column, "label_separator": label_separator}
    run = {"data": data, "preset": preset, "seed": seed, "given": given, "read": {**columns, "split": split}}
    run = json.loads(json.dumps(run))  # as it will be read back
    if resume:
        run = _resumed(model, run)
    else:
        _refuse_to_forget(model)
    summary = run_training(run, model, device)
    if as_json:
        print(json.dumps(summary, ensure_ascii=False, indent=1))
    else:
        err.print(
            f"{model}: {summary['parameters']['total']:,} parameters, {summary['n_labels']:,} labels, "
            f"{summary['bytes'] / 1e6:.1f} MB\n"
            f"use it: circlet predict {model} INPUT, or circlet evaluate {model} DATA",
            highlight=False,
            soft_wrap=True,
        )


def run_training(run: dict[str, Any], folder: Path, device: str) -> dict[str, Any]:
    """Carry out what `run` describes, and sum it up."""
    from circlet.cli.progress import TrainingBar
    from circlet.data import load_dataset
    from circlet.features.vectorizer import TextVectorizer
    from circlet.model.model import fit
    from circlet.model.precision import check_store
    from circlet.network.network import NetworkSettings
    from circlet.settings.presets import resolve
    from circlet.training import checkpoint
    from circlet.training.loop import InterruptedRunError, TrainingSettings, resolve_device

    settings = resolve(run["preset"], run["given"])
    network = NetworkSettings(seed=run["seed"], **_those_of(NetworkSettings, settings))
    training = TrainingSettings(**_those_of(TrainingSettings, settings))
    place = resolve_device(device)
    store = settings.get("store", "float32")
    check_store(store)
    words = {key: settings[key] for key in ("char_ngrams", "min_df", "max_features") if key in settings}
    if "char_ngrams" in words:
        words["char_ngrams"] = tuple(words["char_ngrams"])
    vectorizer = TextVectorizer(**words)
    share = settings.get("validation", 0.05)
    if not 0 <= share < 1:
        raise ParameterError(f"`validation` must be at least 0 and below 1, got {share!r}")
    dataset = load_dataset(run["data"], **run["read"])
    if not dataset.train.Y.nnz:
        raise DataError(
            f"{dataset.source}: found no label in any of the {dataset.train.n:,} documents; "
            "wanted some to learn from"
        )
    train_split, validation = dataset.train, None
    if share and round(dataset.train.n * share) >= 1:
        train_split, validation = dataset.validation_split(share, seed=run["seed"], copy=False)
    before = folder.exists()
    files.prepare_folder(folder)
    files.write_json(folder / RUN_FILE, run)
    err.print(
        f"{dataset.name}: {dataset.format}; {train_split.n:,} documents, {dataset.n_labels:,} labels",
        soft_wrap=True,
    )
    try:
        with TrainingBar(training.epochs) as bar:
            fitted = fit(
                train_split,
                network=network,
                training=training,
                label_names=dataset.label_names,
                scaling=settings.get("scaling", "auto"),
                vectorizer=vectorizer,
                validation=validation,
                device=place,
                reporter=bar,
                folder=folder,
                resume=(folder / checkpoint.NAME).exists(),
            )
    except InterruptedRunError as error:
        err.print(
            f"{error}\nto go on: circlet train {run['data']} --model {folder} --resume",
            highlight=False,
            soft_wrap=True,
        )
        raise typer.Exit(130) from error
    except CircletError:
        if not (folder / checkpoint.NAME).exists():  # a mistake, not a run that can be taken up
            (folder / RUN_FILE).unlink(missing_ok=True)
            if not before and not any(folder.iterdir()):
                folder.rmdir()
        raise
    fitted.training |= {"data": dataset.name, "format": dataset.format, "preset": run["preset"]}
    fitted.save(folder, store)
    (folder / RUN_FILE).unlink(missing_ok=True)
    return {
        "model": str(folder),
        "network": network.as_dict(),
        "training": fitted.training,
        "n_features": fitted.n_features,
        "n_labels": fitted.n_labels,
        "parameters": fitted.network.parameter_counts(),
        "store": store,
        "bytes": sum(path.stat().st_size for path in folder.iterdir() if path.is_file()),
        "history": fitted.history,
    }


def _resumed(folder: Path, run: dict[str, Any]) -> dict[str, Any]:
    """The run that was started in `folder`; what is given again must agree with it."""
    path = folder / RUN_FILE
    if not path.is_file():
        raise ParameterError(f"--resume: {folder} holds no interrupted run; train without --resume")
    try:
        started: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        before, now = started["given"], run["given"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: found no readable description of the run ({error})") from error
    for name, value in now.items():
        if value is not None and value != before.get(name):
            raise ParameterError(
                f"--resume: the run was started with {name.replace('_', '-')} {before.get(name)}, not {value}"
            )
    if run["data"] != started.get("data"):
        raise ParameterError(f"--resume: the run was started on {started.get('data')}, not on {run['data']}")
    return started


def _refuse_to_forget(folder: Path) -> None:
    from circlet.training import checkpoint

    if (folder / checkpoint.NAME).exists():
        raise ParameterError(
            f"{folder} holds the checkpoint of an interrupted run: go on with --resume, or choose another folder"
        )


def _widths(name: str, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        option = name.replace("_", "-")
        raise ParameterError(f"--{option}: wanted whole numbers with commas between, got {text!r}") from None


def _those_of(cls: Any, settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name in cls.__dataclass_fields__}
