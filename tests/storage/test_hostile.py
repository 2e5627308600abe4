"""Folders that claim more than they hold, or that nobody could have saved: one error, at once."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from circlet import files
from circlet.errors import DataError
from circlet.model import Model
from circlet.runtime import RuntimeModel
from circlet.runtime.compression import compress
from circlet.storage.layout import WEIGHTS
from circlet.storage.tensors import BFLOAT16

LOADERS = pytest.mark.parametrize("load", [RuntimeModel.load, Model.load], ids=["runtime", "torch"])
ONE_ROW = sp.csr_matrix(np.ones((1, 14), dtype=np.float32))


@pytest.fixture
def nameless(tmp_path, untrained) -> Path:
    """Of a model whose weights do not depend on the number of labels, which have no names."""
    model = untrained(loss="cosine")
    model.label_names = None
    model.save(tmp_path / "model")
    return tmp_path / "model"


CLAIMS: dict[str, tuple[dict[str, Any], str]] = {
    "a billion labels": ({"n_labels": 10**9, "codebook": {"n_labels": 10**9, "length": 10**9}}, "n_labels"),
    "2^62 labels": ({"n_labels": 2**62, "codebook": {"n_labels": 2**62, "length": 2**62}}, "n_labels"),
    "a long codebook": ({"codebook": {"length": 2**62}}, "codebook of length 4611686018427387904; wanted at most"),
    "a wide code": ({"network": {"dim": 10**8}, "codebook": {"dim": 10**8, "length": 10**9}}, "found "),
    "many layers": ({"network": {"hidden": [16] * 100_000}}, "wanted those of 100000 hidden layers"),
    "a wide layer": ({"network": {"hidden": [10**9]}}, "hidden.0"),
    "many features": ({"n_features": 10**12}, "found "),
    "a seed below zero": ({"codebook": {"seed": -1}}, "seed"),
    "a seed that is no number": ({"codebook": {"seed": "1"}}, "seed"),
}


@LOADERS
@pytest.mark.parametrize("claim", CLAIMS)
def test_more_than_there_is(claim, load, nameless, change_config):
    claims, words = CLAIMS[claim]
    config = files.read_json(nameless / "config.json")
    config["members"][0]["codebook"] |= claims.get("codebook", {})
    config["network"] |= claims.get("network", {})
    config |= {name: value for name, value in claims.items() if name.startswith("n_")}
    change_config(nameless, **config)
    with pytest.raises(DataError, match=words) as caught:
        load(nameless)
    assert str(caught.value).startswith(str(nameless))


# `tests/test_files.py` has more of them.
@pytest.mark.parametrize("content", ['{"a": [NaN, 0]}', '{"a": 1' + "0" * 10_000 + "}", "[" * 100_000])
@pytest.mark.parametrize("name", ["config.json", "history.json"])
def test_json_that_is_not_read(content, name, folder, change_config):
    (folder / name).write_text(content)
    if name != "config.json":
        change_config(folder)
    with pytest.raises(DataError, match=f"{name}: found no readable JSON") as caught:
        RuntimeModel.load(folder)
    assert len(str(caught.value)) < 400


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes there")
@pytest.mark.parametrize("name", ["config.json", "weights.safetensors", "labels.txt", "history.json"])
def test_a_pipe_in_place_of_a_file(name, folder):
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(DataError, match="config.json" if name == "config.json" else f"{name}: .*a pipe"):
        RuntimeModel.load(folder)
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    with pytest.raises(DataError, match=name):
        RuntimeModel.load(folder)


def test_links_to_files_are_followed(folder, tmp_path, state):
    before = state(folder)
    (folder / "labels.txt").rename(tmp_path / "elsewhere.txt")
    (folder / "labels.txt").symlink_to(tmp_path / "elsewhere.txt")
    assert state(folder) == before
    (folder / "secrets.txt").symlink_to("/etc/hostname")
    compress(folder, tmp_path / "copy", "float32")
    assert state(tmp_path / "copy") == before
    assert not [path for path in (tmp_path / "copy").iterdir() if path.is_symlink() or "secret" in path.name]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "name", ["hidden.0.weight", "hidden.0.bias", "output.weight", "output.bias", "bias", "log_scale"]
)
def test_weights_that_are_not_finite_never_give_labels(name, value, folder, change_tensors, change_config):
    name = f"members.0.{name}"
    change_tensors(folder / WEIGHTS, lambda tensors: tensors[name].reshape(-1).__setitem__(slice(3), value))
    change_config(folder)
    with pytest.raises(DataError), np.errstate(all="ignore"):
        RuntimeModel.load(folder).top_k(ONE_ROW, 3)
    with pytest.raises(DataError, match=f"found a non-finite number in {name}"):
        Model.load(folder)


@pytest.mark.parametrize(
    ("name", "value"), [("members.0.bias", 1e38), ("members.0.log_scale", 80), ("members.0.log_scale", -80)]
)
def test_scores_that_would_overflow(name, value, folder, change_tensors, change_config):
    change_tensors(folder / WEIGHTS, lambda tensors: tensors[name].fill(value))
    change_config(folder)
    with pytest.raises(DataError, match=f"found .* in {name}"):
        RuntimeModel.load(folder)


def test_infinity_in_fewer_bits(tmp_path, untrained, change_tensors, change_config):
    def inflict(tensors: dict[str, Any]) -> None:
        weight = tensors["members.0.hidden.0.weight"]
        assert weight.dtype == BFLOAT16
        weight.view(np.uint16)[:] = 0xFF80  # −∞, which the next layer would see as 0

    untrained().save(tmp_path, "bf16")
    change_tensors(tmp_path / WEIGHTS, inflict)
    change_config(tmp_path)
    with np.errstate(all="ignore"), pytest.raises(DataError, match="non-finite"):
        RuntimeModel.load(tmp_path).top_k(ONE_ROW, 3)


@LOADERS
def test_a_scaling_that_is_not_finite(load, folder, change_tensors, change_config):
    change_tensors(folder / WEIGHTS, lambda tensors: tensors["features.idf"].__setitem__(3, np.nan))
    change_config(folder)
    with pytest.raises(DataError, match=r"found the arrays .* all finite"):
        load(folder)


def test_a_gzipped_file_that_unpacks_to_more_than_anybody_saved(tmp_path, untrained, change_config):
    untrained().save(tmp_path)
    (tmp_path / "labels.txt.gz").write_bytes(gzip.compress(b"a" * 10_000_000))
    config = files.read_json(tmp_path / "config.json")
    config["files"]["labels.txt"]["file"] = "labels.txt.gz"
    change_config(tmp_path, files=config["files"])
    with pytest.raises(DataError, match=r"labels\.txt\.gz: found "):
        RuntimeModel.load(tmp_path)
