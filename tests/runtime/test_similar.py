from __future__ import annotations

import numpy as np
import pytest

from circlet.model import Model, add_to_index
from circlet.runtime import RuntimeModel, similar
from circlet.runtime.similar import near_labels, similar_documents
from circlet.scoring.heads import HEADS
from circlet.storage.kept_rows import Index


def saved(model: Model, folder) -> RuntimeModel:
    model.save(folder)
    return RuntimeModel.load(folder)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("members", [1, 2])
def test_similar_documents_are_those_with_the_nearest_predictions(
    head, members, made, some, tmp_path, monkeypatch
):
    model = made(head=head, members=members)
    documents, others = some("sparse", 40, 1), some("sparse", 7, 2)
    add_to_index(model, documents)
    runtime = saved(model, tmp_path)
    known, asked = (np.concatenate(list(runtime.vectors(each))) / np.sqrt(members) for each in (documents, others))
    np.testing.assert_allclose(np.linalg.norm(known, axis=1), 1, atol=1e-5)
    cosines = asked @ known.T
    for block in (similar.BLOCK, 7):
        monkeypatch.setattr(similar, "BLOCK", block)
        places, values = similar_documents(runtime, runtime.index, others, 5)
        np.testing.assert_allclose(values, np.sort(cosines, axis=1)[:, ::-1][:, :5], atol=0.02)
        np.testing.assert_allclose(values, np.take_along_axis(cosines, places, axis=1), atol=0.02)
    assert similar_documents(runtime, runtime.index, others, 99)[0].shape == (7, 40)


def scores_over(runtime: RuntimeModel, vectors: np.ndarray) -> np.ndarray:
    """Scores of all labels for vectors, written down plainly."""
    scorer = runtime.scorers[0]
    if scorer.codebook is None:
        return vectors @ runtime.networks[0].head_layers[0].weight
    return vectors @ scorer.codebook.codes(np.arange(runtime.n_labels)).T


@pytest.mark.parametrize("settings", [*({"head": head} for head in HEADS), {"loss": "absolute-cosine"}])
@pytest.mark.parametrize("kind", ["sparse", "dense"])
@pytest.mark.parametrize("indexed", [True, False])
def test_near_labels_have_correlated_scores(settings, kind, indexed, made, some, tmp_path):
    model, signed = made(kind, **settings), "loss" not in settings
    if indexed:
        add_to_index(model, some(kind, 40, 1))
    runtime = saved(model, tmp_path)
    if indexed:
        vectors = runtime.index.numbers * runtime.index.scales[:, None]
    else:
        first = model.network.encoder.hidden[0]
        weight = (first.weight if kind == "sparse" else first.weight.T).detach().numpy()
        hidden = np.maximum(weight + first.bias.detach().numpy(), 0)  # of the rows of an identity matrix
        vectors = hidden if settings.get("head") == "fc" else runtime.networks[0].output(hidden)
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = scores_over(runtime, vectors)
    wanted = np.corrcoef((scores if signed else np.abs(scores)).T)[4]
    ids, values = near_labels(runtime, 4, 22)
    assert sorted(ids.tolist()) == [label for label in range(23) if label != 4]
    np.testing.assert_allclose(values, wanted[ids], atol=1e-4)
    assert (np.diff(values) <= 0).all()


def test_networks_are_averaged_and_documents_thinned(made, some, tmp_path, monkeypatch):
    model = made(members=3)
    add_to_index(model, some("sparse", 40, 1))
    runtime = saved(model, tmp_path)
    monkeypatch.setattr(similar, "SOME", 10)
    monkeypatch.setattr(similar, "MEMORY", 1)
    ids, values = near_labels(runtime, 0, 5)
    assert len(ids) == 5
    assert (np.abs(values) <= 1).all()


def test_nothing_is_near(made, tmp_path):
    ids, values = near_labels(saved(made(n_labels=1), tmp_path / "one"), 0, 5)
    assert len(ids) == len(values) == 0
    index = Index.of(np.zeros((3, 32), dtype=np.float32))  # documents without a prediction
    runtime = saved(made(), tmp_path / "many")
    _, values = similar_documents(runtime, index, np.ones((1, 30), dtype=np.float32), 3)
    assert values.tolist() == [[0, 0, 0]]
