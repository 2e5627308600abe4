from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from circlet import files
from circlet.data.dataset import Split
from circlet.errors import DataError, OutputError, ParameterError
from circlet.features.scaling import Scaling
from circlet.model import Model, calibration, fit
from circlet.model import folder as folders
from circlet.model.calibration import calibrate
from circlet.model.folder import FORMAT
from circlet.network import Network, NetworkSettings
from circlet.network.heads import HEADS
from circlet.settings import RunSettings
from circlet.training import Reporter, TrainingSettings, checkpoint

N, F, L = 80, 14, 6
NAMES = ["red", "green", "dark blue", "größer", "日本", "#6"]
WORDS = ["one", "two", "three", "four", "five", "six", "seven"]


pytestmark = pytest.mark.usefixtures("one_thread")


def split(kind: str, seed: int = 0) -> Split:
    random = np.random.default_rng(seed)
    Y = (random.random((N, L)) < 0.3).astype(np.float32)
    noise = (random.random((N, F - L)) * (random.random((N, F - L)) < 0.4)).astype(np.float32)
    X = np.hstack([Y * 2, noise]).astype(np.float32)
    if kind == "sparse":
        return Split(sp.csr_matrix(X), sp.csr_matrix(Y))
    if kind == "dense":
        return Split(X, sp.csr_matrix(Y))
    texts = [
        " ".join([*(f"label{label}" for label in np.flatnonzero(row)), *random.choice(WORDS, 3)]) for row in Y
    ]
    return Split(None, sp.csr_matrix(Y), texts)


KINDS = ["sparse", "dense", "texts"]
NETWORK = NetworkSettings(dim=24, hidden=(16,), dropout=0.2)
TRAINING = TrainingSettings(epochs=3, batch_size=16, lr=0.02)


def trained(
    kind: str = "sparse", *, names: bool = True, network: NetworkSettings = NETWORK, **arguments: Any
) -> Model:
    settings = RunSettings(network, arguments.pop("training", TRAINING), scaling=arguments.pop("scaling", "auto"))
    return fit(split(kind), settings, label_names=NAMES if names else None, validation=split(kind, 1), **arguments)


@cache
def shared(kind: str = "sparse", names: bool = True) -> Model:
    """A model that tests only read."""
    return trained(kind, names=names)


def documents(kind: str) -> Any:
    rows = split(kind, 2)
    return rows.texts if rows.X is None else rows.X


def assert_same(one: Model, other: Model, given: Any) -> None:
    for expected, found in zip(one.top_k(given, 4), other.top_k(given, 4), strict=True):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype


class TestRoundTrip:
    @pytest.mark.parametrize("names", [True, False], ids=["named", "nameless"])
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_loaded_model_predicts_the_same(self, kind, names, tmp_path):
        model = shared(kind, names)
        model.save(tmp_path)
        loaded = Model.load(tmp_path)
        assert_same(model, loaded, documents(kind))
        assert loaded.label_names == model.label_names == (NAMES if names else None)
        assert loaded.calibration == model.calibration
        assert loaded.history == model.history
        assert loaded.training == model.training
        assert (loaded.n_features, loaded.n_labels, loaded.sparse) == (model.n_features, L, kind != "dense")
        assert loaded.network.settings == model.network.settings
        assert (loaded.vectorizer is None) == ("texts" not in kind)

    @pytest.mark.parametrize("head", HEADS)
    @pytest.mark.parametrize("loss", ["cosine", "bce", "softmax"])
    def test_every_head_and_loss(self, head, loss, tmp_path):
        if (head, loss) == ("fc", "cosine"):
            pytest.skip("makes no sense")
        settings = NetworkSettings(head=head, loss=loss, dim=9, hidden=(8, 4), seed=3)
        model = trained(network=settings, training=TrainingSettings(epochs=1))
        model.save(tmp_path)
        assert_same(model, Model.load(tmp_path), documents("sparse"))

    @pytest.mark.parametrize("scaling", ["none", "l2", "sqrt", "tfidf", "standard"])
    def test_every_scaling(self, scaling, tmp_path):
        model = trained("dense", scaling=scaling)
        model.save(tmp_path)
        loaded = Model.load(tmp_path)
        assert loaded.scaling.kind == scaling
        assert_same(model, loaded, documents("dense"))

    def test_twice(self, tmp_path):
        shared().save(tmp_path / "one")
        Model.load(tmp_path / "one").save(tmp_path / "two")
        for path in (tmp_path / "one").iterdir():
            assert (tmp_path / "two" / path.name).read_bytes() == path.read_bytes()

    def test_a_path_may_be_a_string_and_its_folders_new(self, tmp_path):
        shared().save(str(tmp_path / "a" / "b"))
        assert_same(shared(), Model.load(str(tmp_path / "a" / "b")), documents("sparse"))

    def test_what_lies_in_the_folder(self, tmp_path):
        for kind, names, extra in (
            ("sparse", False, []),
            ("sparse", True, ["labels.txt"]),
            ("texts", True, ["labels.txt", "vectorizer.json", "vectorizer.safetensors"]),
        ):
            folder = tmp_path / f"{kind}{names}"
            shared(kind, names).save(folder)
            found = sorted(path.name for path in folder.iterdir())
            assert found == sorted(["config.json", "history.json", "weights.safetensors", *extra])

    def test_over_another_model(self, tmp_path):
        shared("texts").save(tmp_path)
        shared("dense", names=False).save(tmp_path)
        loaded = Model.load(tmp_path)
        assert loaded.label_names is None
        assert loaded.vectorizer is None
        assert_same(shared("dense", names=False), loaded, documents("dense"))

    def test_a_checkpoint_is_removed(self, tmp_path):
        model = trained(folder=tmp_path)
        assert (tmp_path / checkpoint.NAME).exists()
        model.save(tmp_path)
        assert not (tmp_path / checkpoint.NAME).exists()

    def test_labels_that_came_later(self, tmp_path):
        model = trained(names=False)
        model.network.grow(L + 3)
        model.save(tmp_path)
        loaded = Model.load(tmp_path)
        assert loaded.n_labels == L + 3
        assert_same(model, loaded, documents("sparse"))

    def test_an_encoder_of_ones_own(self, tmp_path):
        make = lambda: nn.Sequential(nn.Linear(F, 16), nn.Tanh())  # noqa: E731
        model = trained("dense", encoder=make())
        model.save(tmp_path)
        assert_same(model, Model.load(tmp_path, encoder=make()), documents("dense"))
        with pytest.raises(DataError, match=r"weights\.safetensors: found encoder\.\S+ of shape"):
            Model.load(tmp_path)

    def test_settings_from_a_grid_of_numpys(self, tmp_path):
        model = trained(
            network=NetworkSettings(dim=np.int64(8), hidden=np.array([8]), dropout=np.float32(0.25)),
            training=TrainingSettings(epochs=np.int64(1), lr=np.float32(0.01)),
        )
        model.save(tmp_path)
        assert_same(model, Model.load(tmp_path), documents("sparse"))

    def test_the_same_seed_gives_the_same_file(self, tmp_path):
        for name in ("one", "two"):
            trained().save(tmp_path / name)
        one, two = ((tmp_path / name / "weights.safetensors").read_bytes() for name in ("one", "two"))
        assert one == two

    @pytest.mark.skipif(sys.platform == "win32", reason="no such permissions there")
    def test_who_may_read_the_weights_may_read_the_rest(self, tmp_path):
        shared().save(tmp_path)
        assert len({path.stat().st_mode for path in tmp_path.iterdir()}) == 1

    def test_a_file_in_place_of_the_folder(self, tmp_path):
        (tmp_path / "model").write_text("mine")
        with pytest.raises(OutputError, match=r"cannot write .*model"):
            shared().save(tmp_path / "model")
        assert (tmp_path / "model").read_text() == "mine"


class TestSize:
    def saved(self, n_labels: int, folder: Path, **changes: Any) -> Path:
        settings = NetworkSettings(**{"dim": 16, "hidden": (8,), "loss": "cosine", **changes})
        network = Network(settings, F, n_labels, sparse=True)
        Model(network, Scaling("l2"), n_features=F, sparse=True).save(folder)
        return folder

    @pytest.mark.parametrize("head", ["chrr", "chrr-half", "hrr"])
    def test_with_cosine_it_does_not_depend_on_the_labels(self, head, tmp_path):
        few = self.saved(1000, tmp_path / "few", head=head)
        many = self.saved(100_000, tmp_path / "many", head=head)
        weights = [(folder / "weights.safetensors").stat().st_size for folder in (few, many)]
        assert weights[0] == weights[1]
        total = [sum(path.stat().st_size for path in folder.iterdir()) for folder in (few, many)]
        assert total[1] - total[0] < 20  # digits of the number of labels

    def test_with_bce_there_is_a_bias_of_four_bytes_a_label(self, tmp_path):
        few = self.saved(1000, tmp_path / "few", loss="bce")
        many = self.saved(100_000, tmp_path / "many", loss="bce")
        weights = [(folder / "weights.safetensors").stat().st_size for folder in (few, many)]
        assert weights[1] - weights[0] <= 1.1 * 4 * 99_000

    def test_a_large_one_works(self, tmp_path):
        loaded = Model.load(self.saved(100_000, tmp_path))
        assert loaded.top_k(documents("sparse"), 3)[0].shape == (N, 3)


def change_config(folder: Path, **changes: Any) -> None:
    """Write other values; `...` takes a key away."""
    path = folder / "config.json"
    config = {**json.loads(path.read_text(encoding="utf-8")), **changes}
    path.write_text(
        json.dumps({key: value for key, value in config.items() if value is not ...}), encoding="utf-8"
    )


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def truncate(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])


Damage = Callable[[Path], None]
DAMAGES: dict[str, tuple[str, Damage]] = {
    "no config": ("config.json", lambda folder: (folder / "config.json").unlink()),
    "empty config": ("config.json", lambda folder: (folder / "config.json").write_text("")),
    "truncated config": ("config.json", lambda folder: truncate(folder / "config.json", 0.5)),
    "config is no text": ("config.json", lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe\x00")),
    "config is a list": ("config.json", lambda folder: (folder / "config.json").write_text("[1, 2]")),
    "a foreign config": (
        "config.json",
        lambda folder: (folder / "config.json").write_text('{"model_type": "bert", "hidden_size": 768}'),
    ),
    "no weights": ("weights.safetensors", lambda folder: (folder / "weights.safetensors").unlink()),
    "empty weights": ("weights.safetensors", lambda folder: truncate(folder / "weights.safetensors", 0)),
    "truncated weights": ("weights.safetensors", lambda folder: truncate(folder / "weights.safetensors", 0.9)),
    "a flipped bit in the header": (
        "weights.safetensors",
        lambda folder: flip(folder / "weights.safetensors", 20),
    ),
    "a flipped bit in the weights": (
        "weights.safetensors",
        lambda folder: flip(folder / "weights.safetensors", -9),
    ),
    "no history": ("history.json", lambda folder: (folder / "history.json").unlink()),
    "truncated history": ("history.json", lambda folder: truncate(folder / "history.json", 0.5)),
    "another history": ("history.json", lambda folder: (folder / "history.json").write_text('{"a": 1}')),
    "no labels": ("labels.txt", lambda folder: (folder / "labels.txt").unlink()),
    "a label missing": (
        "labels.txt",
        lambda folder: (folder / "labels.txt").write_text("\n".join(NAMES[1:]) + "\n", encoding="utf-8"),
    ),
    "a label too many": (
        "labels.txt",
        lambda folder: (folder / "labels.txt").write_text("\n".join([*NAMES, "x"]) + "\n", encoding="utf-8"),
    ),
    "truncated labels": ("labels.txt", lambda folder: truncate(folder / "labels.txt", 0.9)),
    "labels are no text": ("labels.txt", lambda folder: (folder / "labels.txt").write_bytes(b"\xff\n" * L)),
    "no vectorizer": ("vectorizer.json", lambda folder: (folder / "vectorizer.json").unlink()),
    "no vectorizer's numbers": (
        "vectorizer.safetensors",
        lambda folder: (folder / "vectorizer.safetensors").unlink(),
    ),
    "truncated vectorizer": (
        "vectorizer.safetensors",
        lambda folder: truncate(folder / "vectorizer.safetensors", 0.5),
    ),
}
KEYS = [
    "network",
    "n_features",
    "n_labels",
    "sparse",
    "codebook",
    "scaling",
    "calibration",
    "named_labels",
    "texts",
    "weights_sha256",
    "training",
]
WRONG = {
    "network": [None, 3, [], {"head": "lstm"}, {"depth": 3}, {"hidden": 3}, {"dropout": "a"}, {"dim": None}],
    "n_features": [None, 0, -3, 2.5, "many", True, F + 1, 10**10],
    "n_labels": [None, 0, -3, 2.5, "many", True, L + 1, L - 1, 10**15],
    "sparse": [None, 0, "yes"],
    "codebook": [None, 3, [], {}, {"n_labels": L}, {"n_labels": L, "dim": 24, "seed": 0, "length": 7}],
    "scaling": [None, "auto", "minmax", "tfidf", 3],
    "calibration": [None, 1.0, [], [1.0], [1.0, 2.0, 3.0], ["a", "b"], {"slope": 1}],
    "named_labels": [None, "yes", 1],
    "texts": [None, "no", 0],
    "weights_sha256": [None, 3, "", "0" * 64],
    "training": [None, [], "well"],
}


class TestDamage:
    @pytest.fixture
    def folder(self, tmp_path) -> Path:
        shared("texts").save(tmp_path / "model")
        return tmp_path / "model"

    def refused(self, folder: Path, *names: str) -> str:
        with pytest.raises(DataError) as caught:
            Model.load(folder)
        message = str(caught.value)
        assert message.startswith(str(folder))
        assert not message.startswith(f"{folder}: {folder}")
        assert any(name in message for name in names), message
        assert "\n" not in message
        assert any(word in message for word in ("found", "got", "cannot read"))
        return message

    @pytest.mark.parametrize("damage", DAMAGES)
    def test_of_a_file(self, damage, folder):
        name, inflict = DAMAGES[damage]
        inflict(folder)
        self.refused(folder, name)

    @pytest.mark.parametrize("name", ["config.json", "weights.safetensors", "history.json", "labels.txt"])
    def test_a_folder_in_place_of_a_file(self, name, folder):
        (folder / name).unlink()
        (folder / name).mkdir()
        self.refused(folder, name)

    def test_no_folder(self, tmp_path):
        message = self.refused(tmp_path / "nowhere", "config.json")
        assert "is not a circlet model" in message

    def test_a_newer_format(self, folder):
        change_config(folder, format=FORMAT + 1, circlet="9.9")
        message = self.refused(folder, "config.json")
        assert f"format {FORMAT + 1}, written by circlet 9.9" in message
        assert f"reads format {FORMAT}" in message

    @pytest.mark.parametrize("key", [*KEYS, "format", "circlet"])
    def test_a_missing_key(self, key, folder):
        change_config(folder, **{key: ...})
        self.refused(folder, "config.json")

    def test_these_are_all_keys(self, folder):
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        assert sorted(config) == sorted([*KEYS, "store", "format", "circlet"])  # which old folders do not have
        assert sorted(folders._WANTED) == sorted([*KEYS, "store"])

    @pytest.mark.parametrize(("key", "value"), [(key, value) for key in KEYS for value in WRONG[key]])
    def test_a_wrong_value(self, key, value, folder):
        if isinstance(value, dict) and key == "network":
            value = {**NETWORK.as_dict(), **value}
        change_config(folder, **{key: value})
        self.refused(folder, "config.json", "weights.safetensors", "labels.txt")

    def test_weights_of_another_model(self, folder, tmp_path):
        trained("texts", network=NetworkSettings(dim=24, hidden=(16,), dropout=0.2, seed=1)).save(
            tmp_path / "other"
        )
        shutil.copy(tmp_path / "other" / "weights.safetensors", folder)
        assert "found other weights than config.json describes" in self.refused(folder, "weights.safetensors")

    def test_config_of_another_model(self, folder, tmp_path):
        trained("texts", network=NetworkSettings(dim=24, hidden=(8,))).save(tmp_path / "other")
        shutil.copy(tmp_path / "other" / "config.json", folder)
        self.refused(folder, "weights.safetensors")

    @pytest.mark.parametrize("change", ["less", "more", "shape"])
    def test_tensors_that_do_not_fit(self, change, folder):
        path = folder / "weights.safetensors"
        tensors = load_file(path)
        if change == "less":
            del tensors["head.output.bias"]
        elif change == "more":
            tensors["head.third.bias"] = torch.ones(3)
        else:
            tensors["head.output.bias"] = torch.ones(3)
        save_file(tensors, path)
        change_config(folder, weights_sha256=files.sha256(path))
        assert "of shape" in self.refused(folder, "weights.safetensors: found head.")

    def test_arrays_of_another_scaling(self, tmp_path):
        shared("dense").save(tmp_path)
        change_config(tmp_path, scaling="l2")
        self.refused(tmp_path, "config.json")


class TestRows:
    def test_scaled_like_the_training_rows(self):
        model = shared("sparse")
        expected = Scaling("sqrt").transform(documents("sparse"))
        np.testing.assert_allclose(model.rows(documents("sparse")).toarray(), expected.toarray())

    @pytest.mark.parametrize(("kind", "other"), [("sparse", "dense"), ("dense", "sparse")])
    def test_the_other_kind_of_matrix_is_taken_too(self, kind, other):
        ids, scores = shared(kind).top_k(documents(kind), 3)
        same, close = shared(kind).top_k(documents(other), 3)
        np.testing.assert_array_equal(same, ids)
        np.testing.assert_allclose(close, scores)

    def test_texts_for_a_model_of_rows(self):
        with pytest.raises(DataError, match="was trained on feature rows; wanted rows, got texts"):
            shared("sparse").rows(["a text"])

    @pytest.mark.parametrize("kind", ["sparse", "dense"])
    def test_rows_for_a_model_of_texts(self, kind):
        with pytest.raises(DataError, match="was trained on texts; wanted a list of texts, got feature rows"):
            shared("texts").rows(documents(kind))

    @pytest.mark.parametrize("kind", ["sparse", "dense"])
    def test_another_number_of_features(self, kind):
        with pytest.raises(DataError, match=rf"found rows of shape \({N}, 3\); this model wants {F} features"):
            shared(kind).rows(documents(kind)[:, :3])

    def test_one_row_that_is_no_matrix(self):
        with pytest.raises(DataError, match=rf"found rows of shape \({F},\)"):
            shared("dense").rows(documents("dense")[0])

    @pytest.mark.parametrize("kind", KINDS)
    def test_no_documents(self, kind):
        ids, scores = shared(kind).top_k(documents(kind)[:0], 3)
        assert ids.shape == scores.shape == (0, 3)

    @pytest.mark.parametrize("kind", KINDS)
    def test_one_document_is_like_many(self, kind):
        ids, scores = shared(kind).top_k(documents(kind), 3)
        alone, close = shared(kind).top_k(documents(kind)[5:6], 3)
        np.testing.assert_array_equal(alone, ids[5:6])
        np.testing.assert_allclose(close, scores[5:6], rtol=1e-4, atol=1e-5)


class TestFit:
    def test_learns(self):
        model = trained(training=TrainingSettings(epochs=20, batch_size=16, lr=0.02))
        given = split("sparse", 2)
        ids, _ = model.top_k(given.X, 1)
        labelled = np.diff(given.Y.indptr) > 0
        right = np.asarray(given.Y[np.arange(N), ids[:, 0]]).ravel()
        assert right[labelled].mean() > 0.9

    def test_says_how_it_was_made(self):
        model = shared("sparse")
        assert model.training["documents"] == N
        assert model.training["epochs"] == len(model.history) == 3
        assert model.training["lr"] == 0.02

    def test_texts_come_scaled_out_of_their_vectorizer(self):
        assert shared("texts").scaling.kind == "none"

    @pytest.mark.parametrize("kind", KINDS)
    def test_no_documents(self, kind):
        given = split(kind).take([])
        with pytest.raises(ParameterError, match="there are no documents to train on"):
            fit(given, RunSettings(NETWORK, TRAINING))

    @pytest.mark.parametrize(
        ("names", "message"),
        [
            (NAMES[1:], "found 5 label names; wanted one for each of 6"),
            ([*NAMES[1:], "two\nlines"], "line end"),
            ([*NAMES[1:], NAMES[1]], "twice"),
        ],
    )
    def test_names_that_could_not_be_saved(self, names, message):
        with pytest.raises(DataError, match=message):
            fit(split("sparse"), RunSettings(NETWORK, TRAINING), label_names=names)

    def test_without_validation_rows(self):
        nothing = split("sparse").take([])
        model = fit(split("sparse"), RunSettings(NETWORK, TRAINING), validation=nothing)
        assert model.calibration == (1.0, 0.0)
        assert not any("@" in name for record in model.history for name in record)

    def test_the_reporter_hears_of_it(self):
        seen = []

        class Watch(Reporter):
            def record(self, record: dict[str, Any]) -> None:
                seen.append(record)

        model = trained(reporter=Watch())
        assert seen == model.history


class TestCalibration:
    """A label is right with probability σ(slope · score + intercept)."""

    def test_recovers_a_known_curve(self, monkeypatch):
        slope, intercept, n, depth = 7.0, -2.0, 1500, 20
        random = np.random.default_rng(0)
        scores = random.normal(0.2, 0.4, (n, depth)).astype(np.float32)
        ids = np.tile(np.arange(depth), (n, 1))
        right = random.random((n, depth)) < 1 / (1 + np.exp(-(slope * scores + intercept)))
        with monkeypatch.context() as patch:
            patch.setattr(calibration, "top_k", lambda *_, **__: (ids, scores))
            indicator = sp.csr_matrix(right.astype(np.float32))
            found = calibrate(None, None, indicator, depth=depth)
        assert found == pytest.approx((slope, intercept), rel=0.05)
        model = Model(shared().network, shared().scaling, n_features=F, sparse=True, calibration=found)
        probabilities = model.probabilities(scores)
        for low in np.arange(0, 1, 0.2):  # 0.8 means about 80 %
            inside = (probabilities >= low) & (probabilities < low + 0.2)
            assert right[inside].mean() == pytest.approx(probabilities[inside].mean(), abs=0.03)

    @pytest.mark.parametrize(("name", "right"), [("all", np.ones((4, 3))), ("none", np.zeros((4, 3)))])
    def test_nothing_to_tell_apart(self, name, right, monkeypatch):
        ids, scores = np.tile(np.arange(3), (4, 1)), np.random.default_rng(0).random((4, 3), dtype=np.float32)
        monkeypatch.setattr(calibration, "top_k", lambda *_, **__: (ids, scores))
        assert calibrate(None, None, sp.csr_matrix(right)) == (1.0, 0.0)

    def test_a_falling_curve_is_not_taken(self, monkeypatch):
        ids, scores = np.tile(np.arange(3), (40, 1)), np.tile(np.float32([3, 2, 1]), (40, 1))
        monkeypatch.setattr(calibration, "top_k", lambda *_, **__: (ids, scores))
        right = sp.csr_matrix(np.tile([0.0, 0.0, 1.0], (40, 1)))
        assert calibrate(None, None, right) == (1.0, 0.0)

    def test_few_rows_make_nothing_certain(self, monkeypatch):
        """Scores that separate completely would else have a curve without end."""
        ids, scores = np.tile(np.arange(2), (40, 1)), np.tile(np.float32([0.3, 0.1]), (40, 1))
        monkeypatch.setattr(calibration, "top_k", lambda *_, **__: (ids, scores))
        right = sp.csr_matrix(np.tile([1.0, 0.0], (40, 1)))
        slope, intercept = calibrate(None, None, right)
        found = 1 / (1 + np.exp(-(slope * scores[0] + intercept)))
        assert found == pytest.approx([41 / 42, 1 / 42], abs=1e-3)

    @pytest.mark.parametrize("loss", ["cosine", "bce", "softmax"])
    @pytest.mark.parametrize("validated", [True, False], ids=["validated", "not validated"])
    def test_probabilities_lie_between_0_and_1_and_rank_alike(self, loss, validated):
        settings = NetworkSettings(dim=24, hidden=(16,), loss=loss)
        validation = split("sparse", 1) if validated else None
        model = fit(split("sparse"), RunSettings(settings, TRAINING), validation=validation)
        _, scores = model.top_k(documents("sparse"), L)
        probabilities = model.probabilities(scores)
        assert probabilities.dtype == np.float32
        assert probabilities.shape == scores.shape
        assert ((probabilities >= 0) & (probabilities <= 1)).all()
        assert (np.diff(probabilities, axis=1) <= 0).all()

    def test_scores_of_any_size(self):
        scores = [-1e30, -1000.0, 0.0, 1000.0, 1e30]
        model = Model(shared().network, shared().scaling, n_features=F, sparse=True, calibration=(2.0, 0.0))
        assert model.probabilities(scores).tolist() == [0, 0, 0.5, 1, 1]
