from __future__ import annotations

import os
from pathlib import Path

import pytest

from circlet.errors import DataError
from circlet.folder.layout import (
    CARD,
    HISTORY,
    LABELS,
    LARGE,
    SPOT,
    SPOTS,
    WEIGHTS,
    checked,
    described,
    located,
    read_config,
    verify,
)


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


@pytest.mark.parametrize("name", [WEIGHTS, LABELS])
def test_another_size(name, folder):
    size = (folder / name).stat().st_size
    with (folder / name).open("ab") as stream:
        stream.write(b"x")
    with pytest.raises(DataError, match=rf"\({size + 1:,} bytes; wanted {size:,}\); the model is damaged"):
        checked(folder, read_config(folder), name)


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


def test_names():
    config = {"files": {LABELS: {"file": "labels-3.txt.gz"}}}
    assert located(Path("m"), config, LABELS) == Path("m", "labels-3.txt.gz")
