"""What every saved model guarantees, whatever its head, codebook, loss, input and store, with every backend.

A `Case` says what a model is. `Saved` makes it once, with random weights, saves it, and reads it with each
backend: torch, NumPy (the runtime) and ONNX. Each method of `Guarantees` is a guarantee.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import scipy.sparse as sp
import torch

from circlet.errors import ParameterError
from circlet.export.write import write_onnx
from circlet.features.rows import SCALINGS, Scaling
from circlet.features.vectorizer import TextVectorizer
from circlet.metrics import inverse_propensity_of_counts
from circlet.model import Model
from circlet.network import Ensemble, Network, NetworkSettings
from circlet.runtime import RuntimeModel
from circlet.runtime.compression import Curve, best_that_fits
from circlet.runtime.explain import attributed
from circlet.scoring.heads import HEADS
from circlet.settings.network import CODEBOOKS, LOSSES
from circlet.storage.packed_weights import DEFLATED
from circlet.storage.tensors import STORES

WORDS = [f"{start}{end}" for start in ("fo", "ba", "mü", "日本", "qu") for end in ("x", "ze", "ra", "", "kel")]
N_FEATURES, N_LABELS = 30, 23
TEXT: list[dict[str, Any]] = [{}, {"char_ngrams": (2, 3)}, {"word_ngrams": None, "char_ngrams": (1, 2)}]


def make_documents(kind: str, n: int, seed: int, n_features: int = N_FEATURES) -> Any:
    """Make documents of a kind: sparse, dense or texts. The third is empty."""
    random = np.random.default_rng(seed)
    if kind == "texts":
        texts = [" ".join(random.choice(WORDS, random.integers(0, 9))) for _ in range(n)]
        return [*texts[:2], *[""] * (n > 2), *texts[3:]]
    if kind == "dense":
        rows = random.standard_normal((n, n_features)).astype(np.float32)
        rows[2:3] = 0
        return rows
    rows = sp.random(n, n_features, 0.3, format="csr", dtype=np.float32, random_state=seed)
    rows.data -= 0.3
    empty = sp.csr_matrix((min(1, max(0, n - 2)), n_features), dtype=np.float32)
    return sp.vstack([rows[:2], empty, rows[3:]], format="csr", dtype=np.float32)


def make_model(
    kind: str = "sparse",
    *,
    members: int = 1,
    scaling: str = "auto",
    n_labels: int = N_LABELS,
    n_features: int = N_FEATURES,
    seed: int = 0,
    named: bool = False,
    text: dict[str, Any] | None = None,
    train: Any = None,
    **settings: Any,
) -> Model:
    """Make a model with random weights, for documents of a kind; `train` gives the words that it knows."""
    train = make_documents(kind, 40, seed, n_features) if train is None else train
    vectorizer = None
    if kind == "texts":
        vectorizer = TextVectorizer(**text or {})
        train, scaling = vectorizer.fit_transform(train), "none"
    fitted = Scaling(scaling).fit(train)
    each = [NetworkSettings(**{"dim": 16, "hidden": (12,), "seed": seed + i, **settings}) for i in range(members)]
    networks = [Network(one, train.shape[1], n_labels, sparse=kind != "dense") for one in each]
    generator, random = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    with torch.no_grad():
        for network in networks:
            for parameter in network.parameters():  # biases are zero at first, and would hide mistakes
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.3)
    curves = [(float(random.uniform(0.5, 2)), float(random.normal())) for _ in networks]
    return Model(
        Ensemble(networks, curves if members > 1 else None),
        fitted,
        n_features=train.shape[1],
        sparse=kind != "dense",
        label_names=[f"label {i}" for i in range(n_labels)] if named else None,
        vectorizer=vectorizer,
        calibration=(1.3, -0.4),
        history=[{"epoch": 1, "loss": 0.5}],
        training={"documents": 40, "held_out": 2},
        label_counts=random.integers(0, 30, n_labels),
    )


@dataclass(frozen=True)
class Case:
    """A model: settings of the network, of its input, and of the folder."""

    head: str = "chrr-amplitude"
    codebook: str = "auto"
    loss: str = "bce"
    activation: str = "relu"
    hidden: tuple[int, ...] = (12,)
    dim: int = 16
    n_labels: int = N_LABELS
    seed: int = 0
    members: int = 1
    kind: str = "sparse"
    scaling: str = "none"
    text: int = 0
    store: str = "float32"

    @property
    def is_valid(self) -> bool:
        """Whether there are such models; a codebook that has another name is left out."""
        try:
            NetworkSettings(head=self.head, codebook=self.codebook, loss=self.loss)
        except ParameterError:
            return False
        return self.codebook != "auto" or HEADS[self.head].codes is None

    def __str__(self) -> str:
        network = self.head, self.codebook, self.loss, self.activation, "x".join(map(str, self.hidden))
        return " ".join([*network, f"{self.members}x", self.kind, self.scaling, self.store])

    def make(self) -> Model:
        """Make the model."""
        given = {name: value for name, value in vars(self).items() if name not in ("kind", "text", "store")}
        return make_model(self.kind, **given, text=TEXT[self.text], named=self.kind == "texts")


#: Kinds of documents, and how rows of each kind are scaled.
SCALED = {"sparse": [each for each in SCALINGS if each != "standard"], "dense": list(SCALINGS), "texts": ["none"]}
ALL_STORES = [*STORES, DEFLATED]


def networks() -> list[Case]:
    """Every head with every codebook and loss."""
    every = (Case(head, codebook, loss) for head, codebook, loss in product(HEADS, ["auto", *CODEBOOKS], LOSSES))
    return [case for case in every if case.is_valid]


def cases() -> Iterator[Case]:
    """Yield every network once, and beside it the other choices in turn."""
    for i, case in enumerate(networks()):
        kind = list(SCALED)[i % 3]
        yield replace(
            case,
            activation="leaky-relu" if i % 7 == 3 else "relu",
            hidden=[(12,), (12, 8), (10, 8, 6)][i // 4 % 3],
            members=[1, 2, 1, 3][i % 4],
            kind=kind,
            scaling=SCALED[kind][i // 3 % len(SCALED[kind])],
            text=i // 3 % len(TEXT),
            store=ALL_STORES[i % 5],
            seed=i,
        )


def scores_of(model: Any, documents: Any) -> np.ndarray:
    return np.concatenate(list(model.score_blocks(documents)))


def inputs_of(rows: Any) -> dict[str, np.ndarray]:
    """Give a graph's inputs for rows; columns are padded with the last one, which is a feature like others."""
    if not sp.issparse(rows):
        return {"features": rows}
    m = max(1, int(np.diff(rows.indptr).max(initial=0)))
    columns = np.full((rows.shape[0], m), rows.shape[1] - 1, np.int32)
    values = np.zeros((rows.shape[0], m), np.float32)
    for i, row in enumerate(rows):
        columns[i, : row.nnz], values[i, : row.nnz] = row.indices, row.data
    return {"columns": columns, "values": values}


class Graph:
    """An exported model, with the methods of others; it always ranks its `k` best labels."""

    def __init__(self, folder: Path, model: Model, k: int = 5) -> None:
        self.model, self.k, path = model, k, folder.with_name(f"{folder.name}-{k}.onnx")
        write_onnx(folder, path, k=k, overwrite=True)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 4
        self.session = onnxruntime.InferenceSession(path, options)

    def run(self, documents: Any) -> list[np.ndarray]:
        rows = documents if self.model.vectorizer is None else self.model.vectorizer.transform(documents)
        found: list[np.ndarray] = self.session.run(["labels", "probabilities", "scores"], inputs_of(rows))
        return found

    def score_blocks(self, documents: Any) -> Iterator[np.ndarray]:
        yield self.run(documents)[2]


class Saved:
    """A model as it was made, and as each backend reads it from its folder."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder, self.model = case, folder / "model", case.make()
        self.documents = make_documents(case.kind, 7, case.seed + 1)
        if case.store != DEFLATED:
            self.model.save(self.folder, case.store)
            return
        self.model.save(folder / "whole")
        best_that_fits(folder / "whole", Curve(0.0, 8.0), 1 << 30).write(self.folder)

    @cached_property
    def torch(self) -> Model:
        return Model.load(self.folder)

    @cached_property
    def numpy(self) -> RuntimeModel:
        return RuntimeModel.load(self.folder)

    @cached_property
    def onnx(self) -> Graph:
        return Graph(self.folder, self.torch)

    @cached_property
    def scores(self) -> np.ndarray:
        """What all backends have to give, `(7, n_labels)`."""
        return scores_of(self.torch, self.documents)

    @property
    def atol(self) -> float:
        return 2e-5 * max(1.0, float(np.abs(self.scores).max(initial=0)))


def assert_ranked(
    found: tuple[np.ndarray, np.ndarray], scores: np.ndarray, k: int, atol: float, *,
    worth: np.ndarray | None = None, allowed: np.ndarray | None = None, threshold: float | None = None,
) -> None:  # fmt: skip
    """Check a ranking by sorting all labels by what they are worth, which is their score by default."""
    ids, values = found
    assert ids.dtype == np.int64
    assert values.dtype == np.float32
    worth = scores.astype(np.float64) if worth is None else worth.astype(np.float64)
    if allowed is not None:
        worth = np.where(allowed, worth, -np.inf)
    if threshold is not None:
        worth = np.where(scores < threshold, -np.inf, worth)
    wanted = -np.sort(-worth, axis=1)[:, :k]
    assert ids.shape == values.shape == wanted.shape
    present = ids >= 0
    np.testing.assert_array_equal(present, wanted > -np.inf)
    place = np.maximum(ids, 0)
    np.testing.assert_allclose(np.take_along_axis(worth, place, axis=1)[present], wanted[present], atol=atol)
    own = np.take_along_axis(scores, place, axis=1)
    np.testing.assert_allclose(values[present], own[present], atol=atol, rtol=1e-5)
    assert (values[~present] == -np.inf).all()
    assert all(len({*row[row >= 0]}) == (row >= 0).sum() for row in ids)


def middle(scores: np.ndarray) -> float:
    """Return a threshold about which rounding leaves no doubt: the middle of a gap between scores."""
    ordered = np.sort(scores, axis=None)[scores.size // 3 :]
    gap = int(np.diff(ordered).argmax())
    return float(ordered[gap : gap + 2].mean())


class Guarantees:
    """The guarantees of a saved model."""

    def test_it_is_the_model_that_was_saved(self, saved: Saved) -> None:
        model, loaded, runtime = saved.model, saved.torch, saved.numpy
        if saved.case.store == "float32":
            np.testing.assert_array_equal(scores_of(model, saved.documents), saved.scores)
        names = ("label_names", "history", "training", "n_labels", "n_features", "sparse", "calibration",
                 "documents_seen", "threshold")  # fmt: skip
        for name in names:
            assert getattr(runtime, name) == getattr(loaded, name) == getattr(model, name), name
        for each in (loaded, runtime):
            np.testing.assert_array_equal(each.label_counts, model.label_counts)
            assert (each.vectorizer is None) == (saved.case.kind != "texts")
        settings = [network.settings for network in model.networks]
        assert (
            [each.settings for each in loaded.networks] == [each.settings for each in runtime.members] == settings
        )
        assert repr(runtime.codebook) == repr(loaded.network.codebook) == repr(model.network.codebook)
        assert runtime.parameter_counts == model.ranker.parameter_counts()

    def test_saved_again_it_has_the_same_files(self, saved: Saved, tmp_path: Path) -> None:
        store = saved.case.store
        if store == DEFLATED:
            pytest.skip("only a search deflates weights")
        saved.torch.save(tmp_path / "again", store)
        for path in saved.folder.iterdir():
            assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()
        if store != "float32":  # what was rounded once is not rounded again
            saved.torch.save(tmp_path / "large")
            large = Model.load(tmp_path / "large")
            np.testing.assert_array_equal(scores_of(large, saved.documents), saved.scores)

    def test_every_backend_has_the_same_scores(self, saved: Saved) -> None:
        for backend in (saved.numpy, saved.onnx):
            found = scores_of(backend, saved.documents)
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, saved.scores, atol=saved.atol)

    def test_the_best_labels_are_those_of_all_scores_sorted(self, saved: Saved) -> None:
        scores, atol = saved.scores, saved.atol
        allowed, threshold = np.arange(saved.case.n_labels) % 3 != 0, middle(scores)
        weights = np.log(inverse_propensity_of_counts(saved.model.label_counts, saved.model.documents_seen))
        slope, intercept = saved.model.calibration
        gains = -np.logaddexp(0, -(slope * scores.astype(np.float64) + intercept)) + 0.7 * weights
        for backend in (saved.torch, saved.numpy):
            for k in (1, 5, saved.case.n_labels + 9):
                assert_ranked(backend.top_k(saved.documents, k), scores, k, atol)
            some: dict[str, Any] = {"allowed": allowed, "threshold": threshold}
            assert_ranked(backend.top_k(saved.documents, 6, memory=1, **some), scores, 6, atol, **some)
            found = backend.top_k(saved.documents, 6, favor_rare=0.7, **some)
            assert_ranked(found, scores, 6, 10 * atol, worth=gains, **some)
        labels, probabilities, own = saved.onnx.run(saved.documents)
        best = np.take_along_axis(own, labels, axis=1)
        assert_ranked((labels, best), scores, 5, atol)
        np.testing.assert_allclose(probabilities, saved.model.probabilities(best), rtol=1e-5, atol=1e-5)

    def test_a_document_does_not_depend_on_others(self, saved: Saved) -> None:
        for backend in (saved.torch, saved.numpy, saved.onnx):
            alone = np.concatenate([scores_of(backend, saved.documents[i : i + 1]) for i in range(7)])
            np.testing.assert_allclose(alone, saved.scores, atol=saved.atol)
            assert scores_of(backend, saved.documents[:0]).shape == (0, saved.case.n_labels)
        for backend in (saved.torch, saved.numpy):
            ids, values = backend.top_k(saved.documents[:0], 3)
            assert ids.shape == values.shape == (0, min(3, saved.case.n_labels))

    def test_new_labels_change_no_old_score(self, saved: Saved, tmp_path: Path) -> None:
        grown, n_labels = Model.load(saved.folder), saved.case.n_labels
        room = [] if grown.network.codebook is None else [grown.network.codebook.capacity]
        if grown.network.scorer.bias is not None:
            room.append(len(grown.network.scorer.bias))
        if not room or n_labels in room:
            pytest.skip("without codes, or without room, there is no new label")
        before = {name: tensor.clone() for name, tensor in grown.ranker.weights().items()}
        grown.ranker.grow(n_labels + 1)
        assert all(torch.equal(tensor, before[name]) for name, tensor in grown.ranker.weights().items())
        grown.label_names = grown.label_names and [*grown.label_names, "new"]
        grown.save(tmp_path / "grown")
        scores = scores_of(grown, saved.documents)
        np.testing.assert_allclose(scores[:, :n_labels], saved.scores, atol=saved.atol)
        runtime = RuntimeModel.load(tmp_path / "grown")
        np.testing.assert_array_equal(runtime.label_counts, [*saved.model.label_counts, 0])
        for backend in (Model.load(tmp_path / "grown"), runtime, Graph(tmp_path / "grown", grown)):
            np.testing.assert_allclose(scores_of(backend, saved.documents), scores, atol=saved.atol)

    def test_explanations_add_up_to_the_score(self, saved: Saved) -> None:
        runtime, labels = saved.numpy, np.unique([0, saved.case.n_labels - 1])
        row = runtime._rows(runtime.checked(saved.documents[:1]), 0, 1)
        found, scores = attributed(runtime, row, labels), saved.scores[0, labels]
        np.testing.assert_allclose(found.scores, scores, atol=saved.atol)
        off = np.abs(found.values.sum(axis=1) - (found.scores - found.bases))
        size = np.maximum(np.abs(found.values).sum(axis=1), saved.atol / 2e-5)
        np.testing.assert_array_less(off, 1e-5 * size + 1e-9)
        assert len(found.columns) == found.values.shape[1]

    @classmethod
    def all(cls) -> Iterator[Any]:
        """Yield all guarantees, for a test that goes through them."""
        for name in vars(cls):
            if name.startswith("test_"):
                yield getattr(cls(), name)
