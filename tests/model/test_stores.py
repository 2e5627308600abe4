"""Models whose weights are stored in fewer bits, from saving to suggestions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from circlet import CircletClassifier
from circlet.errors import DataError, ParameterError
from circlet.folder.layout import read_config
from circlet.folder.tensors import STORES
from circlet.metrics import precision_at_k
from circlet.model import Model
from circlet.runtime import RuntimeModel

pytestmark = pytest.mark.usefixtures("one_thread")


class TestModel:
    def test_an_unknown_store(self, tmp_path, on_synthetic):
        with pytest.raises(ParameterError, match="`store` must be one of float32, bf16, int8, int4, got 'int2'"):
            on_synthetic().save(tmp_path / "m", "int2")
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

    @pytest.mark.parametrize("store", STORES)
    def test_loading_and_saving_again_changes_nothing(self, store, tmp_path, on_synthetic):
        on_synthetic().save(tmp_path / "0", store)
        for turn in range(2):
            Model.load(tmp_path / f"{turn}").save(tmp_path / f"{turn + 1}", store)
        for path in (tmp_path / "0").iterdir():
            assert (tmp_path / "2" / path.name).read_bytes() == path.read_bytes()

    def test_weights_are_not_rounded_again(self, tmp_path, on_synthetic):
        on_synthetic().save(tmp_path / "small", "int8")
        Model.load(tmp_path / "small").save(tmp_path / "large")
        assert read_config(tmp_path / "large")["store"] == "float32"
        small, large = (Model.load(tmp_path / name).network.state_dict() for name in ("small", "large"))
        assert all(torch.equal(small[name], large[name]) for name in small)

    @pytest.mark.parametrize("head", ["fc", "chrr-half"])
    def test_other_heads(self, head, tmp_path, synthetic, on_synthetic):
        model = on_synthetic(head=head)
        model.save(tmp_path, "int8")
        ids, _ = Model.load(tmp_path).top_k(synthetic.test.X, 1)
        assert (ids == model.top_k(synthetic.test.X, 1)[0]).mean() > 0.97

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
DAMAGES: dict[str, tuple[Any, list[str]]] = {
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


class TestDamage:
    def refused(self, folder: Path, *words: str) -> None:
        for load in (Model.load, RuntimeModel.load):
            with pytest.raises(DataError) as caught:
                load(folder)
            message = str(caught.value)
            assert message.startswith(str(folder / "weights.safetensors"))
            for word in ("found", *words):
                assert word in message

    @pytest.mark.parametrize("damage", DAMAGES)
    def test_of_scales(self, damage, tmp_path, change_config, on_synthetic):
        on_synthetic().save(tmp_path, "int8")
        path = tmp_path / "weights.safetensors"
        tensors = load_file(path)
        inflict, words = DAMAGES[damage]
        inflict(tensors)
        save_file(tensors, path)
        change_config(tmp_path)
        self.refused(tmp_path, *words)

    @pytest.mark.parametrize("store", STORES)
    @pytest.mark.parametrize("said", STORES)
    def test_a_config_that_says_otherwise(self, store, said, tmp_path, change_config, on_synthetic):
        if store == said:
            return
        on_synthetic().save(tmp_path, store)
        change_config(tmp_path, store=said)
        self.refused(tmp_path, "wanted")


@pytest.fixture(scope="module")
def classifier(synthetic) -> CircletClassifier:
    return CircletClassifier(dim=64, hidden=(32,), epochs=5, lr=0.01, device="cpu", random_state=0).fit(
        synthetic.train.X, synthetic.train.Y
    )


class TestEstimator:
    @pytest.mark.parametrize("store", STORES)
    def test_saved(self, store, classifier, tmp_path, synthetic):
        classifier.save(tmp_path, store=store)
        assert read_config(tmp_path)["store"] == store
        found = CircletClassifier.load(tmp_path).suggest(synthetic.test.X, k=1)[0]
        assert (found == classifier.suggest(synthetic.test.X, k=1)[0]).mean() > (0.9 if store == "int4" else 0.95)
