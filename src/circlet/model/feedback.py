"""Feedback: a trained model learns a few corrections within seconds, without forgetting the rest.

The encoder does not change. For each label ℓ in the corrections, the head learns to add ℓ's code to its output.
The closer a document is to the corrected texts, the more it changes: the head's weight W becomes W + Σ cℓ uℓᵀ,
with one product for each corrected label. Codes are nearly orthogonal, so the scores of all other labels hardly
change, and no computation grows with the number of labels. A new label gets the next code, and a bias.

L-BFGS, starting from zero, finds the vectors uℓ that minimize the sum of these terms (weighted as in `Recipe`):

- for texts that accept or reject ℓ, the cross-entropy of ℓ's calibrated probability;
- for remembered training rows, the cross-entropy against ℓ's current probability, or against 0 if ℓ is new; all
  rows together have `balance` times the weight of these texts, or `known` times if ℓ is not new;
- `ridge` · |uℓ|², with hidden vectors centered and scaled to a mean square norm of 1.

Labels that a correction does not name are unknown, and not part of the loss. A few corrections do not show how
frequent a new label is, so its bias is set last: the label is then among the five best labels of a small `share`
of the remembered rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from circlet.data.dataset import names_by_uri
from circlet.data.feedback import Entry, TextFeedback, merge_feedback
from circlet.errors import ParameterError
from circlet.model.model import Model
from circlet.network import Network
from circlet.network.encoders import as_batch
from circlet.settings.network import why_no_feedback


class Recipe(NamedTuple):
    """Weights of the terms; see above. They were chosen on rows held out of training.

    See `benchmarks/results/teaching.md` for the alternatives.
    """

    ridge: float = 1.0
    balance: float = 1.0
    known: float = 100.0
    share: float = 0.02


RECIPE = Recipe()


@dataclass(frozen=True)
class Update:
    """The number of corrected texts, the labels added, and the new labels that the model has no room for."""

    texts: int
    new: list[str]
    left_out: list[str]


def update(
    model: Model,
    corrections: Iterable[Entry | TextFeedback],
    *,
    may_grow: bool = True,
    recipe: Recipe = RECIPE,
) -> Update:
    """Update a model in place: one of texts, with remembered rows.

    `corrections` are all corrections so far, in order, with names or URIs of labels. Only if `may_grow`, labels
    may be added.
    """
    given, kept = model.network.settings, model.remembered is not None
    if reason := why_no_feedback(given.head, given.loss, texts=model.vectorizer is not None, remembered=kept):
        raise ParameterError(reason)
    texts = merge_feedback(corrections, names_by_uri(model.label_names, model.label_uris))
    names = model.label_names or [str(label) for label in range(model.n_labels)]
    places = {name: place for place, name in enumerate(names)}
    known = len(places)
    wanted = dict.fromkeys(label for each in texts for label in each.accepted if label not in places)
    room = _room(model) if may_grow else 0
    new, left_out = list(wanted)[:room], list(wanted)[room:]
    places |= {name: known + place for place, name in enumerate(new)}
    verdicts = _verdicts(texts, places)
    named = np.flatnonzero(np.diff(verdicts.indptr))
    if new:
        model.ranker.grow(known + len(new))
        model.label_names = [*(model.label_names or []), *new]
        if model.label_uris is not None:  # a new label is its own URI
            model.label_uris = [*model.label_uris, *new]
    if verdicts.nnz:
        rows = model.rows([texts[place].text for place in named.tolist()])
        assert model.remembered is not None
        for number, network in enumerate(model.networks):
            # From a network's scores to probabilities.
            curve = model.ranker.calibrations[number] if len(model.networks) > 1 else model.calibration
            _update_network(network, curve, rows, verdicts[named], model.remembered.rows, known, recipe)
        model.count(sp.csr_matrix(verdicts[named] > 0, dtype=np.float32))
    model.training["taught"] = len(named)
    return Update(len(named), new, left_out)


def _room(model: Model) -> int:
    """Return how many labels can be added."""
    if model.label_names is None:
        return 0
    limits = []
    for network in model.networks:
        book, bias = network.codebook, network.scorer.bias
        if book is None:
            return 0
        limits += [limit for limit in (book.capacity, None if bias is None else len(bias)) if limit is not None]
    return max(0, min(limits, default=model.n_labels + (1 << 20)) - model.n_labels)


def _verdicts(corrections: Sequence[TextFeedback], places: dict[str, int]) -> sp.csr_matrix:
    """Return 1 for accepted and −1 for rejected labels, `(texts, labels)`; 0 for unknown."""
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


def _update_network(
    network: Network,
    curve: tuple[float, float],
    rows: Any,
    verdicts: sp.csr_matrix,
    remembered: Any,
    known: int,
    recipe: Recipe,
) -> None:
    """Update one network; labels from `known` on are new."""
    labels = np.unique(verdicts.indices)
    signs = torch.from_numpy(verdicts[:, labels].toarray()).to(network.device)
    change = _Change(network, curve, labels, _hidden(network, rows), _hidden(network, remembered), labels >= known)
    n = len(signs)
    with torch.no_grad():
        present = change.log_odds(change.start)[n:].sigmoid()
        present[:, change.new] = 0
    weight = torch.where(change.new, recipe.balance, recipe.known) * (signs != 0).sum(dim=0)
    unknowns = [each.requires_grad_() for each in change.start]
    # It usually converges in half as many steps.
    optimizer = torch.optim.LBFGS(unknowns, max_iter=30, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        logits = change.log_odds(unknowns)
        judged = (softplus(-signs * logits[:n]) * signs.abs()).sum()
        kept = binary_cross_entropy_with_logits(logits[n:], present, reduction="none").mean(dim=0) @ weight
        total: Tensor = judged + kept + recipe.ridge * unknowns[0].square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        change.settle(unknowns, signs > 0, recipe.share)
        change.apply(unknowns)


class _Change:
    """One network's change for some labels: directions in its hidden space, and offsets of new labels.

    `corrected` and `remembered` are hidden vectors; `new` says which labels are new.
    """

    def __init__(
        self,
        network: Network,
        curve: tuple[float, float],
        labels: npt.NDArray[np.int64],
        corrected: Tensor,
        remembered: Tensor,
        new: npt.NDArray[np.bool_],
    ) -> None:
        self.network, self.curve, scorer = network, curve, network.scorer
        self.labels = torch.from_numpy(labels.astype(np.int64)).to(corrected.device)
        self.new = torch.from_numpy(new).to(corrected.device)
        with torch.no_grad():
            hidden = torch.cat([corrected, remembered])
            self.mean = remembered.mean(dim=0)
            self.spread = (remembered - self.mean).square().sum(dim=1).mean().sqrt().clamp(min=1e-6)
            self.inputs = (hidden - self.mean) / self.spread
            outputs = network.head.output(hidden)
            if network.codebook is None:
                # Without codes, scores change directly: by ten standard deviations, where codes would by their
                # norm.
                self.outputs, self.gain = outputs[:, self.labels], 10.0 * outputs.std()
            else:
                self.outputs = outputs
                self.codes = network.codebook.scored_codes(self.labels)
                # Scaled to the length of the outputs, so that the same ridge suits all networks.
                length = outputs.norm(dim=1).mean()
                self.directions = torch.nn.functional.normalize(self.codes, dim=1) * length
                by_code, by_direction = outputs @ self.codes.mT, outputs @ self.directions.mT
                crossed, squares = self.directions @ self.codes.mT, self.directions @ self.directions.mT
                self.products = by_code, by_direction, outputs.square().sum(dim=1), crossed, squares
                self.length = network.head.finished(outputs[:1]).norm()
                codes = network.head.finished(outputs[len(corrected) :])
                # Scores that a label must exceed to be among the five best, the usual number of suggestions.
                best = max(1, min(5, scorer.n_labels // 2))
                self.rivals = scorer.top_k(codes, best)[1][:, -1]
            scale = 1.0 if scorer.log_scale is None else float(scorer.log_scale.exp())
            self.scale = scale if network.codebook is None else scale * network.codebook.scale
        #: Initial directions, `(hidden, m)`, and offsets, `(m,)`.
        self.start = [self.inputs.new_zeros(self.inputs.shape[1], len(labels)), self._first_offsets()]

    def _first_offsets(self) -> Tensor:
        """Return offsets that set the bias of new labels to the median of the old biases."""
        offsets, bias = torch.zeros_like(self.labels, dtype=torch.float32), self.network.scorer.bias
        if bias is not None and bool(self.new.any()):
            own = bias.detach()
            old = own[: int(self.labels[self.new].min())]
            offsets[self.new] = old.median() - own[self.labels[self.new]]
        return offsets

    def log_odds(self, unknowns: Sequence[Tensor]) -> Tensor:
        """Compute the calibrated log-odds of the labels for all rows, `(n, m)`."""
        directions, offsets = unknowns
        added, scorer = self.inputs @ directions, self.network.scorer
        if self.network.codebook is None:
            scores = self.outputs + added * self.gain
        else:
            scores = self._similarities(added) * self.scale
        if scorer.bias is not None:
            scores = scores + scorer.bias.detach()[self.labels] + offsets * self.new
        slope, intercept = self.curve
        odds: Tensor = slope * scores + intercept
        return odds

    def _similarities(self, added: Tensor) -> Tensor:
        """Compute inner products of labels' codes and the head's outputs plus multiples of the directions."""
        if self.network.settings.head not in ("chrr-amplitude", "hrr"):
            found: Tensor = self.network.head.finished(self.outputs + added @ self.directions) @ self.codes.mT
            return found
        # Outputs are divided by their norm, which follows from inner products that are computed only once. So no
        # step computes with vectors as wide as a code.
        by_code, by_direction, square, crossed, squares = self.products
        norm = (square + 2 * (added * by_direction).sum(dim=1) + (added @ squares * added).sum(dim=1)).sqrt()
        similarities: Tensor = (by_code + added @ crossed) * (self.length / norm)[:, None]
        return similarities

    def settle(self, unknowns: Sequence[Tensor], accepted: Tensor, share: float) -> None:
        """Set the biases of new labels so that they are among the best labels of this share of remembered rows.

        Texts that accept a label keep it.
        """
        if self.network.scorer.bias is None or not bool(self.new.any()):
            return
        n, (slope, intercept) = len(accepted), self.curve
        log_odds = self.log_odds(unknowns)[:, self.new]
        # A text that accepts a label keeps log-odds of at least 0.5.
        least = torch.where(accepted[:, self.new], log_odds[:n], torch.inf).amin(dim=0) - 0.5
        scores = (log_odds[n:] - intercept) / slope
        ahead = (scores - self.rivals[:, None]).quantile(1 - share, dim=0)
        unknowns[1][self.new] -= torch.minimum(ahead, (least / slope).clamp(min=0))

    def apply(self, unknowns: Sequence[Tensor]) -> None:
        """Apply the changes to the network."""
        directions, offsets = unknowns
        scorer, output = self.network.scorer, self.network.head.output
        by_hidden = (directions / self.spread).mT
        constant = -by_hidden @ self.mean
        if self.network.codebook is None:
            output.weight[self.labels] += by_hidden * self.gain
            output.bias[self.labels] += constant * self.gain
        else:
            output.weight.add_(self.directions.mT @ by_hidden)
            output.bias.add_(constant @ self.directions)
        if scorer.bias is not None:
            scorer.bias[self.labels] += offsets * self.new


def _hidden(network: Network, rows: Any) -> Tensor:
    """Compute the last hidden layer for rows, without dropout."""
    network.eval()
    with torch.no_grad():
        parts = [
            network.encoder(as_batch(rows[start : start + 256]).to(network.device))
            for start in range(0, rows.shape[0], 256)
        ]
    return torch.cat(parts).float()
