from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from circlet.errors import DataError
from circlet.folder.contents import read, read_weights
from circlet.folder.layout import read_config
from circlet.folder.tensors import STORES
from circlet.model import Model

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("members", [1, 2])
def test_everything_that_was_saved(store, members, tmp_path, untrained):
    model = untrained(members=members, texts=True)
    model.save(tmp_path, store)
    found, loaded = read(tmp_path), Model.load(tmp_path)
    assert found.label_names == model.label_names
    assert found.history == model.history
    assert found.vectorizer.feature_names() == model.vectorizer.feature_names()
    weights = {name: tensor.numpy() for name, tensor in loaded.ranker.weights().items()}
    assert found.tensors.keys() - {"features.idf"} == weights.keys()
    for name, weight in weights.items():
        np.testing.assert_array_equal(found.tensors[name].read(), weight)
        assert found.tensors[name].dtype == weight.dtype


def test_weights_stay_in_the_file(folder):
    weight = read(folder).tensors["members.0.hidden.0.weight"].read()
    assert not weight.flags.owndata
    assert not weight.flags.writeable


def test_damaged_weights(folder):
    content = (folder / "weights.safetensors").read_bytes()
    (folder / "weights.safetensors").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DataError, match=r"weights\.safetensors: found other content than config\.json describes"):
        read_weights(folder, read_config(folder))


@pytest.mark.parametrize("names", ["red\n", "red\n" * 7, "a\nb\nc\nd\ne\nf"])
def test_a_wrong_number_of_labels(names, folder, change_config):
    (folder / "labels.txt").write_text(names)
    change_config(folder)
    with pytest.raises(DataError, match=r"labels\.txt: found \d label names; wanted 6"):
        read(folder)


def test_no_history(folder, change_config):
    (folder / "history.json").write_text('[{"epoch": 1}, 2]')
    change_config(folder)
    with pytest.raises(DataError, match=r"history\.json: found no history; wanted a list with a record per epoch"):
        read(folder)


def test_nothing_here_needs_torch(folder):
    code = (
        "import sys; from pathlib import Path; from circlet.folder.compress import compress\n"
        "from circlet.folder.contents import read\n"
        "given = Path(sys.argv[1]); compress(given, given.with_name('copy'), 'bf16')\n"
        "assert read(given.with_name('copy')).config['store'] == 'bf16'\n"
        "assert not {'torch', 'sklearn'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)
