from __future__ import annotations

import json
import os
from typing import Any

import pytest

from circlet import files
from circlet.errors import DataError
from circlet.storage import layout
from circlet.storage.layout import (
    CARD,
    CHECKPOINT,
    HISTORY,
    LABELS,
    LARGE,
    SPOT,
    SPOTS,
    WEIGHTS,
    checked,
    checkpoint_of,
    described,
    is_checkpoint,
    read_config,
    sealed,
    verify,
)


def test_each_network_has_a_checkpoint():
    names = [checkpoint_of(member) for member in (0, 1, 11)]
    assert names == [CHECKPOINT, "checkpoint-2.safetensors", "checkpoint-12.safetensors"]
    assert all(map(is_checkpoint, names))
    others = {*layout.FILES, layout.CONFIG, layout.RUN, layout.DECIDED, layout.LOCK}
    for name in (*others, "checkpoint.json", ".checkpoint-2.safetensors", "checkpoint-x.safetensors"):
        assert not is_checkpoint(name)


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_all_files_are_listed(tmp_path, untrained):
    untrained(texts=True).save(tmp_path)
    config = read_config(tmp_path)
    assert {each["file"] for each in config["files"].values()} == {
        path.name for path in tmp_path.iterdir() if path.name not in ("config.json", CARD)
    }
    verify(tmp_path, config)


@pytest.mark.parametrize("name", [WEIGHTS, HISTORY, LABELS])
@pytest.mark.parametrize("position", [0, -1])
def test_a_flipped_bit_in_any_file(name, position, folder):
    config = read_config(folder)
    flip(folder / name, position)
    for check in (lambda: checked(folder, config, name, whole=False), lambda: verify(folder, config)):
        with pytest.raises(DataError, match=f"{name}: found other content than config.json describes"):
            check()
    size = (folder / name).stat().st_size
    with (folder / name).open("ab") as stream:
        stream.write(b"x")
    with pytest.raises(DataError, match=rf"\({size + 1:,} bytes; wanted {size:,}\); the model is damaged"):
        checked(folder, config, name)


def test_a_large_file_is_checked_at_some_places(tmp_path):
    path = tmp_path / WEIGHTS
    path.write_bytes(os.urandom(LARGE + 1))
    config = {"files": {WEIGHTS: described(path)}}
    assert set(config["files"][WEIGHTS]) == {"file", "bytes", "sha256", "spots"}
    for position in (0, SPOT - 1, (LARGE + 1 - SPOT) // (SPOTS - 1), -1):
        flip(path, position)
        with pytest.raises(DataError, match="another digest"):
            checked(tmp_path, config, WEIGHTS, whole=False)
        flip(path, position)
    flip(path, SPOT)  # between two places
    assert checked(tmp_path, config, WEIGHTS, whole=False) == path
    with pytest.raises(DataError, match="another digest"):
        checked(tmp_path, config, WEIGHTS)


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("n_labels", True, "an integer from 1 to 100,000,000"),
        ("n_labels", 10**9, "an integer from 1 to 100,000,000"),
        ("n_features", 0, "an integer >= 1"),
        ("sparse", "yes", "true or false"),
        ("calibration", [1.0], "two finite numbers below 1e.30, the first above 0"),
        ("calibration", [1e300, 0.0], "two finite numbers"),
        ("calibration", [1.0, -1e300], "two finite numbers"),
        ("calibration", [True, 1.0], "two finite numbers"),
        ("calibration", [0, 1.0], "two finite numbers"),
        ("calibration", [-1.0, 1.0], "two finite numbers"),
        ("store", "int2", "one of float32, bf16, int8, int4, deflated"),
        ("members", [], "the seed, codebook and calibration of each network"),
        ("network", None, "settings by name"),
        ("training", ..., "settings by name"),
    ],
)
def test_wrong_values(key, value, wanted, folder, change_config):
    change_config(folder, **{key: value})
    found = "nothing" if value is ... else ".*"
    with pytest.raises(DataError, match=rf"config\.json: found {found} as `{key}`; wanted {wanted}"):
        read_config(folder)


PLACES: list[Any] = [
    *(None, "labels.txt", {}, {"file": "../labels.txt"}, {"file": "labels-2.txt"}),
    {"file": "labels.txt", "bytes": -1},
]


@pytest.mark.parametrize(
    ("name", "place", "message"),
    [
        *(("labels.txt", place, ".* (as the place of|for) labels.txt; wanted") for place in PLACES),
        ("labels.txt", ..., "a list of . files; wanted labels.txt among"),
        ("notes.txt", {}, "a list of . files; wanted no notes.txt"),
    ],
)
def test_wrong_lists_of_files(name, place, message, folder):
    config = files.read_json(folder / "config.json")
    config["files"][name] = place
    if place is ...:
        del config["files"][name]
    files.write_json(folder / "config.json", sealed(config))
    with pytest.raises(DataError, match=rf"config\.json: found {message}"):
        read_config(folder)


def test_a_changed_value(folder):
    config = files.read_json(folder / "config.json")
    config["members"][0]["codebook"]["seed"] += 1  # other codes: all labels would be wrong
    files.write_json(folder / "config.json", config)
    with pytest.raises(DataError, match=r"config\.json: found other values than circlet has saved"):
        read_config(folder)


def test_other_formats(folder, change_config):
    change_config(folder, format=9, circlet="8.1")
    with pytest.raises(DataError, match=r"found format 9, written by circlet 8\.1; this is .* format 1"):
        read_config(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(DataError, match="not circlet's"):
        read_config(folder)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), r"is not a circlet model: found no config\.json in it"),
        (
            ("checkpoint.safetensors", "run.json"),
            "not a circlet model yet.*circlet train DATA --model .* --resume",
        ),
        (("checkpoint.safetensors",), "the same `fit`, resume=True"),
    ],
)
def test_no_configuration(names, message, tmp_path):
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(DataError, match=message):
        read_config(tmp_path)
