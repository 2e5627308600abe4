"""Why a document gets a label: what its words, or its features, add to the label's score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from circlet.features.terms import Span
from circlet.features.vectorizer import TextVectorizer
from circlet.runtime.attribution import attributed
from circlet.runtime.model import RuntimeModel

__all__ = ["Contribution", "Explanation", "explained"]

#: What the kinds of terms are called.
KINDS = {"word": "word", "char": "characters"}


@dataclass(frozen=True)
class Contribution:
    """What one feature of a document adds to a label's score.

    Parameters
    ----------
    term : str
        A word or several, a run of characters, or the name or number of a column.
    kind : str
        "word", "characters" or "feature".
    value : float
        How much it adds; less than 0 if it speaks against the label.
    spans : list of (int, int)
        Where the term is in the text: start and end of each occurrence, in characters. Empty for rows.
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
        What labels are ranked by. Of several networks, it is the log-odds of the mean of their probabilities.
    probability : float
        Calibrated, as `suggest` returns it.
    base : float
        The score that the label has without any feature: for an empty document.
    contributions : list of Contribution
        Of all features of the document that are not zero, the strongest first; they add up to score − base.
    error : float
        An estimate of how far contributions may be off. Their sum is right in any case.
    """

    label: Any
    score: float
    probability: float
    base: float
    contributions: list[Contribution]
    error: float

    def spans(self) -> list[tuple[int, int, float]]:
        """Parts of the text that do not overlap, in order, and what each adds to the score.

        A term that occurs several times shares its contribution among them, and each occurrence shares it among
        its characters. Parts that no term covers are left out.
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
    """Explain the scores of some labels of one document.

    Parameters
    ----------
    model : RuntimeModel
    document : list of one str, or one row
    labels : int64 ndarray
        Their ids.
    names : sequence
        What these labels are called.
    features : sequence of str, optional
        What the columns of rows are called.
    """
    document = model.checked(document)
    found = attributed(model, model._rows(document, 0, 1), labels)
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
    """Each column's term, what kind it is of, and where it is in a text."""
    spans, first = vectorizer.spans(text), 0
    found: dict[int, tuple[str, str, list[Span]]] = {}
    for kind, (terms, _) in vectorizer.vocabulary().items():
        last = first + len(terms)
        found |= {
            each: (terms[each - first], KINDS[kind], spans[each]) for each in columns if first <= each < last
        }
        first = last
    return [found[each] for each in columns]
