from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from circlet.errors import DataError, OutputError
from circlet.features.rows import Scaling
from circlet.folder.layout import FORMAT
from circlet.model import Model
from circlet.network import Ensemble, Network, NetworkSettings
from circlet.runtime import RuntimeModel
from circlet.training import TrainingSettings, checkpoint

N, F, L = 80, 14, 6  # of every model in conftest.py
NAMES = ["red", "green", "dark blue", "größer", "日本", "#6"]


KINDS = ["sparse", "dense", "texts"]

pytestmark = pytest.mark.usefixtures("one_thread")


def assert_same(one: Model, other: Model, given: Any) -> None:
    for expected, found in zip(one.top_k(given, 4), other.top_k(given, 4), strict=True):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype


class TestRoundTrip:
    @pytest.mark.parametrize("names", [True, False], ids=["named", "nameless"])
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_loaded_model_predicts_the_same(self, kind, names, tmp_path, shared, documents):
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

    def test_twice(self, tmp_path, shared):
        shared().save(tmp_path / "one")
        Model.load(tmp_path / "one").save(tmp_path / "two")
        for path in (tmp_path / "one").iterdir():
            assert (tmp_path / "two" / path.name).read_bytes() == path.read_bytes()

    def test_a_path_may_be_a_string_and_its_folders_new(self, tmp_path, shared, documents):
        shared().save(str(tmp_path / "a" / "b"))
        assert_same(shared(), Model.load(str(tmp_path / "a" / "b")), documents("sparse"))

    def test_files_in_the_folder(self, tmp_path, shared):
        for kind, names, extra in (
            ("sparse", False, []),
            ("sparse", True, ["labels.txt"]),
            ("texts", True, ["labels.txt", "vectorizer.json", "vectorizer.safetensors"]),
        ):
            folder = tmp_path / f"{kind}{names}"
            shared(kind, names).save(folder)
            found = sorted(path.name for path in folder.iterdir())
            always = [
                "MODEL_CARD.md",
                "config.json",
                "history.json",
                "remembered.safetensors",
                "sample.safetensors",
                "weights.safetensors",
            ]
            assert found == sorted([*always, *extra])

    def test_over_another_model(self, tmp_path, shared, documents):
        shared("texts").save(tmp_path)
        shared("dense", names=False).save(tmp_path)
        loaded = Model.load(tmp_path)
        assert loaded.label_names is None
        assert loaded.vectorizer is None
        assert_same(shared("dense", names=False), loaded, documents("dense"))

    def test_a_checkpoint_is_removed(self, tmp_path, trained):
        model = trained(folder=tmp_path)
        assert (tmp_path / checkpoint.NAME).exists()
        model.save(tmp_path)
        assert not (tmp_path / checkpoint.NAME).exists()

    def test_labels_that_came_later(self, tmp_path, trained, documents):
        model = trained(names=False)
        model.network.grow(L + 3)
        model.save(tmp_path)
        loaded = Model.load(tmp_path)
        assert loaded.n_labels == L + 3
        np.testing.assert_array_equal(loaded.label_counts, [*model.label_counts, 0, 0, 0])
        assert_same(model, loaded, documents("sparse"))

    def test_a_custom_encoder(self, tmp_path, trained, documents):
        make = lambda: nn.Sequential(nn.Linear(F, 16), nn.Tanh())  # noqa: E731
        model = trained("dense", encoder=make())
        model.save(tmp_path)
        assert_same(model, Model.load(tmp_path, encoder=make()), documents("dense"))
        with pytest.raises(DataError, match="found a model with an encoder of its own"):
            Model.load(tmp_path)

    def test_settings_with_numpy_numbers(self, tmp_path, trained, documents):
        model = trained(
            network=NetworkSettings(dim=np.int64(8), hidden=np.array([8]), dropout=np.float32(0.25)),
            training=TrainingSettings(epochs=np.int64(1), lr=np.float32(0.01)),
        )
        model.save(tmp_path)
        assert_same(model, Model.load(tmp_path), documents("sparse"))

    def test_the_same_seed_gives_the_same_file(self, tmp_path, trained):
        for name in ("one", "two"):
            trained().save(tmp_path / name)
        one, two = ((tmp_path / name / "weights.safetensors").read_bytes() for name in ("one", "two"))
        assert one == two

    @pytest.mark.skipif(sys.platform == "win32", reason="no such permissions there")
    @pytest.mark.parametrize("store", ["float32", "int8"])
    def test_whoever_may_read_the_weights_may_read_the_rest(self, store, tmp_path, shared):
        shared("texts").save(tmp_path, store)
        assert len(list(tmp_path.iterdir())) == 9
        assert len({path.stat().st_mode for path in tmp_path.iterdir()}) == 1

    @pytest.mark.parametrize("store", ["float32", "bf16", "int8"])
    def test_how_frequent_labels_are(self, store, tmp_path, shared, split):
        """Counts are exact, however weights are stored: 80 training rows and 80 held-out ones have them."""
        shared().save(tmp_path, store)
        expected = (split("sparse").Y + split("sparse", 1).Y).sum(axis=0).A1
        counts = Model.load(tmp_path).label_counts
        assert counts.dtype == np.int64
        np.testing.assert_array_equal(counts, expected)
        assert Model.load(tmp_path).documents_seen == 2 * N

    def test_an_older_folder_does_not_know_how_frequent_labels_are(
        self, tmp_path, shared, documents, change_config
    ):
        shared().save(tmp_path)
        path = tmp_path / "weights.safetensors"
        tensors = load_file(path)
        del tensors["label_counts"]
        save_file(tensors, path)
        change_config(tmp_path)
        loaded = Model.load(tmp_path)
        assert loaded.label_counts is None
        assert_same(shared(), loaded, documents("sparse"))
        loaded.save(tmp_path)
        assert Model.load(tmp_path).label_counts is None

    @pytest.mark.parametrize(
        "counts",
        [[[0, 1]], [[0, 99], [1, 1]], [[1, 0], [1, 1]], [[0, 0], [1, 1]], [[0, 1], [1, 0]], [[-1, 1], [1, 1]]],
    )
    def test_damaged_counts(self, counts, tmp_path, shared, change_config):
        shared().save(tmp_path)
        path = tmp_path / "weights.safetensors"
        save_file({**load_file(path), "label_counts": torch.tensor(counts, dtype=torch.int32)}, path)
        change_config(tmp_path)
        with pytest.raises(DataError, match=r"weights\.safetensors: found damaged label_counts"):
            Model.load(tmp_path)

    def test_a_file_in_place_of_the_folder(self, tmp_path, shared):
        (tmp_path / "model").write_text("mine")
        with pytest.raises(OutputError, match=r"cannot write .*model"):
            shared().save(tmp_path / "model")
        assert (tmp_path / "model").read_text() == "mine"


class TestMembers:
    """A model of several networks is one folder too."""

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_loaded_model_predicts_the_same(self, kind, tmp_path, shared, documents):
        model = shared(kind, members=2)
        model.save(tmp_path / "one")
        loaded = Model.load(tmp_path / "one")
        assert [network.settings for network in loaded.networks] == [each.settings for each in model.networks]
        assert loaded.calibration == model.calibration
        assert loaded.history == model.history
        assert_same(model, loaded, documents(kind))
        loaded.save(tmp_path / "two")
        names = sorted(path.name for path in (tmp_path / "one").iterdir())
        assert names == sorted(path.name for path in self.saved_alone(kind, tmp_path, shared).iterdir())
        for name in names:
            assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()

    def saved_alone(self, kind: str, folder: Path, shared: Any) -> Path:
        shared(kind).save(folder / "alone")
        return folder / "alone"

    @pytest.mark.parametrize("head", ["chrr", "hrr", "fc"])
    def test_other_heads_and_a_new_label(self, head, tmp_path, trained, documents):
        settings = NetworkSettings(head=head, loss="softmax", dim=9, hidden=(8,), seed=3)
        model = trained(network=settings, training=TrainingSettings(epochs=1), members=2, names=False)
        if head != "fc":
            model.ranker.grow(L + 1)
        model.save(tmp_path)
        assert_same(model, Model.load(tmp_path), documents("sparse"))

    def test_a_custom_encoder(self, tmp_path, trained, documents):
        make = lambda: nn.Sequential(nn.Linear(F, 16), nn.Tanh())  # noqa: E731
        model = trained("dense", encoder=make(), members=2)
        model.save(tmp_path)
        assert_same(model, Model.load(tmp_path, encoder=make()), documents("dense"))

    def test_one_network_over_several(self, tmp_path, shared, documents):
        shared(members=2).save(tmp_path)
        shared().save(tmp_path)
        assert len(json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))["members"]) == 1
        assert_same(shared(), Model.load(tmp_path), documents("sparse"))

    def test_checkpoints_of_all_are_removed(self, tmp_path, trained):
        model = trained(folder=tmp_path, members=2)
        assert len(list(tmp_path.glob("checkpoint*"))) == 2
        model.save(tmp_path)
        assert not list(tmp_path.glob("checkpoint*"))

    @pytest.fixture
    def folder(self, tmp_path, shared) -> Path:
        shared(members=2).save(tmp_path / "model")
        return tmp_path / "model"

    @pytest.mark.parametrize("member", [0, 1])
    @pytest.mark.parametrize("names", ["output.bias", ""], ids=["a tensor", "all tensors"])
    def test_tensors_of_a_member_are_missing(self, member, names, folder, change_config):
        path, prefix = folder / "weights.safetensors", f"members.{member}.{names}"
        save_file({name: each for name, each in load_file(path).items() if not name.startswith(prefix)}, path)
        change_config(folder)
        with pytest.raises(DataError, match=rf"weights\.safetensors: found {prefix}\S* of shape None; wanted"):
            Model.load(folder)

    def test_fewer_features_than_a_first_layer_has(self, folder, change_config):
        change_config(folder, n_features=10**10)
        with pytest.raises(
            DataError, match=r"found members.0.hidden.0.weight of shape \(14, 16\); wanted \(10000000000"
        ):
            Model.load(folder)

    @pytest.mark.parametrize(
        "change",
        [
            lambda members: None,
            lambda members: "two",
            lambda members: [],
            lambda members: [{**members[0], "calibration": [2.0, 0.0]}],
            lambda members: [members[0], 3],
            lambda members: [members[0], {**members[1], "seed": -1}],
            lambda members: [members[0], {**members[1], "seed": "1"}],
            lambda members: [members[0], {**members[1], "codebook": 3}],
            lambda members: [members[0], {**members[1], "codebook": None}],
            lambda members: [
                members[0],
                {**members[1], "codebook": {**members[1]["codebook"], "n_labels": L + 1}},
            ],
            lambda members: [{**members[0], "codebook": {}}, members[1]],
            lambda members: [{**members[0], "codebook": {"n_labels": L}}, members[1]],
            lambda members: [{**members[0], "codebook": {**members[0]["codebook"], "seed": -1}}, members[1]],
            lambda members: [members[0], {**members[1], "calibration": [1.0]}],
            lambda members: [members[0], {**members[1], "size": 3}],
            lambda members: [members[0], {"seed": 1}],
            lambda members: ...,
        ],
    )
    def test_damaged_members(self, change, folder, change_config):
        members = json.loads((folder / "config.json").read_text(encoding="utf-8"))["members"]
        change_config(folder, members=change(members))
        with pytest.raises(DataError, match=r"config\.json: found (the codebook|.* as `members`; wanted)"):
            Model.load(folder)

    def test_another_length_of_codes(self, folder, change_config):
        members = json.loads((folder / "config.json").read_text(encoding="utf-8"))["members"]
        members[0]["codebook"] = {"n_labels": L, "dim": 24, "seed": 0, "length": 7}
        change_config(folder, members=members)
        with pytest.raises(DataError, match=r"found members\.0\.bias of shape .*; wanted \(7,\)"):
            Model.load(folder)

    def test_more_members_than_weights(self, folder, change_config):
        members = json.loads((folder / "config.json").read_text(encoding="utf-8"))["members"]
        change_config(folder, members=[*members, {**members[1], "seed": 9}])
        with pytest.raises(DataError, match=r"found members\.2\.\S+ of shape None"):
            Model.load(folder)


class TestSize:
    def saved(self, n_labels: int, folder: Path, **changes: Any) -> Path:
        settings = NetworkSettings(**{"dim": 16, "hidden": (8,), "loss": "cosine", **changes})
        network = Network(settings, F, n_labels, sparse=True)
        Model(Ensemble([network]), Scaling("l2"), n_features=F, sparse=True).save(folder)
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

    def test_a_large_one_works(self, tmp_path, documents):
        loaded = Model.load(self.saved(100_000, tmp_path))
        assert loaded.top_k(documents("sparse"), 3)[0].shape == (N, 3)


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
    "members",
    "scaling",
    "store",
    "calibration",
    "named_labels",
    "texts",
    "training",
    "generation",
    "files",
]
WRONG = {
    "network": [
        None,
        3,
        [],
        {"head": "lstm"},
        {"depth": 3},
        {"hidden": 3},
        {"hidden": [13]},
        {"dropout": "a"},
        {"dim": None},
    ],
    "n_features": [None, 0, -3, 2.5, "many", True, F + 1, 10**10],
    "n_labels": [None, 0, -3, 2.5, "many", True, L + 1, L - 1, 10**15],
    "sparse": [None, 0, "yes"],
    "members": [None, 3, [], {}],
    "scaling": [None, "auto", "minmax", "tfidf", 3],
    "store": [None, "int2", 3],
    "calibration": [None, 1.0, [], [1.0], [1.0, 2.0, 3.0], ["a", "b"], {"slope": 1}],
    "named_labels": [None, "yes", 1],
    "texts": [None, "no", 0],
    "training": [None, [], "well", {"documents": "many"}, {"held_out": -1}, {"decided": 3}, {"decided": [{}]}],
    "generation": [None, 0, -1, 2, "1", True, 10**18],
    "files": [None, 3, [], {}],
}


class TestDamage:
    @pytest.fixture
    def folder(self, tmp_path, shared) -> Path:
        shared("texts").save(tmp_path / "model")
        return tmp_path / "model"

    def refused(self, folder: Path, *names: str) -> str:
        messages = set()
        for load in (Model.load, RuntimeModel.load):
            with pytest.raises(DataError) as caught:
                load(folder)
            messages.add(str(caught.value))
        (message,) = messages
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
        message = self.refused(tmp_path / "nowhere", "nowhere")
        assert "is not a circlet model: found no folder there" in message

    def test_a_newer_format(self, folder, change_config):
        change_config(folder, format=FORMAT + 1, circlet="9.9")
        message = self.refused(folder, "config.json")
        assert f"format {FORMAT + 1}, written by circlet 9.9" in message
        assert f"reads format {FORMAT}" in message

    @pytest.mark.parametrize("key", [*KEYS, "format", "circlet"])
    def test_a_missing_key(self, key, folder, change_config):
        change_config(folder, **{key: ...})
        self.refused(folder, "config.json")

    def test_these_are_all_keys(self, folder):
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        assert sorted(config) == sorted([*KEYS, "threshold", "format", "circlet", "sha256"])

    @pytest.mark.parametrize("value", [None, "high", True, -0.1, 1.1, [0.5]])
    def test_a_wrong_threshold(self, value, folder, change_config):
        change_config(folder, threshold=value)
        assert "as `threshold`; wanted a number from 0 to 1" in self.refused(folder, "config.json")

    def test_no_threshold(self, folder, change_config):
        change_config(folder, threshold=...)
        assert Model.load(folder).threshold is None

    @pytest.mark.parametrize(("key", "value"), [(key, value) for key in KEYS for value in WRONG[key]])
    def test_a_wrong_value(self, key, value, folder, change_config, small_run):
        if isinstance(value, dict) and key == "network":
            value = {**small_run.network.as_dict(), **value}
        change_config(folder, **{key: value})
        self.refused(folder, "config.json", "weights.safetensors", "labels.txt")

    def test_weights_of_another_model(self, folder, tmp_path, trained):
        trained("texts", network=NetworkSettings(dim=24, hidden=(16,), dropout=0.2, seed=1)).save(
            tmp_path / "other"
        )
        shutil.copy(tmp_path / "other" / "weights.safetensors", folder)
        assert "found other content than config.json describes" in self.refused(folder, "weights.safetensors")

    def test_config_of_another_model(self, folder, tmp_path, trained):
        trained("texts", network=NetworkSettings(dim=24, hidden=(8,))).save(tmp_path / "other")
        shutil.copy(tmp_path / "other" / "config.json", folder)
        self.refused(folder, "weights.safetensors")

    @pytest.mark.parametrize("change", ["less", "more", "shape", "type"])
    def test_tensors_that_do_not_fit(self, change, folder, change_config):
        path = folder / "weights.safetensors"
        tensors = load_file(path)
        if change == "less":
            del tensors["members.0.output.bias"]
        elif change == "more":
            tensors["members.0.third.bias"] = torch.ones(3)
        elif change == "type":
            tensors["members.0.output.bias"] = tensors["members.0.output.bias"].double()
        else:
            tensors["members.0.output.bias"] = torch.ones(3)
        save_file(tensors, path)
        change_config(folder)
        assert "; wanted " in self.refused(folder, "weights.safetensors: found members.0.")

    def test_arrays_of_another_scaling(self, tmp_path, shared, change_config):
        shared("dense").save(tmp_path)
        change_config(tmp_path, scaling="l2")
        self.refused(tmp_path, "config.json")
