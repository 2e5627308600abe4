"""A trained model: everything between a document and its ranked labels, in one object."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from circlet import files
from circlet.data.dataset import column_counts
from circlet.errors import DataError, ParameterError
from circlet.features.rows import Scaling
from circlet.model.calibration import calibrate
from circlet.network import Ensemble, Network
from circlet.network.network import score_blocks, top_k
from circlet.runtime.model import RuntimeModel
from circlet.scoring.arrays import Found, checked
from circlet.scoring.ranking import Gain
from circlet.storage import tensors
from circlet.storage.card import model_card
from circlet.storage.contents import Contents, labels_text, other_tensors, read, write_text_input
from circlet.storage.kept_rows import Index, Sample, write_index, write_sample
from circlet.storage.layout import ESTIMATOR, FORMAT, HISTORY, INDEX, LABELS, REMEMBERED, SAMPLE, URIS, WEIGHTS
from circlet.storage.model import BaseModel, explained
from circlet.storage.network_spec import Member, check_shapes
from circlet.storage.publish import publishing
from circlet.storage.tensors import BFLOAT16, Stored
from circlet.training.loop import is_finite
from circlet.version import __version__


class Model(BaseModel):
    """One or more networks, and everything else that tagging documents needs.

    Parameters
    ----------
    ranker : Ensemble
        The networks, which score labels.
    scaling : Scaling
    **others
        See `circlet.storage.model.BaseModel`.

    Attributes
    ----------
    sample : Sample or None
        Some held-out rows and their labels, for choosing a smaller copy.
    index : Index or None
        Vectors of the training documents; see `circlet.model.session`.
    remembered : Sample or None
        Some training rows and their labels, for `circlet.model.feedback`.
    """

    def __init__(self, ranker: Ensemble, scaling: Scaling, **others: Any) -> None:
        super().__init__(scaling, **others)
        self.ranker = ranker
        self.sample: Sample | None = None
        self.index: Index | None = None
        self.remembered: Sample | None = None

    @property
    def networks(self) -> list[Network]:
        """The networks, usually one."""
        return self.ranker.networks

    @property
    def network(self) -> Network:
        """The first network; the others differ in seed, codes and weights."""
        return self.networks[0]

    @property
    def n_labels(self) -> int:
        return self.ranker.n_labels

    @property
    def only_torch(self) -> bool:
        """Whether only torch can run the network: it has an encoder of texts that learns, or a custom module."""
        return self.network.custom or (self.network.texts is not None and self.network.texts.learns)

    @property
    def device(self) -> torch.device:
        """Device of the networks."""
        return self.ranker.device

    def count(self, Y: sp.csr_matrix, *, held_out: bool = False) -> None:
        """Add documents with these labels to the counts of documents and labels."""
        name = "held_out" if held_out else "documents"
        self.training[name] = int(self.training.get(name, 0)) + Y.shape[0]
        if self.label_counts is not None:
            counts = column_counts(Y)
            counts[: len(self.label_counts)] += self.label_counts
            self.label_counts = counts

    def calibrate(self, rows: Any, Y: sp.csr_matrix) -> None:
        """Fit the curve from scores to probabilities on scaled rows and their labels.

        Each of several networks first gets its own curve. The mean of their probabilities needs another curve: it
        is more accurate than each network, but not more confident.
        """
        if len(self.networks) > 1:
            self.ranker.calibrations = [calibrate(Ensemble([each]), rows, Y) for each in self.networks]
        self.calibration = calibrate(self.ranker, rows, Y)

    def set_curve(self, member: int, curve: tuple[float, float]) -> None:
        """Set the curve from the scores of one network to probabilities.

        The mean of several networks' probabilities is then used uncalibrated, since no rows are left to fit a
        curve.
        """
        if len(self.networks) > 1:
            self.ranker.calibrations[member] = curve
        else:
            self.calibration = curve

    def rows(self, documents: Any) -> Any:
        """Turn documents (texts, or a sparse matrix or array) into scaled feature rows."""
        return self._scaled(self.checked(documents))

    def _scaled(self, documents: Any) -> Any:
        rows = documents if self.vectorizer is None else self.vectorizer.transform(documents)
        return self.scaling.transform(rows)

    def _best(self, documents: Any, k: int, **options: Any) -> Found:
        ids, scores = top_k(self.ranker, self._scaled(documents), k, **options)
        checked(scores[ids >= 0])
        return ids, scores

    def _gain_of(self, log_weights: npt.NDArray[np.float64]) -> Gain:
        return Gain(*self.calibration, torch.from_numpy(log_weights).to(self.device))

    def score_blocks(self, documents: Any) -> Iterator[npt.NDArray[np.float32]]:
        return map(checked, score_blocks(self.ranker, self.rows(documents)))

    def save(self, folder: Path | str, store: str = "float32") -> None:
        """Write the model to a folder; for `store`, see `circlet.storage.tensors.STORES`."""
        write(Path(folder), self.contents(), store)

    def contents(self) -> Contents[npt.NDArray[Any]]:
        """Return the content of the model's folder."""
        weights = {name: _as_array(tensor) for name, tensor in self.ranker.weights().items()}
        config = {
            "network": self.network.settings.as_dict(),
            "n_features": self.n_features,
            "n_labels": self.n_labels,
            "sparse": self.sparse,
            "members": [
                {
                    "seed": network.settings.seed,
                    "codebook": None if network.codebook is None else network.codebook.state(),
                    "calibration": list(curve),
                }
                for network, curve in zip(self.networks, self.ranker.calibrations, strict=True)
            ],
            "scaling": self.scaling.kind,
            "calibration": list(self.calibration),
            **({} if self.threshold is None else {"threshold": self.threshold}),
            "training": self.training,
        }
        return Contents(
            config,
            weights | other_tensors(self.scaling, self.label_counts),
            self.history,
            self.label_names,
            self.vectorizer,
            self.sample,
            self.remembered,
            index=self.index,
            label_uris=self.label_uris,
        )

    def as_runtime(self) -> RuntimeModel:
        """Return the current state as a model without torch."""
        if self.only_torch:
            raise ParameterError("found an encoder that only torch can run; wanted the usual layers to look into")
        saved = self.contents()
        stored = {name: Stored(array) for name, array in saved.tensors.items()}
        config = {**saved.config, "files": {}}
        return RuntimeModel.restore(Path("model"), replace(saved, config=config, tensors=stored))  # type: ignore[arg-type]

    @classmethod
    def load(
        cls, folder: Path | str, device: torch.device | None = None, encoder: nn.Module | None = None
    ) -> Model:
        """Read a model from a folder; raise `DataError` if the folder is damaged.

        A model with a custom encoder needs an `encoder` of the same shape, which gets the weights.
        """
        folder = Path(folder)
        with explained(folder):
            return cls.restore(folder, read(folder, whole=True), device=device, encoder=encoder)

    @classmethod
    def _of(  # type: ignore[override] # each kind of model has its own options
        cls,
        path: Path,
        saved: Contents[Stored],
        members: list[Member],
        weights: dict[str, Stored],
        about: dict[str, Any],
        *,
        device: torch.device | None = None,
        encoder: nn.Module | None = None,
    ) -> Model:
        made = encoder or saved.encoder
        networks = [
            Network(
                member.settings,
                saved.config["n_features"],
                saved.config["n_labels"],
                sparse=saved.config["sparse"],
                encoder=copy.deepcopy(made) if number and isinstance(made, nn.Module) else made,
                codebook=member.codebook,
                blank=True,
            )
            for number, member in enumerate(members)
        ]
        ranker = Ensemble(networks, [member.calibration for member in members])
        wanted = {
            name: (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
            for name, tensor in ranker.weights().items()
        }
        check_shapes(path, wanted, weights)
        tensors = {name: _as_tensor(each.read()) for name, each in weights.items()}
        for name, weight in tensors.items():
            if weight.is_floating_point() and not is_finite(weight):
                raise DataError(
                    f"{path}: found a non-finite number in {name}; the model is damaged: train it again"
                )
        ranker.load_weights(tensors)
        model = cls(ranker.to(device or torch.device("cpu")), **about)
        model.sample, model.remembered, model.index = saved.sample, saved.remembered, saved.index
        return model


def write(folder: Path, model: Contents[npt.NDArray[Any]], store: str) -> None:
    """Write a model to a folder, atomically replacing an existing model.

    The files of an interrupted run are removed. The configuration has no description of the files yet; `store` is
    one of `tensors.STORES`.
    """
    packed = tensors.packed(model.tensors, store)
    lines = ((LABELS, model.label_names, "label_names"), (URIS, model.label_uris, "label_uris"))
    texts = {
        name: labels_text(each, model.config["n_labels"], what) for name, each, what in lines if each is not None
    }
    with publishing(folder) as new:
        files.write_tensors(new.path(WEIGHTS), packed)
        files.write_json(new.path(HISTORY), model.history)
        for name, text in texts.items():
            files.write_text(new.path(name), text)
        if model.vectorizer is not None:
            write_text_input(model.vectorizer, new.path)
        if model.sample is not None:
            write_sample(new.path(SAMPLE), model.sample)
        if model.index is not None:
            write_index(new.path(INDEX), model.index)
        if model.remembered is not None:
            write_sample(new.path(REMEMBERED), model.remembered)
        if model.estimator is not None:
            files.write_json(new.path(ESTIMATOR), model.estimator)
        has = {"named_labels": LABELS in texts, "texts": model.vectorizer is not None}
        config = {"format": FORMAT, "circlet": __version__, **model.config, **has, "store": store}
        new.commit(config, model_card(config, model.history, model.label_names))


def _as_tensor(array: npt.NDArray[Any]) -> Tensor:
    own = array if array.flags.writeable else array.copy()  # a view of the mapped file, which is read-only
    if own.dtype == BFLOAT16:
        return torch.from_numpy(own.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(own)


def _as_array(tensor: Tensor) -> npt.NDArray[Any]:
    """Return a contiguous array, which is no copy where possible."""
    own = tensor.detach().cpu().contiguous()
    if own.dtype == torch.bfloat16:
        return own.view(torch.uint16).numpy().view(BFLOAT16)
    return own.numpy()
