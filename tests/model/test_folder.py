from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.conftest import NAMES, F, L
from torch import nn

from circlet.errors import DataError, OutputError, ParameterError
from circlet.features.rows import Scaling
from circlet.metrics import precision_at_k
from circlet.model import Model
from circlet.network import Ensemble, Network, NetworkSettings
from circlet.runtime import RuntimeModel
from circlet.storage.tensors import STORES

CODEBOOK = {"n_labels": L, "dim": 24, "seed": 0, "length": 50}


def assert_same(one: Model, other: Model, given: Any) -> None:
    for expected, found in zip(one.top_k(given, 4), other.top_k(given, 4), strict=True):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype


class TestRoundTrip:
    """What a trained model has besides the guarantees of `tests/conformance.py`."""

    @pytest.mark.parametrize(
        ("kind", "names", "members", "extra"),
        [
            ("sparse", False, 1, []),
            ("dense", True, 2, ["labels.txt"]),
            ("texts", True, 1, ["labels.txt", "vectorizer.json", "vectorizer.safetensors"]),
            ("texts", True, 2, ["labels.txt", "vectorizer.json", "vectorizer.safetensors"]),
        ],
    )
    def test_files_in_the_folder(self, kind, names, members, extra, tmp_path, shared, documents):
        model = shared(kind, names=names, members=members)
        model.save(str(tmp_path / "new" / "one"))
        always = ["MODEL_CARD.md", "config.json", "history.json"]
        always += [f"{name}.safetensors" for name in ("remembered", "sample", "weights")]
        files = list((tmp_path / "new" / "one").iterdir())
        assert sorted(path.name for path in files) == sorted([*always, *extra])
        loaded = Model.load(str(tmp_path / "new" / "one"))
        assert_same(model, loaded, documents(kind))
        assert loaded.label_names == (NAMES if names else None)
        loaded.save(tmp_path / "two")
        for path in files:
            assert (tmp_path / "two" / path.name).read_bytes() == path.read_bytes()

    def test_over_another_model(self, tmp_path, shared, documents):
        shared("texts", members=2).save(tmp_path)
        shared("dense", names=False).save(tmp_path)
        loaded = Model.load(tmp_path)
        assert loaded.label_names is None
        assert loaded.vectorizer is None
        assert len(loaded.networks) == 1
        assert_same(shared("dense", names=False), loaded, documents("dense"))

    @pytest.mark.parametrize("members", [1, 2])
    def test_a_custom_encoder(self, members, tmp_path, trained, documents):
        make = lambda: nn.Sequential(nn.Linear(F, 16), nn.Tanh())  # noqa: E731
        model = trained("dense", encoder=make(), members=members)
        model.save(tmp_path)
        assert_same(model, Model.load(tmp_path, encoder=make()), documents("dense"))
        with pytest.raises(DataError, match="found a model with an encoder of its own"):
            Model.load(tmp_path)

    @pytest.mark.skipif(sys.platform == "win32", reason="no such permissions there")
    @pytest.mark.parametrize("store", ["float32", "int8"])
    def test_whoever_may_read_the_weights_may_read_the_rest(self, store, tmp_path, shared):
        shared("texts").save(tmp_path, store)
        assert len(list(tmp_path.iterdir())) == 9
        assert len({path.stat().st_mode for path in tmp_path.iterdir()}) == 1

    def test_a_file_in_place_of_the_folder(self, tmp_path, shared):
        (tmp_path / "model").write_text("mine")
        with pytest.raises(OutputError, match=r"cannot write .*model"):
            shared().save(tmp_path / "model")
        assert (tmp_path / "model").read_text() == "mine"


class TestMembers:
    """A model of several networks is one folder too."""

    @pytest.fixture
    def folder(self, tmp_path, shared) -> Path:
        shared(members=2).save(tmp_path / "model")
        return tmp_path / "model"

    @pytest.fixture
    def described(self, folder) -> list[dict[str, Any]]:
        members: list[dict[str, Any]] = json.loads((folder / "config.json").read_text(encoding="utf-8"))["members"]
        return members

    @pytest.mark.parametrize("member", [0, 1])
    @pytest.mark.parametrize("names", ["output.bias", ""], ids=["a tensor", "all tensors"])
    def test_tensors_of_a_member_are_missing(self, member, names, folder, change_config):
        path, prefix = folder / "weights.safetensors", f"members.{member}.{names}"
        save_file({name: each for name, each in load_file(path).items() if not name.startswith(prefix)}, path)
        change_config(folder)
        with pytest.raises(DataError, match=rf"weights\.safetensors: found {prefix}\S* of shape None; wanted"):
            Model.load(folder)

    @pytest.mark.parametrize(
        "changes",
        [
            *({"seed": -1}, {"seed": "1"}, {"calibration": [1.0]}, {"size": 3}),
            {"calibration": ..., "codebook": ...},
            *({"codebook": value} for value in (3, None, {}, {"n_labels": L}, {**CODEBOOK, "seed": -1})),
            *({"codebook": {**CODEBOOK, **value}} for value in ({"n_labels": L + 1}, {"dim": 23})),
        ],
    )
    def test_damaged_members(self, changes, folder, described, change_config):
        one, two = described
        changed = {name: value for name, value in {**two, **changes}.items() if value is not ...}
        for members in ([one, changed], [changed, two]):
            change_config(folder, members=members)
            with pytest.raises(DataError, match=r"config\.json: found (the codebook|.* as `members`; wanted)"):
                Model.load(folder)

    @pytest.mark.parametrize(
        ("change", "found"),
        [
            # fewer features than a first layer has, another length of codes, and more members than weights
            (lambda *_: {"n_features": 10**10}, r"0\.hidden\.0\.weight of shape \(14, 16\); wanted \(10000000000"),
            (
                lambda one, two: {"members": [{**one, "codebook": {**CODEBOOK, "length": 7}}, two]},
                r"0\.bias of shape .*; wanted \(7,\)",
            ),
            (lambda one, two: {"members": [one, two, {**two, "seed": 9}]}, r"2\.\S+ of shape None"),
        ],
    )
    def test_members_without_weights_that_fit(self, change, found, folder, described, change_config):
        change_config(folder, **change(*described))
        with pytest.raises(DataError, match=rf"found members\.{found}"):
            Model.load(folder)


class TestSize:
    def saved(self, n_labels: int, folder: Path, **changes: Any) -> Path:
        settings = NetworkSettings(**{"dim": 16, "hidden": (8,), "loss": "cosine", **changes})
        network = Network(settings, F, n_labels, sparse=True)
        Model(Ensemble([network]), Scaling("l2"), n_features=F, sparse=True).save(folder)
        return folder

    def grown(self, folder: Path, **changes: Any) -> tuple[int, int]:
        """By how many bytes the weights and all files grow from 1,000 to 100,000 labels."""
        folders = [self.saved(n_labels, folder / f"{n_labels}", **changes) for n_labels in (1000, 100_000)]
        weights = [(each / "weights.safetensors").stat().st_size for each in folders]
        total = [sum(path.stat().st_size for path in each.iterdir()) for each in folders]
        return weights[1] - weights[0], total[1] - total[0]

    @pytest.mark.parametrize("head", ["chrr", "chrr-half", "hrr"])
    def test_with_cosine_it_does_not_depend_on_the_labels_and_with_bce_on_their_biases_alone(self, head, tmp_path):
        weights, total = self.grown(tmp_path / "cosine", head=head)
        assert weights == 0
        assert total < 20  # digits of the number of labels
        assert self.grown(tmp_path / "bce", head=head, loss="bce")[0] <= 1.1 * 4 * 99_000


#: What a file has in place of its content; None if it is gone.
DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "gone": lambda content: None,
    "empty": lambda content: b"",
    "truncated": lambda content: content[: len(content) // 2],
    "truncated a little": lambda content: content[:-2],
    "a flipped bit near the start": lambda content: content[:3] + bytes([content[3] ^ 1]) + content[4:],
    "a flipped bit near the end": lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
    "no text": lambda content: b"\xff\xfe\x00\n" * L,
    "a list": lambda content: b"[1, 2]",
    "something else": lambda content: b'{"model_type": "bert", "hidden_size": 768}',
    "a line less": lambda content: content.partition(b"\n")[2],
    "a line more": lambda content: content + b"x\n",
}
#: Values that the keys of config.json cannot have.
WRONG: dict[str, list[Any]] = {
    "network": [
        *(None, 3, [], {"head": "lstm"}, {"depth": 3}, {"hidden": 3}, {"hidden": [13]}, {"dropout": "a"}),
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
}  # fmt: skip


def refused(folder: Path, *names: str) -> str:
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


class TestDamage:
    @pytest.fixture
    def folder(self, tmp_path, shared) -> Path:
        shared("texts").save(tmp_path / "model")
        return tmp_path / "model"

    FILES = ("config.json", "weights.safetensors", "history.json", "labels.txt")
    FILES += ("vectorizer.json", "vectorizer.safetensors")

    @pytest.mark.parametrize("damage", DAMAGES)
    @pytest.mark.parametrize("name", FILES)
    def test_of_a_file(self, name, damage, folder):
        content = DAMAGES[damage]((folder / name).read_bytes())
        (folder / name).unlink()
        if content is not None:
            (folder / name).write_bytes(content)
        refused(folder, name)

    @pytest.mark.parametrize("name", FILES)
    def test_a_folder_in_place_of_a_file(self, name, folder):
        (folder / name).unlink()
        (folder / name).mkdir()
        refused(folder, name)

    def test_no_folder(self, tmp_path):
        message = refused(tmp_path / "nowhere", "nowhere")
        assert "is not a circlet model: found no folder there" in message

    @pytest.mark.parametrize("key", [*WRONG, "format", "circlet"])
    def test_a_missing_key(self, key, folder, change_config):
        change_config(folder, **{key: ...})
        refused(folder, "config.json")

    def test_these_are_all_keys(self, folder):
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        assert sorted(config) == sorted([*WRONG, "threshold", "format", "circlet", "sha256"])

    @pytest.mark.parametrize("value", [None, "high", True, -0.1, 1.1, [0.5]])
    def test_a_wrong_threshold_or_none(self, value, folder, change_config):
        change_config(folder, threshold=value)
        assert "as `threshold`; wanted a number from 0 to 1" in refused(folder, "config.json")
        change_config(folder, threshold=...)
        assert Model.load(folder).threshold is None

    @pytest.mark.parametrize(("key", "value"), [(key, value) for key in WRONG for value in WRONG[key]])
    def test_a_wrong_value(self, key, value, folder, change_config, small_run):
        if isinstance(value, dict) and key == "network":
            value = {**small_run.network.as_dict(), **value}
        change_config(folder, **{key: value})
        refused(folder, "config.json", "weights.safetensors", "labels.txt")

    @pytest.mark.parametrize(
        ("name", "changes", "said"),
        [
            ("weights.safetensors", {"seed": 1}, "found other content than config.json describes"),
            ("config.json", {"hidden": (8,)}, "weights.safetensors"),
        ],
    )
    def test_a_file_of_another_model(self, name, changes, said, folder, tmp_path, trained):
        settings = {"dim": 24, "hidden": (16,), "dropout": 0.2, **changes}
        trained("texts", network=NetworkSettings(**settings)).save(tmp_path / "other")
        shutil.copy(tmp_path / "other" / name, folder)
        assert said in refused(folder, "weights.safetensors")

    @pytest.mark.parametrize(
        ("name", "tensor", "words"),
        [
            ("output.bias", None, r"output\.bias of shape None; wanted \("),
            ("third.bias", torch.ones(3), r"third\.bias of shape \(3,\); wanted None"),
            ("output.bias", torch.ones(3), r"output\.bias of shape \(3,\); wanted \("),
            ("output.bias", torch.ones(48).double(), r"output\.bias in float64; wanted float32"),
        ],
    )
    def test_tensors_that_do_not_fit(self, name, tensor, words, folder, change_config):
        path = folder / "weights.safetensors"
        tensors = {**load_file(path), f"members.0.{name}": tensor}
        save_file({each: tensor for each, tensor in tensors.items() if tensor is not None}, path)
        change_config(folder)
        message = refused(folder, "weights.safetensors")
        assert re.search(rf"weights\.safetensors: found members\.0\.{words}", message), message

    def test_arrays_of_another_scaling(self, tmp_path, shared, change_config):
        shared("dense").save(tmp_path)
        change_config(tmp_path, scaling="l2")
        refused(tmp_path, "config.json")


class TestStores:
    """Weights in fewer bits, from saving to suggestions."""

    def test_an_unknown_store(self, tmp_path, shared):
        with pytest.raises(ParameterError, match="`store`: found 'int2'; wanted one of float32, bf16, int8, int4"):
            shared().save(tmp_path / "m", "int2")
        assert not (tmp_path / "m").exists()

    @pytest.mark.parametrize(("store", "share", "near"), [("bf16", 0.5, 0.03), ("int8", 0.25, 0.05)])
    def test_smaller_and_nearly_the_same(self, store, share, near, tmp_path, synthetic, on_synthetic):
        on_synthetic().save(tmp_path / "whole")
        on_synthetic().save(tmp_path / store, store)
        sizes = [(tmp_path / name / "weights.safetensors").stat().st_size for name in ("whole", store)]
        assert sizes[1] / sizes[0] == pytest.approx(share, rel=0.12)  # of 64 columns, 4 bytes more a row
        loaded = Model.load(tmp_path / store)
        assert {tensor.dtype for tensor in loaded.network.state_dict().values()} == {torch.float32}
        ids, scores = on_synthetic().top_k(synthetic.test.X, 5)
        found, close = loaded.top_k(synthetic.test.X, 5)
        off = np.abs(close[:, 0] - scores[:, 0])
        assert off.mean() < near
        assert off.max() < 20 * near
        expected, measured = (precision_at_k(synthetic.test.Y, ranked, k=(1, 5)) for ranked in (ids, found))
        assert expected[1] > 0.8
        assert abs(measured[1] - expected[1]) <= 0.01
        assert abs(measured[5] - expected[5]) <= 0.01

    def test_a_model_that_cannot_be_rounded_leaves_the_folder_alone(self, tmp_path, on_synthetic):
        on_synthetic().save(tmp_path)
        before = (tmp_path / "weights.safetensors").read_bytes()
        broken = Model.load(tmp_path)
        with torch.no_grad():
            broken.network.head.output.weight[3, 4] = float("nan")
        with pytest.raises(DataError, match=r"found nan at row 3, column 4 of members\.0\.output\.weight"):
            broken.save(tmp_path, "int8")
        assert (tmp_path / "weights.safetensors").read_bytes() == before
        Model.load(tmp_path)


W, S = "members.0.output.weight", "scales.members.0.output.weight"
SCALES: dict[str, tuple[Any, list[str]]] = {
    "no scales": (lambda t: t.pop(S), [W, "in int8", "wanted float32"]),
    "scales of nothing": (lambda t: t.pop(W), [S, "without", W]),
    "too few scales": (lambda t: t.update({S: t[S][1:]}), ["(255,)", W, "256 rows"]),
    "a table of scales": (lambda t: t.update({S: t[S][:, None]}), ["(256, 1)", W, "256 rows"]),
    "scales in bf16": (lambda t: t.update({S: t[S].bfloat16()}), ["bfloat16", W, "float32"]),
    "scales that are infinite": (lambda t: t[S].__setitem__(5, torch.inf), ["the scale inf", "row 5", W]),
    "scales that overflow": (lambda t: t[S].__setitem__(5, 1e37), ["the scale 9.99", "row 5", W]),
    "scales that are nothing": (lambda t: t[S].__setitem__(6, torch.nan), ["the scale nan", "row 6", W]),
    "scales below zero": (lambda t: t[S].__setitem__(7, -1), ["the scale -1.0", "row 7", "at least"]),
    "scales of zero": (lambda t: t[S].__setitem__(7, 0), ["the scale 0.0", "row 7", "at least 1.18e-38"]),
    "a matrix in float32": (lambda t: t.update({W: t[W].float()}), [W, "in float32", "wanted int8"]),
    "a matrix in bf16": (lambda t: t.update({W: t[W].bfloat16()}), [W, "bfloat16", "wanted a matrix in int8"]),
    "a flat matrix": (lambda t: t.update({W: t[W].flatten()}), [W, "wanted a matrix in int8"]),
}


class TestDamagedStores:
    @pytest.mark.parametrize("damage", SCALES)
    def test_of_scales(self, damage, tmp_path, change_config, on_synthetic):
        on_synthetic().save(tmp_path, "int8")
        path = tmp_path / "weights.safetensors"
        tensors = load_file(path)
        inflict, words = SCALES[damage]
        inflict(tensors)
        save_file(tensors, path)
        change_config(tmp_path)
        message = refused(tmp_path, "weights.safetensors")
        assert all(word in message for word in words)

    @pytest.mark.parametrize(("store", "said"), list(permutations(STORES, 2)))
    def test_a_config_that_says_otherwise(self, store, said, tmp_path, change_config, on_synthetic):
        on_synthetic().save(tmp_path, store)
        change_config(tmp_path, store=said)
        assert "wanted" in refused(tmp_path, "weights.safetensors")
