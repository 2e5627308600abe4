"""Folders of small models of every kind, and of interrupted runs."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import scipy.sparse as sp
from tests.fuzz.damage import FolderSubject, Tree, read_tree

import circlet
from circlet.cli import app, progress
from circlet.cli.progress import TrainingBar
from circlet.data.dataset import Dataset, Split
from circlet.data.matrices import write_matrices
from circlet.data.records import Record, write_records
from circlet.model import Model, fit
from circlet.runtime.compression import compress, smallest_within
from circlet.settings import NetworkSettings, RunSettings, TrainingSettings
from circlet.storage import layout
from circlet.storage.kept_rows import read_sample
from circlet.storage.layout import CHECKPOINT, CONFIG, read_config, sealed
from circlet.storage.packed_weights import DEFLATED

N, F, L = 40, 14, 6
NAMES = ["red", "green", "dark blue", "größer", "日本", "#6"]
SETTINGS = RunSettings(
    NetworkSettings(dim=16, hidden=(12,)), TrainingSettings(epochs=1, batch_size=16, lr=0.02), validation=0
)
#: Options of a command that trains quickly.
QUICK = ["--dim", "16", "--hidden", "12", "--epochs", "3", "--batch-size", "16", "--validation", "0.2"]


def documents(kind: str, seed: int) -> Any:
    """Documents of a kind: sparse, dense or texts."""
    random = np.random.default_rng(seed)
    if kind == "texts":
        words = np.array(["one", "two", "größer", "日本", "five", "six", "seven"])
        return [" ".join(random.choice(words, random.integers(1, 6))) for _ in range(N)]
    rows = random.random((N, F), dtype=np.float32) * (random.random((N, F)) < 0.5)
    return sp.csr_matrix(rows) if kind == "sparse" else rows


def targets(seed: int) -> sp.csr_matrix:
    """Labels of as many documents."""
    return sp.csr_matrix((np.random.default_rng(seed).random((N, L)) < 0.3).astype(np.float32))


def subjects(folder: Path) -> list[FolderSubject]:
    """All of them; the folder keeps the models, and what runs need."""
    trees = {
        (kind, seed): _saved(make(seed), folder / f"{kind} {seed}".replace(" ", "-"))
        for seed in (0, 1)
        for kind, make in _MAKERS.items()
    }
    kinds = {name: "texts" if "text" in name else "dense" if "dense" in name else "sparse" for name in _MAKERS}
    found = []
    data = {each: _data(folder, each) for each in ("texts", "dense")}
    for kind in _MAKERS:
        tree, others = trees[kind, 0], [trees[kind, 1], *(trees[other, 0] for other in _MAKERS if other != kind)]
        of, rows = kinds[kind], documents(kinds[kind], 2)
        questions: dict[str, tuple[Callable[[Path], Any], float]] = {"used": (partial(_used, rows=rows), 2.0)}
        if kind.startswith("estimator"):
            questions["by torch"] = (partial(_used_by_torch, rows=rows), 0.5)
        if kind in ("text", "dense, two members"):
            questions["trained further"] = (partial(_trained_further, data=data[of]), 0.2)
        if kind in ("matrix", "text, int8"):
            questions |= {"compressed": (partial(_compressed, rows=rows), 0.5), "info": (_described, 0.5)}
        if kind == "matrix":
            questions |= {"searched": (_searched, 0.3), "exported": (_exported, 0.3)}
        for question, (answer, weight) in questions.items():
            name = f"{kind} model, {question}"
            found.append(FolderSubject(name, tree, others, answer, reseal=reseal, weight=weight))
    with _small_is_large():
        large = [_saved(_MAKERS["matrix"](seed), folder / f"large-{seed}") for seed in (0, 1)]
    found.append(FolderSubject("large model, verified", large[0], large[1:], _verified))
    return [*found, *_runs(folder)]


def reseal(tree: Tree) -> bool:
    """Write the sizes and digests that the files have now; whether that was possible."""
    content = tree.get(CONFIG)
    if not isinstance(content, bytes):
        return False
    try:
        config = json.loads(content)
        for about in config["files"].values():
            found = tree.get(about["file"])
            if isinstance(found, bytes):
                about |= {"bytes": len(found), "sha256": hashlib.sha256(found).hexdigest()}
        tree[CONFIG] = json.dumps(sealed(config)).encode()
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return False  # too damaged to have a digest
    return True


# How models are made


def _fitted(kind: str, seed: int, *, names: bool = False, **changes: Any) -> Model:
    train, held_out = (
        Split(None, targets(seed), part) if kind == "texts" else Split(part, targets(seed))
        for part in (documents(kind, seed), documents(kind, seed + 10))
    )
    network = replace(SETTINGS.network, seed=seed, **changes.pop("network", {}))
    settings = replace(SETTINGS, network=network, **changes)
    return fit(train, settings, validation=held_out, label_names=NAMES if names else None)


def _estimator(kind: str, seed: int, single: bool) -> Any:
    labels: Any = [[NAMES[i] for i in row] for row in np.split(targets(seed).indices, targets(seed).indptr[1:-1])]
    if single:
        labels = np.random.default_rng(seed).integers(3, 3 + L, N)
    learner = circlet.CircletClassifier(
        dim=16, hidden=(12,), epochs=1, batch_size=16, random_state=seed, validation=0, char_ngrams=None,
        keep_index=not single,
    )  # fmt: skip
    return learner.fit(documents(kind, seed), labels)


_MAKERS: dict[str, Callable[[int], Any]] = {
    "matrix": lambda seed: _fitted("sparse", seed),
    "text": lambda seed: _fitted("texts", seed, names=True),
    "dense, two members": lambda seed: _fitted("dense", seed, members=2, scaling="standard"),
    "spectral": lambda seed: _fitted("sparse", seed, network={"codebook": "spectral"}, scaling="tfidf"),
    "hrr": lambda seed: _fitted("sparse", seed, network={"head": "hrr", "loss": "cosine"}),
    "fc": lambda seed: _fitted("sparse", seed, network={"head": "fc"}),
    "text, int8": lambda seed: (_fitted("texts", seed, names=True), "int8"),
    "matrix, int4": lambda seed: (_fitted("sparse", seed), "int4"),
    "matrix, bf16": lambda seed: (_fitted("sparse", seed, names=True), "bf16"),
    "text, deflated": lambda seed: (_fitted("texts", seed, names=True), DEFLATED),
    "estimator of text": lambda seed: _estimator("texts", seed, single=False),
    "estimator of dense, one class": lambda seed: _estimator("dense", seed, single=True),
}


def _saved(model: Any, folder: Path) -> Tree:
    model, store = model if isinstance(model, tuple) else (model, "float32")
    if store != DEFLATED:
        model.save(folder, store)
        return read_tree(folder)
    whole = folder.with_name(folder.name + "-whole")
    model.save(whole)
    smallest_within(whole, read_sample(whole, read_config(whole)), 5.0).write(folder)
    return read_tree(folder)


# What is asked


def sound(labels: Any, scores: Any) -> None:
    """Assert what holds for the suggestions of any model."""
    assert labels.shape == scores.shape, f"{labels.shape} labels, {scores.shape} scores"
    assert np.isfinite(scores).all(), "scores are not finite"
    assert ((scores >= 0) & (scores <= 1)).all(), "scores are no probabilities"


def _answers(tagger: Any, rows: Any) -> Any:
    labels, scores = tagger.suggest(rows, k=3)
    sound(labels, scores)
    chances, predicted = tagger.predict_proba(rows), tagger.predict(rows)
    sound(chances, chances)
    return (
        labels.tolist(),
        scores.tolist(),
        chances.tolist(),
        (predicted.toarray() if sp.issparse(predicted) else predicted).tolist(),
        [each.tolist() for each in tagger.similar(rows, k=3)] if tagger.has_index else [],
        [(each.label, each.score, each.base) for each in tagger.explain(rows[:1], k=1)[0]],
    )


def _used(folder: Path, rows: Any) -> Any:
    return _answers(circlet.load(folder), rows)


def _small_is_large() -> Any:
    return mock.patch.multiple(layout, LARGE=1000, SPOTS=3, SPOT=8)


def _verified(folder: Path) -> Any:
    """What a model answers if its weights count as large, so that only `--verify` looks at all of them."""
    with _small_is_large():
        described = json.loads(command("info", str(folder), "--verify", "--json"))
        return described["network"], _used(folder, documents("sparse", 2))


def _used_by_torch(folder: Path, rows: Any) -> Any:
    return _answers(circlet.CircletClassifier.load(folder), rows)


def _compressed(folder: Path, rows: Any) -> Any:
    output = folder.with_name("compressed")
    shutil.rmtree(output, ignore_errors=True)
    compress(folder, output, "bf16")
    return _used(output, rows)


def _data(folder: Path, kind: str, name: str = "data") -> Path:
    """A file or folder of documents like those that models were trained on."""
    if kind == "dense":
        write_matrices(folder / "rows", Dataset("rows", Split(documents(kind, 3), targets(3))))
        return folder / "rows"
    labels = np.split(targets(3).indices, targets(3).indptr[1:-1])
    records = [
        Record(n, text, tuple(NAMES[label] for label in own))
        for n, (text, own) in enumerate(zip(documents(kind, 3), labels, strict=True))
    ]
    path = folder / f"{name}.jsonl"
    write_records(path, records, "jsonl")
    return path


def _trained_further(folder: Path, data: Path) -> Any:
    command("train", str(data), "--model", str(folder), "--continue", "--epochs", "1", "--device", "cpu")
    return _used(folder, documents("dense" if data.is_dir() else "texts", 2))


def _described(folder: Path) -> Any:
    described = json.loads(command("info", str(folder), "--json"))
    return {name: value for name, value in described.items() if name not in ("bytes", "model")}


def _searched(folder: Path) -> Any:
    config = read_config(folder)
    found = smallest_within(folder, read_sample(folder, config), 5.0)
    return found.chosen.coarseness, found.metric


def _exported(folder: Path) -> Any:
    output = folder.with_name("exported.onnx")
    command("export", str(folder), str(output), "--overwrite")
    return output.read_bytes()


def command(*words: str) -> str:
    """What a command prints; its errors are raised."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        app(list(words), standalone_mode=False)
    return out.getvalue()


# Interrupted runs


def _runs(folder: Path) -> list[FolderSubject]:
    data = [_data(folder, "texts", name) for name in ("data", "others")]
    found = []
    for name, options in (("run", []), ("run of two members", ["--members", "2"])):
        # Another run on the same data would be just another run, if all its files came together.
        trees = [_interrupted(each, folder / f"{name} on {each.stem}", options) for each in data]
        answer = partial(_resumed, data=data[0])
        subject = FolderSubject(f"interrupted {name}, resumed", trees[0], trees[1:], answer, witness=CHECKPOINT)
        found.append(subject)
    return found


def _interrupted(data: Path, folder: Path, options: list[str]) -> Tree:
    """The folder of a run that Ctrl-C ended in the second epoch of its last network."""

    class CtrlC(TrainingBar):
        def record(self, record: dict[str, Any]) -> None:
            if record["epoch"] == 2 and record.get("member", 2) == 2:
                raise KeyboardInterrupt

    with mock.patch.object(progress, "TrainingBar", CtrlC):
        command("train", str(data), "--model", str(folder), *QUICK, *options)
    return read_tree(folder)


def _resumed(folder: Path, data: Path) -> Any:
    command("train", str(data), "--model", str(folder), "--resume", "--device", "cpu")
    return _used(folder, documents("texts", 2))
