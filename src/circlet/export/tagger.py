"""The whole graph: from documents to scores, the best labels and their probabilities."""

from __future__ import annotations

import numpy as np

from circlet.export.graph import Graph
from circlet.export.layers import Rows, outputs, scaled
from circlet.export.saved import Saved
from circlet.export.scores import mean_log_odds, scores

__all__ = ["tagger"]


def tagger(saved: Saved, k: int) -> Graph:
    """A model as a graph that gives the k best labels of each document, or all if there are fewer.

    | input | shape | |
    |---|---|---|
    | `features` | (batch, n_features) float32 | for a model of dense rows |
    | `columns` | (batch, m) int32 | for a model of sparse rows or of texts |
    | `values` | (batch, m) float32 | with them: the values at these columns; 0 is padding |

    | output | shape | |
    |---|---|---|
    | `labels` | (batch, k) int64 | ids, best first |
    | `probabilities` | (batch, k) float32 | calibrated |
    | `scores` | (batch, n_labels) float32 | of all labels |
    """
    graph, k = Graph(), min(k, saved.n_labels)
    rows = scaled(graph, _inputs(graph, saved), saved.scaling)
    parts = [scores(graph, outputs(graph, rows, member), member) for member in saved.members]
    joined = parts[0] if len(parts) == 1 else mean_log_odds(graph, parts, saved.members)
    graph.add("Identity", joined, name="scores")
    best, _ = graph.add_all("TopK", "scores", np.array([k]), names=["best", "labels"])
    slope, intercept = (np.float32(number) for number in saved.calibration)
    logits = graph.add("Add", graph.add("Mul", best, slope), intercept)
    graph.add("Sigmoid", logits, name="probabilities")
    graph.output("labels", np.int64, ["batch", k], "ids of the best labels, best first")
    graph.output("probabilities", np.float32, ["batch", k], "their calibrated probabilities")
    graph.output("scores", np.float32, ["batch", saved.n_labels], "the scores of all labels")
    return graph


def _inputs(graph: Graph, saved: Saved) -> Rows:
    if not saved.sparse:
        return Rows(graph.input("features", np.float32, ["batch", saved.n_features], "feature rows"))
    meaning = f"the columns below {saved.n_features} that a row has values at, padded with any column"
    columns = graph.input("columns", np.int32, ["batch", "m"], meaning)
    values = graph.input("values", np.float32, ["batch", "m"], "the values at these columns, padded with 0")
    return Rows(values, columns)
