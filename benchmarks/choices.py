"""Trials that chose the presets' settings: each question is answered on rows held out of the training rows.

    python benchmarks/choices.py QUESTION ... --data DIR --out experiments/results/choices

A trial trains a model on 85% of the training rows of a dataset, as `circlet train` would, and ranks the labels of
the others; test rows are never read. Every question has a JSON file. Trials that are in it already are not run
again. Accuracies are percentages. Seconds are those of a shared machine, and may include other work on it; a
question's trials may come from several machines.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from calibration import reliability
from peers_data import SMALL, drawn, load

from circlet import files
from circlet.data.dataset import Dataset
from circlet.metrics import evaluate, inverse_propensity
from circlet.model import fit
from circlet.provenance import provenance
from circlet.settings import RunSettings
from circlet.training import resolve_device, steps
from circlet.training.steps import multiplies_bfloat16

#: Share of the training rows that judges, and the seed that draws them, which no run's own held-out rows share.
JUDGED, DRAW = 0.15, 2026
DEPTHS = (1, 3, 5)
#: Not a setting: trains with products in float32 even where bfloat16 is faster.
FLOAT32 = "float32"


class Trial(NamedTuple):
    """A dataset, a preset, and what is set differently."""

    dataset: str
    preset: str
    given: dict[str, Any] = {}  # noqa: RUF012


def grid(datasets: tuple[str, ...], preset: str, *variants: dict[str, Any]) -> list[Trial]:
    return [Trial(dataset, preset, given) for dataset in datasets for given in variants]


MATRICES = ("bibtex", "delicious", "eurlex-4k")
TEXTS = ("pydocs-3000", "wordnet-3000", "yso-3000")
SGD = {"first_layer": "sgd"}
#: Sets with few documents for each label, larger than those that peers are measured on.
SPARSE = {f"yso-{size}": ("yso-finna-en", size) for size in (20_000, 50_000, 100_000, 200_000)}
#: What the rules had for labels with one or two documents.
BY_HEART = {"first_layer": "same", "lr": 3e-3, "dropout": 0.3, "epochs": 20, "dim": 5000}
CHARACTERS: dict[str, Any] = {"char_ngrams": (3, 5), "max_features": 100_000}
USUAL = {"lr": 1e-3, "dropout": 0.3, "epochs": 7, "dim": 800}
QUESTIONS: dict[str, tuple[str, list[Trial]]] = {
    "first-layer": (
        "Is the first layer better trained by SGD or by AdamW, and does the short trial choose the better one?",
        grid(MATRICES, "default", {}, SGD, {"first_layer": "same"})
        + grid(TEXTS, "default", SGD, {"first_layer": "same"}),
    ),
    "held-out": (
        "How many rows should be held out, to join in the end? None at all is what is lost by holding out any.",
        grid(("eurlex-4k", "delicious"), "fast", *({"validation": size} for size in (0, 0.02, 0.05, 0.1))),
    ),
    "dropout": (
        "How much dropout?",
        grid(MATRICES, "default", *({**SGD, "dropout": share} for share in (0.0, 0.3, 0.5, 0.7))),
    ),
    "batch": (
        "How large should batches be? The rate grows with them.",
        grid(("eurlex-4k",), "default", *({**SGD, "batch_size": size} for size in (64, 128, 192)))
        + grid(
            ("eurlex-4k", "delicious"),
            "fast",
            *({"batch_size": size, "lr": size / 128e3} for size in (128, 192, 256)),
        ),
    ),
    "width": (
        "How wide should the hidden layer be?",
        grid(("eurlex-4k",), "default", *({**SGD, "hidden": (width,)} for width in (1024, 2048))),
    ),
    "epochs": (
        "How many epochs?",
        grid(("eurlex-4k", "delicious"), "fast", *({"epochs": epochs} for epochs in (3, 4, 5, 6)))
        + grid(MATRICES, "default", *({**SGD, "epochs": epochs} for epochs in (4, 6, 8, 12)))
        + grid(("wordnet",), "default", *({**SGD, "epochs": epochs} for epochs in (2, 3, 4, 6))),
    ),
    "accurate": (
        "What is gained by many epochs, and how much dropout do they need?",
        grid(
            MATRICES,
            "accurate",
            *({**SGD, "epochs": epochs, "dropout": share} for epochs in (24, 40, 60) for share in (0.6, 0.7, 0.8)),
        ),
    ),
    "accurate-size": (
        "How large should batches, rates and the network be, if time is given?",
        grid(
            ("eurlex-4k",),
            "accurate",
            *(
                {**SGD, "epochs": 40, "dropout": 0.7, **given}
                for given in (
                    {"batch_size": 128},
                    {"batch_size": 256, "lr": 2e-3},
                    {"hidden": (4096,), "dropout": 0.8},
                    {"dim": 800},
                    {"dim": 2000},
                )
            ),
        ),
    ),
    "members": (
        "What would make three averaged networks better still?",
        grid(
            ("eurlex-4k",),
            "accurate",
            *(
                {"members": 3, **given}
                for given in (
                    {},
                    {"dim": 2000},
                    {"dim": 2000, "hidden": (3072,)},
                    {"dim": 2000, "hidden": (3072,), "epochs": 50},
                )
            ),
        ),
    ),
    "steps": (
        "How few steps, and how narrow a network, does `fast` need, and how many `accurate` on many documents?",
        grid(
            ("pydocs",),
            "fast",
            *(
                {"hidden": (1024,), **given}
                for given in (
                    {},
                    {"epochs": 4},
                    {"epochs": 3},
                    {"epochs": 3, "lr": 3e-3},
                    {"epochs": 2, "lr": 4e-3},
                    {"hidden": (512,)},
                    {"hidden": (256,), "dim": 400, "lr": 3e-3},
                    {"batch_size": 256, "lr": 2e-3},
                    {"batch_size": 256, "lr": 3e-3, "hidden": (512,)},
                )
            ),
        )
        + grid(
            ("wordnet",),
            "fast",
            *(
                {"batch_size": size, "lr": size / 128e3, "hidden": (width,)}
                for size, width in ((192, 1024), (192, 768), (192, 512), (256, 1024), (256, 768), (384, 768))
            ),
            {"epochs": 1},
        )
        + grid(("wordnet",), "accurate", *({"epochs": epochs} for epochs in (17, 12, 8))),
    ),
    "many-documents": (
        "What do half a million short documents with many labels need?",
        grid(
            ("yso-finna-en",),
            "default",
            *(
                {"first_layer": "same", **given}
                for given in (
                    {},
                    {"first_layer": "sgd"},
                    {"dim": 1600},
                    {"dim": 6400},
                    {"hidden": (1024,)},
                    {"hidden": (1024,), "epochs": 4},
                    {"hidden": (1024,), "epochs": 2},
                    {"batch_size": 256},
                    {"hidden": (1024,), "lr": 2e-3},
                    {"hidden": (1024,), "scaling": "l2"},
                    {"hidden": (1024,), "dropout": 0.2},
                    {"hidden": (1024,), "dropout": 0.4},
                    {"hidden": (1024,), "dropout": 0.4, "epochs": 4},
                    {"hidden": (1024,), "dropout": 0.4, "dim": 6400},
                    {"hidden": (2048,), "dropout": 0.4},
                    {"hidden": (1024,), "dropout": 0.3, "first_layer": "sgd"},
                    {"hidden": (2048,), "dropout": 0.6},
                )
            ),
        ),
    ),
    "few-shot": (
        "How few documents of a label make it few-shot, and what do such labels need?",
        grid(
            ("yso-20000", "yso-50000"),
            "default",
            USUAL,
            *(
                {**BY_HEART, **given}
                for given in (
                    {},
                    {"epochs": 10},
                    {"epochs": 30},
                    {"first_layer": "sgd"},
                    {"lr": 1e-3},
                    {"dropout": 0.5},
                    {"dropout": 0.1},
                    {"dim": 800},
                    {"dim": 2500},
                    {"dim": 7500},
                    {"hidden": (2048,)},
                    {"batch_size": 64},
                    {"batch_size": 256},
                    {"char_ngrams": None, "max_features": None},
                    {"input_dropout": 0.2},
                    {"head": "fc"},
                )
            ),
        )
        + grid(
            ("yso-100000", "wordnet-3000", "wordnet-10000"),
            "default",
            {},
            BY_HEART,
            {**BY_HEART, "epochs": 10},
            {**BY_HEART, "epochs": 5},
            {**BY_HEART, "dim": 2500, "epochs": 10},
        )
        + grid(
            ("yso-20000",),
            "default",
            *(
                {**BY_HEART, "dim": 7500, "dropout": 0.1, **given}
                for given in (
                    {},
                    {"epochs": 12},
                    {"epochs": 12, "batch_size": 256},
                    {"epochs": 12, "lr": 2e-3},
                    {"epochs": 12, "lr": 5e-3},
                    {"input_dropout": 0.2},
                    {"max_features": 100_000},
                    {"max_features": 100_000, "word_ngrams": (1, 2)},
                    {"hidden": (2048,)},
                    {"hidden": (512,)},
                    {"hidden": (2048,), "dropout": 0.5},
                    {"hidden": (2048,), "epochs": 12},
                    {"hidden": (2048,), "dim": 5000, "epochs": 12},
                    {"dim": 15_000},
                    {"scaling": "l2"},
                    {"head": "chrr"},
                    {"loss": "softmax"},
                    {"weight_decay": 0.1},
                )
            ),
        )
        + grid(
            ("yso-10000",),
            "default",
            {},
            *(
                {**BY_HEART, "dim": 6000, "dropout": 0.1, **given}
                for given in (
                    {},
                    {"epochs": 12},
                    {"hidden": (2048,)},
                    {"input_dropout": 0.2},
                    {"max_features": 100_000},
                )
            ),
        )
        + grid(
            ("yso-50000",),
            "default",
            *(
                {**BY_HEART, "epochs": 10, **given}
                for given in (
                    {"batch_size": 256},
                    {"lr": 1e-3},
                    {"lr": 2e-3},
                    {"dim": 9500},
                    {"hidden": (1024,)},
                    {"epochs": 6},
                    {"char_ngrams": (3, 5), "max_features": 50_000},
                    {"char_ngrams": (3, 5), "max_features": 100_000},
                    {"min_df": 1},
                )
            ),
        )
        + grid(
            ("yso-100000",),
            "default",
            *(
                {**BY_HEART, "epochs": 5, **given}
                for given in (
                    {"lr": 1e-3},
                    {"epochs": 3},
                    {"dim": 3000},
                    {"dim": 10_500},
                    {"hidden": (1024,)},
                    {"dropout": 0.5},
                    {"batch_size": 256},
                    {"char_ngrams": (3, 5), "max_features": 100_000},
                )
            ),
        )
        + grid(
            ("yso-200000",),
            "default",
            {},
            *({**BY_HEART, "epochs": 4, **given} for given in ({}, {"lr": 1e-3}, {"dropout": 0.4})),
        ),
    ),
    "few-shot-cpu": (
        (
            "The same on CPUs, where rows of the first layer rest while no document touches them, "
            "and the rules made of it."
        ),
        grid(
            ("yso-50000",),
            "default",
            *(
                {**BY_HEART, "epochs": 8, "hidden": (1024,), "batch_size": 256, **given}
                for given in (
                    {**CHARACTERS},
                    {**CHARACTERS, "lr": 1.5e-3},
                    {**CHARACTERS, "dropout": 0.1},
                    {**CHARACTERS, "epochs": 5},
                    {"char_ngrams": None, "max_features": None, "min_df": 1},
                )
            ),
        )
        + grid(("yso-1000", "yso-3000", "yso-10000"), "default", {"dropout": 0.1}, {"dropout": 0.3})
        + grid(("yso-20000",), "default", {})
        + grid(("yso-20000",), "fast", {})
        + grid(("yso-50000",), "default", {})
        + grid(
            ("yso-100000",),
            "default",
            {
                **BY_HEART,
                "epochs": 5,
                "hidden": (1024,),
                "batch_size": 256,
                "char_ngrams": None,
                "max_features": None,
                "min_df": 1,
            },
        ),
    ),
    "few-labels": (
        "Which head and dimension suit few labels?",
        grid(
            ("bibtex",),
            "default",
            *({**SGD, **given} for given in ({"dim": 100}, {"dim": 200}, {"dim": 800}, {"head": "fc"})),
        ),
    ),
    "scaling": (
        "Square roots of sparse features, or not?",
        grid(("delicious", "eurlex-4k"), "default", *({**SGD, "scaling": kind} for kind in ("sqrt", "l2"))),
    ),
    "characters": (
        "Do character n-grams help where texts are few?",
        grid(
            TEXTS,
            "default",
            {"char_ngrams": None, "max_features": None},
            {"char_ngrams": (3, 5)},
        ),
    ),
    "precision": (
        "Do products in bfloat16 cost accuracy? With three seeds.",
        grid(("eurlex-4k", "delicious"), "fast", {}, {FLOAT32: True}),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("questions", nargs="+", choices=list(QUESTIONS), metavar="QUESTION")
    parser.add_argument("--data", type=Path, help="folder with a subfolder for each dataset")
    parser.add_argument("--out", type=Path, default=Path("experiments/results/choices"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=1, metavar="N")
    options = parser.parse_args()
    files.prepare_folder(options.out)
    for name in options.questions:
        path = options.out / f"{name}.json"
        known = json.loads(path.read_text(encoding="utf-8"))["trials"] if path.is_file() else []
        question, trials = QUESTIONS[name]
        for trial in trials:
            for seed in range(options.seeds):
                about = {
                    "dataset": trial.dataset,
                    "preset": trial.preset,
                    "given": plain(trial.given),
                    "seed": seed,
                }
                if any(about == {name: found[name] for name in about} for found in known):
                    continue
                known.append({**about, **measured(trial, seed, options)})
                print(
                    json.dumps({name: value for name, value in known[-1].items() if name != "decided"}), flush=True
                )
                origin = provenance()
                origin["command"] = f"python benchmarks/choices.py {name} --data DIR --device {options.device}"
                files.write_json(path, {"question": question, "trials": known, "provenance": origin})


def plain(given: dict[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}


def judged_apart(trial: Trial, data: Path | None) -> Dataset:
    """The training rows alone: most of them to train on, the others in place of test rows."""
    source, size = {**SMALL, **SPARSE}.get(trial.dataset, (trial.dataset, None))
    dataset = load(source, data)
    if size is not None:
        dataset = drawn(trial.dataset, dataset, size)
    train, judged = dataset.validation_split(JUDGED, seed=DRAW)
    return replace(dataset, train=train, test=judged)


def measured(trial: Trial, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    dataset = judged_apart(trial, options.data)
    assert dataset.test is not None
    given = {name: value for name, value in trial.given.items() if name != FLOAT32}
    settings = RunSettings.from_preset(trial.preset, {}, seed=seed).with_values(given)
    in_half: Any = (lambda _: False) if FLOAT32 in trial.given else multiplies_bfloat16
    setattr(steps, "multiplies_bfloat16", in_half)  # noqa: B010
    start = time.perf_counter()
    model = fit(dataset.train, settings, device=resolve_device(options.device))
    seconds = time.perf_counter() - start
    documents = dataset.test.X if model.vectorizer is None else dataset.test.texts
    ids, scores = model.top_k(documents, 10)
    weights = inverse_propensity(dataset.train.Y)
    found = evaluate(dataset.test.Y, ids, weights, k=DEPTHS, metrics=("P", "PSP"))
    bins = reliability(dataset.test.Y, ids, model.probabilities(scores))
    return {
        "metrics": {name: round(100 * value, 2) for name, value in found.items()},
        "probabilities_off_by": round(100 * bins["error"], 1),
        "seconds": round(seconds, 1),
        "decided": model.training.get("decided", []),
        "device": model.device.type,
        "processor": provenance()["machine"]["processor"],
    }


if __name__ == "__main__":
    main()
