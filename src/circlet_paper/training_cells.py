"""Cells that train a model on a dataset and rank its test rows.

An experiment describes its models as `Recipe` objects. `Recipe.cells` gives one cell for each seed, and
`circlet_paper.runs` finds their numbers in a result. P@k and PSP@k are percentages over the test rows;
propensities are estimated from all training rows, with the constants that the Repository uses for the dataset.

The paper trains for 100 epochs with batches of 64. The two datasets that stand in for the paper's larger ones are
trained less, the same for all of the paper's models: wordnet for 20 epochs and yso-finna-en for 10, both with
batches of 256 (`LESS`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from circlet.data import Dataset, Split, catalog
from circlet.data.matrices import feature_file, read_split_rows
from circlet.errors import DataError
from circlet.features.embed import RECORD, with_features
from circlet.files import sha256
from circlet.settings import AUTO, EFFORTS, PRESETS, RunSettings
from circlet_paper.cells import Result, Workplace
from circlet_paper.runs import Runs, pack_hits, right, runs

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self

    from circlet.model import Model
    from circlet.training import Reporter


DEPTHS = (1, 3, 5, 10, 20)
#: The name of a protocol that is no preset: circlet's own recipe with the same sizes on every dataset, so that
#: what is compared is the only difference.
FIXED = "fixed"
#: The features of cells that train on raw texts.
TEXTS = "texts"
#: Settings of the shorter runs on the larger datasets.
LESS: dict[str, dict[str, int]] = {
    "wordnet": {"epochs": 20, "batch_size": 256},
    "yso-finna-en": {"epochs": 10, "batch_size": 256},
}
#: Settings that are recorded even where a preset leaves them to the library. A change of the library's defaults
#: thus outdates what was measured with the old ones, while a setting that is added later outdates nothing.
RECORDED = (
    "head", "dim", "hidden", "codebook", "loss", "dropout", "epochs", "batch_size", "optimizer", "lr", "schedule",
    "weight_decay", "input_dropout", "metric", "patience", "scaling", "validation",
)  # fmt: skip
TITLES = {"pydocs": "Python docs", "wordnet": "WordNet", "yso-finna-en": "YSO Finna"}
#: Overrides that have a form of their own in a cell's name, or that follow from its dataset.
_NAMED_OTHERWISE = {"head", "dim", "hidden", "epochs", "batch_size"}


def title_of(dataset: str) -> str:
    """A dataset's name as printed in tables."""
    known = catalog.ENTRIES.get(dataset)
    return TITLES.get(dataset) or (known.title if known else dataset)


@dataclass(frozen=True)
class Settings:
    """Size of an experiment on real data; the defaults are the full size.

    Parameters
    ----------
    seeds : int
        Number of runs of each model, with seeds 0, 1, …
    rows : int or None
        The largest number of training rows; half as many test rows.
    epochs : int or None
        The largest number of epochs.
    shrink : int
        Divisor of the hidden widths.
    """

    seeds: int = 3
    rows: int | None = None
    epochs: int | None = None
    shrink: int = 1

    @classmethod
    def quick(cls) -> Settings:
        """Two epochs of narrow networks on a few rows."""
        return cls(seeds=2, rows=1000, epochs=2, shrink=4)

    @classmethod
    def of(cls, result: Result) -> Self:
        """The settings that a result was measured with; those that another experiment adds are left out."""
        known = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in result["settings"].items() if name in known})

    @property
    def note(self) -> str:
        """How a quick run is smaller than a full one, for the notes of tables; empty for a full run."""
        if self.rows is None:
            return ""
        return (
            f" A quick run, of no value as a measurement: at most {self.rows:,} training rows and "
            f"{self.epochs} epochs, hidden widths divided by {self.shrink}."
        )


@dataclass(frozen=True)
class TrainingCell:
    """Train a model with one seed and rank the test rows.

    Parameters
    ----------
    dataset : str
    protocol : str
        Name of a preset, or `FIXED`.
    given : mapping
        Settings that replace the preset's.
    seed : int
        Determines weights, codes, dropout, the order of rows and the choice of validation rows.
    rows : int or None
        The largest number of training rows; half as many test rows.
    split : int or None
        Number of one of the Repository's random splits, from 1; None for the dataset's own split.
    features : str
        "bow" for the dataset's own, `TEXTS` for none but its raw texts, or one of `circlet.features.embed.MODES`.
    """

    dataset: str
    protocol: str
    given: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    rows: int | None = None
    split: int | None = None
    features: str = "bow"

    @property
    def name(self) -> str:
        settings, parts = self.settings(), [self.protocol]
        if self.protocol not in EFFORTS:  # those decide sizes when they see the data
            parts += [settings["head"]]
            parts += [f"d{settings['dim']}"] if settings["head"] != "fc" else []
            parts += [f"h{settings['hidden'][0]}"]
        for key, value in self.given.items():
            if key not in _NAMED_OTHERWISE and value is not None:
                word = isinstance(value, str) and value != AUTO
                parts.append(value if word else f"{key.replace('_', '-')}{value}")
        parts += [self.features] if self.features != "bow" else []
        parts += [f"split{self.split}"] if self.split is not None else []
        quick = "quick-" if self.rows is not None else ""
        return f"{quick}{self.dataset}/{'-'.join(parts)}-seed{self.seed}"

    def settings(self) -> dict[str, Any]:
        """The preset's settings, those given, and the library's where neither says."""
        return full_settings(self.protocol, self.given)

    def about(self) -> Result:
        settings = self.settings()
        return {
            "dataset": self.dataset,
            "features": self.features,
            "split": self.split,
            "rows": self.rows,
            "protocol": self.protocol,
            "settings": {
                name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()
            },
            "seed": self.seed,
        }

    def missing(self, workplace: Workplace) -> str | None:
        if line := workplace.missing(self.dataset):
            return line
        if self.features == TEXTS:
            return _without_texts(self.dataset, workplace.folder(self.dataset))
        if self.features != "bow" and not (workplace.features and (workplace.features / self.dataset).is_dir()):
            where = f"no folder {workplace.features / self.dataset}" if workplace.features else "no --features"
            return (
                f"{self.dataset}: found {where} with X.trn.npy and X.tst.npy; circlet embed makes dense features "
                "from raw texts"
            )
        if self.split is None:
            return None
        folder = workplace.folder(self.dataset)
        assert folder is not None
        files = _split_files(folder, self.dataset)
        if all(path.is_file() for path in files):
            return None
        return (
            f"{self.dataset}: found no {' and '.join(path.name for path in files)} in {folder}; "
            "the Repository has them next to the data"
        )

    def load(self, workplace: Workplace) -> Dataset:
        """Load the rows to train on and to test on."""
        dataset = workplace.load(self.dataset)
        if dataset.test is None:
            raise DataError(f"{dataset.source}: found no test rows; an experiment needs a dataset that has some")
        if self.features == TEXTS:
            dataset = _texts_alone(dataset)
        elif self.features != "bow":
            assert workplace.features is not None
            dataset = with_features(dataset, workplace.features / self.dataset, self.features)
        if self.split is not None:
            dataset = _resplit(dataset, self.dataset, self.split)
        if self.rows is not None:
            assert dataset.test is not None
            test = _thinned(dataset.test, max(1, self.rows // 2))
            dataset = replace(dataset, train=_thinned(dataset.train, self.rows), test=test)
        return dataset

    def _origin_of_features(self, workplace: Workplace) -> Result:
        if self.features in ("bow", TEXTS) or workplace.features is None:
            return {}
        folder = workplace.features / self.dataset
        about = folder / RECORD
        model = json.loads(about.read_text(encoding="utf-8"))["model"]["name"] if about.is_file() else None
        digests = {part: sha256(path) for part in ("trn", "tst") if (path := feature_file(folder, part))}
        return {"dense_features": {"model": model, "sha256": digests}}

    def fit(self, split: Split, settings: RunSettings, device: torch.device, reporter: Reporter | None) -> Model:
        """Train the model."""
        from circlet.model import fit

        return fit(split, settings, device=device, reporter=reporter)

    def measure(self, workplace: Workplace, reporter: Reporter | None) -> Result:
        from circlet.metrics.evaluation import evaluate_model
        from circlet.runtime import Tagger
        from circlet.training import resolve_device

        settings, dataset = run_settings(self.protocol, self.given, self.seed), self.load(workplace)
        device, test = resolve_device(workplace.device), dataset.test
        assert test is not None
        started = time.perf_counter()
        model = self.fit(dataset.train, settings, device, reporter)
        trained = time.perf_counter()
        found = evaluate_model(Tagger(model), dataset, DEPTHS)
        return {
            "metrics": {
                metric: round(100 * value, 3)
                for metric, value in found.values.items()
                if metric.partition("@")[0] in ("P", "PSP")
            },
            "hits": pack_hits(right(found.truth, found.ranked)),
            "parameters": model.ranker.parameter_counts(),
            "shapes": {
                "features": model.n_features,
                "labels": model.n_labels,
                "train": model.training["documents"],
                "validation": model.training["held_out"],
                "test": test.n,
            },
            **({"decided": decided} if (decided := model.training.get("decided")) else {}),
            **self._origin_of_features(workplace),
            "device": device.type,
            "training_seconds": round(trained - started, 2),
            "last_epoch": model.history[-1],
            **_history(model.history, settings.training.metric),
        }


def _history(records: Sequence[Result], metric: str) -> Result:
    """The losses of all epochs and, if validation followed each, what it measured and the epoch that was best."""
    # A history tells the loss on held-out rows from the loss in training; the lower one is the better one.
    name, sign = ("validation_loss", -1) if metric == "loss" else (metric, 1)
    # Of a model that had a calibration run, only the last record has what validation measured.
    measured = [key for key in ("loss", name) if all(key in record for record in records)]
    history = {key: [float(f"{record[key]:.5g}") for record in records] for key in measured}
    if name not in history:
        return {"history": history}
    values = [sign * value for value in history[name]]
    best = max(range(len(values)), key=lambda epoch: (values[epoch], epoch))
    return {"history": history, "best_epoch": best + 1}


def run_settings(protocol: str, given: Mapping[str, Any], seed: int = 0) -> RunSettings:
    """The settings of a preset, or the fixed ones, with the given ones in place of their own."""
    if protocol == FIXED:
        return RunSettings.of({name: value for name, value in given.items() if value is not None}, seed=seed)
    return RunSettings.from_preset(protocol, given, seed=seed)


def full_settings(protocol: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are recorded; "auto" is decided when the data are known."""
    settings = run_settings(protocol, given).flat()
    fixed = {} if protocol in EFFORTS else PRESETS.get(protocol, {})
    return {n: settings[n] for n in settings if n in RECORDED or n in fixed or given.get(n) is not None}


def _without_texts(dataset: str, folder: Path | None) -> str | None:
    """What matrices without raw texts lack, as one line of text; None if there are texts."""
    if folder is None or not (folder / "X.trn.npz").is_file() or any(folder.glob("train_raw_texts.txt*")):
        return None
    return (
        f"{dataset}: found no train_raw_texts.txt in {folder}; an encoder reads texts, which stand beside X and Y"
    )


def _texts_alone(dataset: Dataset) -> Dataset:
    """A dataset without features: each model makes its own of the texts."""
    parts = (dataset.train, dataset.test)
    if any(part is None or part.texts is None for part in parts):
        raise DataError(
            f"{dataset.source}: found {dataset.format} without texts; wanted raw texts of all documents"
        )
    train, test = (part and replace(part, X=None) for part in parts)
    assert train is not None
    return replace(dataset, train=train, test=test)


def _split_files(folder: Path, dataset: str) -> tuple[Path, Path]:
    return folder / f"{dataset}_trSplit.txt", folder / f"{dataset}_tstSplit.txt"


def _resplit(dataset: Dataset, name: str, split: int) -> Dataset:
    """Split the rows as in a split file of the Repository, which numbers training rows, then test rows, from 1."""
    assert dataset.test is not None
    assert dataset.source is not None
    X: Any = (dataset.train.X, dataset.test.X)
    stacked = sp.vstack(X, format="csr") if sp.issparse(X[0]) else np.vstack(X)
    whole = Split(stacked, sp.vstack((dataset.train.Y, dataset.test.Y), format="csr"))
    train, test = (
        whole.take(read_split_rows(path, split - 1, whole.n)) for path in _split_files(dataset.source, name)
    )
    return replace(dataset, train=train, test=test)


def _thinned(split: Split, rows: int) -> Split:
    # Evenly spaced, because files are often sorted and the first rows then have few of the labels.
    return split if split.n <= rows else split.take(np.linspace(0, split.n - 1, rows).astype(np.int64))


@dataclass(frozen=True)
class Recipe:
    """A model of an experiment: its title in tables, and how it differs from a preset."""

    title: str
    protocol: str
    given: Mapping[str, Any] = field(default_factory=dict)
    features: str = "bow"

    def cells(self, dataset: str, settings: Settings, split: int | None = None) -> list[TrainingCell]:
        """A cell for each seed."""
        given = {**({} if self.protocol in EFFORTS else LESS.get(dataset, {})), **self.given}
        full = full_settings(self.protocol, given)
        if settings.epochs is not None:
            given["epochs"] = min(settings.epochs, full["epochs"]) if full["epochs"] != AUTO else settings.epochs
        if settings.shrink > 1:
            widths = full["hidden"] if full["hidden"] != AUTO else RunSettings().network.hidden
            given["hidden"] = tuple(max(1, width // settings.shrink) for width in widths)
        return [
            TrainingCell(dataset, self.protocol, given, seed, settings.rows, split, self.features)
            for seed in range(settings.seeds)
        ]

    def runs(self, result: Result, dataset: str, split: int | None = None) -> Runs | None:
        """The runs that a result has of this model on a dataset, one for each seed; None if it has none."""
        return runs(result, self.cells(dataset, Settings.of(result), split))


# The models that several experiments train: the paper's, and this library's own.
FC, FC_1024, FC_768 = (
    Recipe(f"FC, h = {width}", "paper", {"head": "fc", "hidden": (width, width)}) for width in (2048, 1024, 768)
)
HRR = Recipe("HRR, d = 800, h = 768", "paper", {"head": "hrr", "dim": 800, "hidden": (768, 768)})
CHRR = Recipe("CHRR, d = 800, h = 768", "paper", {"head": "chrr", "dim": 800, "hidden": (768, 768)})
OWN = Recipe("circlet, fixed sizes", FIXED)
CIRCLET = Recipe("circlet, defaults", "default")
ACCURATE = Recipe("circlet, accurate", "accurate")


def of_dim(head: str, dim: int) -> Recipe:
    """The paper's HRR or CHRR with codes of another dimension."""
    return Recipe(f"{head.upper()}, d = {dim}", "paper", {"head": head, "dim": dim, "hidden": (768, 768)})
