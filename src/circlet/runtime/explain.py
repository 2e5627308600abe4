"""Explain why a document gets a label: what its words, or its features, add to the label's score.

**Integrated gradients** (Sundararajan et al. 2017). A straight line α x leads from the empty row, whose score is
the base, to the document's scaled row x. A feature's contribution is x_i times the mean over α of the score's
derivative by it; all contributions add up to score − base.

The line is cut into panels. In a panel, each layer's mean slopes are exact for the straight line between its
inputs at both ends, and so is the mean gradient of the head. So contributions add up with any number of panels;
the number only decides how the sum is divided among features. Panels are halved until this hardly changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from circlet.encoders import RowPairs, TextInput
from circlet.errors import CircletError, ParameterError
from circlet.features.rows import Entries
from circlet.features.vectorizer import Span, TextVectorizer
from circlet.runtime.model import RuntimeModel
from circlet.runtime.network import Floats, Network
from circlet.scoring import arrays
from circlet.scoring.arrays import checked
from circlet.scoring.ranking import mean_log_odds
from circlet.scoring.scorers import Scorer

__all__ = ["Attribution", "Contribution", "Explanation", "attributed", "explained", "mean_slopes"]

Doubles: TypeAlias = "npt.NDArray[np.float64]"
Integers: TypeAlias = "npt.NDArray[np.int64]"


def mean_slopes(starts: Doubles, ends: Doubles, leak: float) -> Doubles:
    """Return the mean slope of a (leaky) ReLU between two inputs: 1, the leak, or in between across 0."""
    high, low = np.maximum(starts, ends), np.minimum(starts, ends)
    crossing = (low < 0) & (high > 0)
    share = np.where(crossing, high / np.where(crossing, high - low, 1), high > 0)
    slopes: Doubles = leak + (1 - leak) * share
    return slopes


#: The panels that are tried first and last.
FEWEST, MOST = 8, 1024
#: Panels are shorter near the empty row, where predictions are small and change their direction fast.
GRADING = 2.5
#: Panels are halved until no contribution changes by more than this part of the label's largest one.
ACCURACY = 0.01
#: Contributions add up to score − base within this part of it, or of the numbers that were added up.
RESIDUAL = 1e-4
#: What rounding may leave of sums that are zero.
NOISE = 1e-6
#: Labels at a time, so that gradients of all panels stay small.
LABELS = 32
#: Points and weights to integrate over a panel's chord where several networks are averaged.
POINTS, WEIGHTS = np.polynomial.legendre.leggauss(8)


@dataclass(frozen=True)
class Attribution:
    """Contributions of a document's m features that are not zero to the scores of labels."""

    columns: Integers  # (m,), the features
    values: Doubles  # (n_labels, m)
    scores: Doubles  # of the document, (n_labels,)
    bases: Doubles  # of the empty row, (n_labels,)
    errors: Doubles  # largest change of a contribution when panels were halved for the last time, (n_labels,)


def attributed(model: RuntimeModel, row: Entries | Floats, labels: Integers) -> Attribution:
    """Explain the scores of labels, given by their ids, for one scaled row."""
    columns, values = _features(row)
    lines = [_Line(network, row) for network in model.networks]
    parts = [
        _of_some(model, lines, columns, values, labels[i : i + LABELS]) for i in range(0, len(labels), LABELS)
    ]
    if not parts:
        nothing = np.zeros(0)
        return Attribution(columns, np.zeros((0, len(columns))), nothing, nothing, nothing)
    return Attribution(columns, *(np.concatenate(each) for each in zip(*parts, strict=True)))


def _of_some(
    model: RuntimeModel, lines: list[_Line], columns: Integers, values: Doubles, labels: Integers
) -> tuple[Doubles, Doubles, Doubles, Doubles]:
    """Return contributions to some labels, the labels' scores and bases, and errors."""
    first, ends = _with_panels(model, lines, columns, values, labels, FEWEST)
    found, errors = first.copy(), np.zeros(len(labels))
    still, panels = np.arange(len(labels)), FEWEST
    while len(still) and panels < MOST:
        panels *= 2
        finer, _ = _with_panels(model, lines, columns, values, labels[still], panels)
        errors[still] = np.abs(finer - found[still]).max(axis=1, initial=0)
        found[still] = finer
        still = still[errors[still] > ACCURACY * np.abs(finer).max(axis=1, initial=0)]
    gaps = ends[:, 1] - ends[:, 0]
    residuals, added = np.abs(gaps - found.sum(axis=1)), np.abs(found).sum(axis=1)
    if not (residuals <= RESIDUAL * np.maximum(np.abs(gaps), added) + NOISE).all():
        raise CircletError(
            f"found contributions that are off by {residuals.max():.2g} from score − base; the model's numbers "
            "are too large or too small to explain its scores"
        )
    return found, ends[:, 1], ends[:, 0], errors


def _with_panels(
    model: RuntimeModel, lines: list[_Line], columns: Integers, values: Doubles, labels: Integers, panels: int
) -> tuple[Doubles, Doubles]:
    """Return contributions to labels with so many panels, and the labels' scores at both ends of the line."""
    ways = [_Way(line, scorer, labels) for line, scorer in zip(lines, model.scorers, strict=True)]
    own = [way.scores(panels) for way in ways]
    if len(ways) > 1:
        curves = np.array(model.scorer.calibrations)[:, :, None, None]
        log_odds = curves[:, 0] * np.stack(own) + curves[:, 1]
        weights = curves[:, 0] * _mean_weights(log_odds)
        ends = mean_log_odds(arrays, log_odds[:, :, [0, -1]])
    else:
        weights, ends = np.ones((1, len(own[0]), panels)), own[0][:, [0, -1]]
    by_feature = sum(
        line.by_feature(columns, way.gradients(each)) for line, way, each in zip(lines, ways, weights, strict=True)
    )
    return values * by_feature, ends


class _Line:
    """The line from the empty row to a row, through the first layer of one network."""

    def __init__(self, network: Network, row: Entries | Floats) -> None:
        self.network = network
        self.start: Doubles = network.first.bias.astype(np.float64)
        self.difference: Doubles = network.first(row)[0] - self.start  # type: ignore[arg-type]

    def by_feature(self, columns: Integers, gradients: Doubles) -> Doubles:
        """Turn gradients by the first layer's outputs into gradients by features, `(n_labels, m)`."""
        weights = self.network.first.rows(columns)
        found: Doubles = (gradients.astype(np.float32) @ weights.T).astype(np.float64)
        return found


class _Way:
    """Scores of labels along a line, in one network."""

    def __init__(self, line: _Line, scorer: Scorer, labels: Integers) -> None:
        self.line, self.network, self.scorer = line, line.network, scorer
        self.head = line.network.head
        book, layers = scorer.codebook, line.network.head_layers
        if book is None:  # of an output per label, only those of the labels are needed
            self.vectors, self.bias = np.eye(len(labels)), np.zeros(len(labels))
            self.layers = [(layers[0].weight[:, labels], layers[0].bias[labels])]
        else:
            self.vectors = book.scored_codes(labels) * np.float64(book.scale * scorer.scale)
            self.bias = np.zeros(len(labels))
            if scorer.bias is not None and not scorer.absolute:
                self.bias += scorer.bias[labels]
            self.layers = [(layer.weight, layer.bias) for layer in layers]

    def scores(self, panels: int) -> Doubles:
        """Return the scores at the ends of all panels, `(n_labels, panels + 1)`; `gradients` needs this call."""
        leak, places = float(self.network.leak), np.linspace(0, 1, panels + 1)[:, None] ** GRADING
        self._lengths = np.diff(places, axis=0)
        inputs = self.line.start + places * self.line.difference
        self._slopes = [mean_slopes(inputs[:-1], inputs[1:], leak)]
        hidden = np.maximum(inputs[:1], leak * inputs[:1])
        moved = self._slopes[0] * (self.line.difference * self._lengths)
        for layer in self.network.others:
            start, differences = _times(hidden, layer.weight) + layer.bias, _times(moved, layer.weight)
            inputs = np.concatenate([start, start + np.cumsum(differences, axis=0)])
            self._slopes.append(mean_slopes(inputs[:-1], inputs[1:], leak))
            hidden, moved = np.maximum(start, leak * start), self._slopes[-1] * differences
        start = self._through_head(hidden) + np.concatenate([bias for _, bias in self.layers])
        self._moved = self._through_head(moved)
        self._outputs = np.concatenate([start, start + np.cumsum(self._moved, axis=0)])
        checked(self._outputs)
        self._similar = self.head.scores(self._outputs, self.vectors)
        return np.abs(self._similar) if self.scorer.absolute else self._similar + self.bias[:, None]

    def gradients(self, weights: Doubles) -> Doubles:
        """Return the mean of score gradients × weights by the first layer's outputs, `(n_labels, h)`."""
        if self.scorer.absolute:
            weights = weights * mean_slopes(self._similar[:, :-1], self._similar[:, 1:], -1.0)
        found = self.head.gradients(self._outputs[:-1], self._moved, self.vectors) * weights[:, :, None]
        found = self._through_head(found, back=True)
        for layer, slopes in zip(reversed(self.network.others), reversed(self._slopes), strict=False):
            found = _times(found * slopes, layer.weight.T)
        mean: Doubles = np.einsum("lnh,nh->lh", found, self._slopes[0] * self._lengths)
        return mean

    def _through_head(self, vectors: Doubles, back: bool = False) -> Doubles:
        """Multiply each part of vectors by its layer's weights; `back` takes gradients the other way."""
        parts = zip(np.split(vectors, len(self.layers), axis=-1), self.layers, strict=True)
        return np.concatenate([_times(part, w.T if back else w) for part, (w, _) in parts], axis=-1)


def _features(row: Entries | Floats) -> tuple[Integers, Doubles]:
    """Return the columns and values of a row's features that are not zero."""
    if isinstance(row, Entries):
        present = np.flatnonzero(row.values)
        return row.columns[present].astype(np.int64), row.values[present].astype(np.float64)
    columns = np.flatnonzero(row[0])
    return columns, row[0, columns].astype(np.float64)


def _times(rows: Doubles, weight: Floats) -> Doubles:
    """Multiply in single precision, the type of weights, as one flat batch."""
    flat = rows.reshape(-1, rows.shape[-1]).astype(np.float32) @ weight
    return flat.astype(np.float64).reshape(*rows.shape[:-1], weight.shape[1])


def _mean_weights(log_odds: Doubles) -> Doubles:
    """Return the mean derivatives of the log-odds of the mean by each network's log-odds, in each panel.

    `(networks, n_labels, panels + 1)` to `(networks, n_labels, panels)`.
    """
    total = np.zeros_like(log_odds[:, :, 1:])
    for point, weight in zip((1 + POINTS) / 2, WEIGHTS / 2, strict=True):
        at = (1 - point) * log_odds[:, :, :-1] + point * log_odds[:, :, 1:]
        true, false = (-np.logaddexp(0, sign * at) for sign in (-1, 1))
        for logs in (true, false):
            total += weight * np.exp(true + false - np.logaddexp.reduce(logs, axis=0))
    return total


@dataclass(frozen=True)
class Contribution:
    """Contribution of one feature of a document to a label's score.

    Parameters
    ----------
    term : str
        A word or several, a run of characters, or the name or number of a column.
    kind : {"word", "characters", "feature"}
    value : float
        Below 0 if the feature is evidence against the label.
    spans : list of (int, int)
        Start and end of each occurrence in the text, in characters. Empty for rows.
    """

    term: str
    kind: str
    value: float
    spans: list[Span]


@dataclass(frozen=True)
class Explanation:
    """Why a document has a label, or does not have it.

    Parameters
    ----------
    label : str or int
    score : float
        Labels are ranked by it. Of several networks, it is the log-odds of the mean of their probabilities.
    probability : float
        Calibrated, as `suggest` returns it.
    base : float
        Score of the label for an empty document.
    contributions : list of Contribution
        Of all features of the document that are not zero, the strongest first; they add up to score − base.
    error : float
        Estimated error of a contribution. Their sum is right in any case.
    """

    label: Any
    score: float
    probability: float
    base: float
    contributions: list[Contribution]
    error: float

    def spans(self) -> list[tuple[int, int, float]]:
        """Return parts of the text that do not overlap, in order, and what each adds to the score.

        A term divides its contribution among its occurrences, and each occurrence among its characters. Parts
        without a term are left out.
        """
        starts, ends, shares = [], [], []
        for each in self.contributions:
            for start, end in each.spans:
                starts.append(start)
                ends.append(end)
                shares.append(each.value / len(each.spans) / (end - start))
        edges = np.unique([*starts, *ends]).astype(np.int64)
        per_character, covering = np.zeros(len(edges)), np.zeros(len(edges), dtype=np.int64)
        for sign, places in ((1, starts), (-1, ends)):
            at = np.searchsorted(edges, places)
            np.add.at(per_character, at, sign * np.array(shares))
            np.add.at(covering, at, sign)
        covered, values = np.cumsum(covering)[:-1] > 0, np.cumsum(per_character)[:-1] * np.diff(edges)
        parts = zip(edges[:-1].tolist(), edges[1:].tolist(), values.tolist(), strict=True)
        return list(compress(parts, covered.tolist()))


def explained(
    model: RuntimeModel,
    document: Any,
    labels: npt.NDArray[np.int64],
    *,
    names: Sequence[Any],
    features: Sequence[str] | None = None,
) -> list[Explanation]:
    """Explain the scores of some labels of one document, which is a list of one text, or one row.

    `names` are those of these labels, and `features` those of all columns of rows.
    """
    if isinstance(model.vectorizer, TextInput):
        raise ParameterError(f"found encoder {model.vectorizer.encoder.name}; only features can be explained")
    document = model.checked(document)
    row = model._rows(document, 0, 1)
    assert not isinstance(row, RowPairs)
    found = attributed(model, row, labels)
    terms: list[tuple[str, str, list[Span]]] = [(str(each), "feature", []) for each in found.columns.tolist()]
    if isinstance(model.vectorizer, TextVectorizer):
        terms = _terms(model.vectorizer, document[0], found.columns.tolist())
    elif features is not None:
        terms = [(features[each], "feature", []) for each in found.columns.tolist()]
    chances = model.probabilities(found.scores)
    order = np.argsort(-np.abs(found.values), axis=1, kind="stable")
    return [
        Explanation(
            name,
            float(found.scores[i]),
            float(chances[i]),
            float(found.bases[i]),
            [
                Contribution(term, kind, value, spans)
                for (term, kind, spans), value in (
                    (terms[place], float(found.values[i, place])) for place in order[i].tolist()
                )
            ],
            float(found.errors[i]),
        )
        for i, name in enumerate(names)
    ]


def _terms(vectorizer: TextVectorizer, text: str, columns: list[int]) -> list[tuple[str, str, list[Span]]]:
    """Return each column's term, its kind, and its places in a text."""
    spans, first, kinds = vectorizer.spans(text), 0, {"word": "word", "char": "characters"}
    found: dict[int, tuple[str, str, list[Span]]] = {}
    for kind, (terms, _) in vectorizer.vocabulary().items():
        last = first + len(terms)
        found |= {
            each: (terms[each - first], kinds[kind], spans[each]) for each in columns if first <= each < last
        }
        first = last
    return [found[each] for each in columns]
