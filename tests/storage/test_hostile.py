"""Folders that claim more than they hold, or that nobody could have saved: one error, at once."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from safetensors.numpy import load_file, save_file

from circlet import files
from circlet.errors import DataError
from circlet.files import write_tensors
from circlet.model import Model
from circlet.runtime import RuntimeModel
from circlet.runtime.compression import compress
from circlet.storage.tensors import BFLOAT16, map_tensors

LOADERS = pytest.mark.parametrize("load", [RuntimeModel.load, Model.load], ids=["runtime", "torch"])
ONE_ROW = sp.csr_matrix(np.ones((1, 14), dtype=np.float32))


@pytest.fixture
def nameless(tmp_path, untrained) -> Path:
    """Of a model whose weights do not depend on the number of labels, which have no names."""
    model = untrained(loss="cosine")
    model.label_names = None
    model.save(tmp_path / "model")
    return tmp_path / "model"


def claims(**changes: Any) -> Callable[[dict[str, Any]], None]:
    def change(config: dict[str, Any]) -> None:
        for place, value in changes.items():
            part, _, name = place.partition("__")
            if part == "codebook":
                config["members"][0][part][name] = value
            elif name:
                config[part][name] = value
            else:
                config[part] = value

    return change


CLAIMS = {
    "a billion labels": (claims(n_labels=10**9, codebook__n_labels=10**9, codebook__length=10**9), "n_labels"),
    "2^62 labels": (claims(n_labels=2**62, codebook__n_labels=2**62, codebook__length=2**62), "n_labels"),
    "a long codebook": (claims(codebook__length=2**62), "codebook of length 4611686018427387904; wanted at most"),
    "a wide code": (claims(network__dim=10**8, codebook__dim=10**8, codebook__length=10**9), "found "),
    "a hundred thousand layers": (claims(network__hidden=[16] * 100_000), "wanted those of 100000 hidden layers"),
    "a wide layer": (claims(network__hidden=[10**9]), "hidden.0"),
    "many features": (claims(n_features=10**12), "found "),
    "a seed below zero": (claims(codebook__seed=-1), "seed"),
    "a seed that is no number": (claims(codebook__seed="1"), "seed"),
}


@LOADERS
@pytest.mark.parametrize("claim", CLAIMS)
def test_more_than_there_is(claim, load, nameless, change_config):
    inflict, words = CLAIMS[claim]
    config = files.read_json(nameless / "config.json")
    inflict(config)
    change_config(nameless, **config)
    with pytest.raises(DataError, match=words) as caught:
        load(nameless)
    assert str(caught.value).startswith(str(nameless))


JSON = {
    "NaN": '{"format": 1, "circlet": "0", "calibration": [NaN, 0]}',
    "infinity": '{"format": 1, "circlet": "0", "calibration": [-Infinity, 0]}',
    "a huge number": '{"format": 1, "circlet": "0", "calibration": [1e400, 0]}',
    "a long number": '{"format": 1, "circlet": "0", "n_labels": 1' + "0" * 4000 + "}",
    "a longer number": '{"format": 1, "circlet": "0", "n_labels": 1' + "0" * 10_000 + "}",
    "half a character": '{"format": 1, "circlet": "\\ud800"}',
    "deep": '{"format": 1, "circlet": ' + "[" * 500 + "]" * 500 + "}",
    "too deep": "[" * 100_000,
}


@pytest.mark.parametrize("content", JSON)
@pytest.mark.parametrize("name", ["config.json", "history.json"])
def test_json_that_is_not_read(content, name, folder, change_config):
    (folder / name).write_text(JSON[content])
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


class TestNonFinite:
    """Weights that are not finite never give labels."""

    def damage(self, folder: Path, name: str, value: float, place: Any = ...) -> None:
        path = folder / "weights.safetensors"
        tensors = load_file(path)
        tensors[name][place] = value
        save_file(tensors, path)

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize(
        ("name", "place"),
        [
            ("members.0.hidden.0.weight", (3, 2)),
            ("members.0.hidden.0.bias", 2),
            ("members.0.output.weight", (3, 2)),
            ("members.0.output.bias", 2),
            ("members.0.bias", 2),
            ("members.0.log_scale", ...),
        ],
    )
    def test_of_a_network(self, name, place, value, folder, change_config):
        self.damage(folder, name, value, place)
        change_config(folder)

        def labels(load: Any) -> Any:
            with np.errstate(all="ignore"):
                return load(folder).top_k(ONE_ROW, 3)

        with pytest.raises(DataError):
            labels(RuntimeModel.load)
        with pytest.raises(DataError, match=f"found a non-finite number in {name}"):
            labels(Model.load)

    @pytest.mark.parametrize(
        ("name", "value"), [("members.0.bias", 1e38), ("members.0.log_scale", 80), ("members.0.log_scale", -80)]
    )
    def test_scores_that_would_overflow(self, name, value, folder, change_config):
        self.damage(folder, name, value)
        change_config(folder)
        with pytest.raises(DataError, match=f"found .* in {name}"):
            RuntimeModel.load(folder)

    def test_in_fewer_bits(self, tmp_path, untrained, change_config):
        untrained().save(tmp_path, "bf16")
        path = tmp_path / "weights.safetensors"
        tensors = {name: array.copy() for name, array in map_tensors(path).items()}
        weight = tensors["members.0.hidden.0.weight"]
        assert weight.dtype == BFLOAT16
        weight.view(np.uint16)[:] = 0xFF80  # −∞, which the next layer would see as 0
        write_tensors(path, tensors)
        change_config(tmp_path)
        with np.errstate(all="ignore"), pytest.raises(DataError, match="non-finite"):
            RuntimeModel.load(tmp_path).top_k(ONE_ROW, 3)

    @LOADERS
    def test_of_the_scaling(self, load, folder, change_config):
        self.damage(folder, "features.idf", np.nan, 3)
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
