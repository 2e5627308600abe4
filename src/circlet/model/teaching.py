"""Teaching: a trained model learns from a few corrections at once, and forgets nothing.

The encoder stays as it is. For each label ℓ that corrections name, the head learns to add ℓ's code to its output,
more of it the more a document resembles those that deserve ℓ: its weight W becomes W + Σ cℓ uℓᵀ, a sum of one
product for each such label. Codes are nearly orthogonal, so the scores of all other labels hardly change, whatever
is learned; nothing that grows with the number of labels is computed. A label that is new gets the next code, and
a bias.

The vectors uℓ minimize the sum of these, from zero, by L-BFGS:

- for texts that accept or reject ℓ, the cross-entropy of ℓ's calibrated probability;
- for rows that the model remembers from its training, all together worth `BALANCE` times these texts, the
  cross-entropy against ℓ's present probability there, or 0 if ℓ is new;
- `RIDGE` · |uℓ|², with hidden vectors centered and scaled to a mean square norm of 1.

Labels that a correction does not name are unknown, and have no part in the loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from circlet.data.feedback import Judged
from circlet.errors import ParameterError
from circlet.model.model import Model
from circlet.network import Ensemble, Network
from circlet.network.batch import as_batch
from circlet.settings.network import ADDITIVE

__all__ = ["Taught", "teach"]

#: Chosen on rows held out of training; see benchmarks/results/teaching.md.
RIDGE, BALANCE = 1.0, 1.0
#: Steps of L-BFGS at most; it mostly converges in half as many.
STEPS = 30
#: Rows that are encoded at a time.
BATCH = 256


@dataclass(frozen=True)
class Taught:
    """What became of corrections.

    Parameters
    ----------
    texts : int
        The number of texts that were learned from.
    new : list of str
        Labels that were added.
    left_out : list of str
        Labels that the model has no room for.
    """

    texts: int
    new: list[str]
    left_out: list[str]


def teach(
    model: Model,
    corrections: Sequence[Judged],
    *,
    may_grow: bool = True,
    ridge: float = RIDGE,
    balance: float = BALANCE,
) -> Taught:
    """Teach a model in place.

    Parameters
    ----------
    model : Model
        Of texts, with rows that it remembers.
    corrections : sequence of Judged
        All that was ever said: teaching always starts from the model as it was trained.
    may_grow : bool
        Whether labels may be added.
    ridge, balance : float
        See above.
    """
    _check(model)
    places = {name: place for place, name in enumerate(_names(model))}
    known = len(places)
    wanted = dict.fromkeys(label for each in corrections for label in each.accepted if label not in places)
    room = _room(model) if may_grow else 0
    new, left_out = list(wanted)[:room], list(wanted)[room:]
    places |= {name: known + place for place, name in enumerate(new)}
    verdicts = _verdicts(corrections, places)
    named = np.flatnonzero(np.diff(verdicts.indptr))
    if new:
        model.ranker.grow(known + len(new))
        model.label_names = [*(model.label_names or []), *new]
    if verdicts.nnz:
        rows = model.rows([corrections[place].text for place in named])
        assert model.remembered is not None
        for number, network in enumerate(model.networks):
            curve = _curve(model, number)
            _teach(network, curve, rows, verdicts[named], model.remembered.rows, known, ridge, balance)
        accepted = verdicts[named] > 0
        model.count(sp.csr_matrix(accepted, dtype=np.float32))
    model.training["taught"] = len(named)
    return Taught(len(named), new, left_out)


def _check(model: Model) -> None:
    if model.vectorizer is None:
        raise ParameterError("this model takes rows, and feedback is about texts: wanted a model of texts")
    if model.remembered is None:
        raise ParameterError(
            "this model remembers no rows of its training, so teaching it would make it forget: train it again "
            "without --remember 0, or teach the model that this copy was made from"
        )
    if model.network.settings.head not in ADDITIVE:
        raise ParameterError(
            f"head {model.network.settings.head} can't be taught at once: train it with `circlet train --feedback`"
        )


def _names(model: Model) -> list[str]:
    return model.label_names or [str(label) for label in range(model.n_labels)]


def _room(model: Model) -> int:
    """How many labels can be added."""
    if model.label_names is None:
        return 0
    limits = []
    for network in model.networks:
        book, bias = network.codebook, network.scorer.bias
        if book is None:
            return 0
        limits += [limit for limit in (book.capacity, None if bias is None else len(bias)) if limit is not None]
    return max(0, min(limits, default=model.n_labels + (1 << 20)) - model.n_labels)


def _verdicts(corrections: Sequence[Judged], places: dict[str, int]) -> sp.csr_matrix:
    """1 for labels that a text deserves and −1 for those it does not, `(texts, labels)`; 0 is unknown."""
    entries = [
        (text, places[label], value)
        for text, each in enumerate(corrections)
        for labels, value in ((each.accepted, 1.0), (each.rejected, -1.0))
        for label in labels
        if label in places
    ]
    rows, columns, values = zip(*entries, strict=True) if entries else ((), (), ())
    shape = (len(corrections), len(places))
    return sp.csr_matrix((np.array(values, dtype=np.float32), (rows, columns)), shape=shape)


def _curve(model: Model, number: int) -> tuple[float, float]:
    """The logistic curve from a network's scores to probabilities."""
    return model.ranker.scorer.calibrations[number] if isinstance(model.ranker, Ensemble) else model.calibration


def _teach(
    network: Network,
    curve: tuple[float, float],
    rows: Any,
    verdicts: sp.csr_matrix,
    remembered: Any,
    known: int,
    ridge: float,
    balance: float,
) -> None:
    """Teach one network; labels from `known` on are new."""
    labels = np.unique(verdicts.indices)
    signs = torch.from_numpy(verdicts[:, labels].toarray()).to(network.device)
    hidden = [_hidden(network, each) for each in (rows, remembered)]
    lesson = _Lesson(network, curve, labels, *hidden, new=labels >= known)
    n = len(signs)
    with torch.no_grad():
        present = lesson.log_odds(lesson.start)[n:].sigmoid()
        present[:, lesson.new] = 0
    weight = balance * (signs != 0).sum(dim=0)
    unknowns = [each.requires_grad_() for each in lesson.start]
    optimizer = torch.optim.LBFGS(unknowns, max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        logits = lesson.log_odds(unknowns)
        judged = (softplus(-signs * logits[:n]) * signs.abs()).sum()
        kept = binary_cross_entropy_with_logits(logits[n:], present, reduction="none").mean(dim=0) @ weight
        total: Tensor = judged + kept + ridge * unknowns[0].square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(loss)
    with torch.no_grad():
        lesson.apply(unknowns)


class _Lesson:
    """What one network learns about some labels: a direction in its hidden space, and an offset if they are new.

    Parameters
    ----------
    network : Network
    curve : (slope, intercept)
    labels : int64 ndarray of shape (m,)
    taught, remembered : Tensor
        Hidden vectors.
    new : bool ndarray of shape (m,)
    """

    def __init__(
        self,
        network: Network,
        curve: tuple[float, float],
        labels: npt.NDArray[np.int64],
        taught: Tensor,
        remembered: Tensor,
        new: npt.NDArray[np.bool_],
    ) -> None:
        self.network, self.curve, scorer = network, curve, network.scorer
        self.labels = torch.from_numpy(labels.astype(np.int64)).to(taught.device)
        self.new = torch.from_numpy(new).to(taught.device)
        with torch.no_grad():
            hidden = torch.cat([taught, remembered])
            self.mean = remembered.mean(dim=0)
            self.spread = (remembered - self.mean).square().sum(dim=1).mean().sqrt().clamp(min=1e-6)
            self.inputs = (hidden - self.mean) / self.spread
            outputs = network.head.output(hidden)
            if network.codebook is None:
                self.outputs = outputs[:, self.labels]
            else:
                self.outputs = outputs
                self.codes = network.codebook.scored_codes(self.labels)
                # Of the length of outputs, so that the same ridge suits all networks.
                length = outputs.norm(dim=1).mean()
                self.directions = torch.nn.functional.normalize(self.codes, dim=1) * length
            scale = 1.0 if scorer.log_scale is None else float(scorer.log_scale.exp())
            self.scale = scale if network.codebook is None else scale * network.codebook.scale
        #: Directions, `(hidden, m)`, and offsets, `(m,)`, to begin with.
        self.start = [self.inputs.new_zeros(self.inputs.shape[1], len(labels)), self._first_offsets()]

    def _first_offsets(self) -> Tensor:
        """For a new label, what takes its bias to the median of all biases, so that it can be suggested."""
        offsets, bias = torch.zeros_like(self.labels, dtype=torch.float32), self.network.scorer.bias
        if bias is not None and bool(self.new.any()):
            own = bias.detach()
            old = own[: int(self.labels[self.new].min())]
            offsets[self.new] = old.median() - own[self.labels[self.new]]
        return offsets

    def log_odds(self, unknowns: Sequence[Tensor]) -> Tensor:
        """Calibrated log-odds of the labels for all rows, `(n, m)`."""
        directions, offsets = unknowns
        added, scorer = self.inputs @ directions, self.network.scorer
        offsets = offsets * self.new
        if scorer.bias is None:  # then the offset is part of what is added
            added = added + offsets
        if self.network.codebook is None:
            scores = self.outputs + added
        else:
            code = self.network.head.finished(self.outputs + added @ self.directions)
            scores = code @ self.codes.mT * self.scale
        if scorer.absolute:
            scores = scores.abs()
        if scorer.bias is not None:
            scores = scores + scorer.bias.detach()[self.labels] + offsets
        slope, intercept = self.curve
        return slope * scores + intercept

    def apply(self, unknowns: Sequence[Tensor]) -> None:
        """Change the network accordingly."""
        directions, offsets = unknowns
        scorer, output, offsets = self.network.scorer, self.network.head.output, offsets * self.new
        by_hidden = (directions / self.spread).mT
        constant = -by_hidden @ self.mean + (offsets if scorer.bias is None else 0)
        if self.network.codebook is None:
            output.weight[self.labels] += by_hidden
            output.bias[self.labels] += constant
        else:
            output.weight += self.directions.mT @ by_hidden
            output.bias += constant @ self.directions
        if scorer.bias is not None:
            scorer.bias[self.labels] += offsets


def _hidden(network: Network, rows: Any) -> Tensor:
    """The last hidden layer for rows, without dropout."""
    network.eval()
    with torch.no_grad():
        parts = [
            network.encoder(as_batch(rows[start : start + BATCH]).to(network.device))
            for start in range(0, rows.shape[0], BATCH)
        ]
    return torch.cat(parts).float()
