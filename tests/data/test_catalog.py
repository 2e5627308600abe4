"""The catalog of named datasets: where they are kept, and names that it does not know."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from circlet.data import Dataset, Split, catalog, load_dataset
from circlet.errors import DataError


def test_not_fetched_yet(monkeypatch, tmp_path):
    monkeypatch.setenv("CIRCLET_DATA", str(tmp_path))
    with pytest.raises(DataError, match="circlet datasets fetch eurlex-4k"):
        load_dataset("eurlex-4k")


@pytest.mark.parametrize(("name", "near"), [("eurlex", "eurlex-4k"), ("Wiki10", "wiki10-31k")])
def test_a_name_near_a_known_one(name, near):
    with pytest.raises(DataError, match=rf"called '{name}'; did you mean {near}\?$"):
        load_dataset(name)


@pytest.mark.parametrize("name", ["nothere.jsonl", "fox fur", "a fox and its fur " * 500])
def test_unknown_name(name):
    with pytest.raises(DataError) as caught:
        load_dataset(name)
    message = str(caught.value)
    assert message.startswith(f"found no file, folder or dataset called '{name[:60]}")
    assert message.endswith("`circlet train --help` describes, or a name from `circlet datasets list`")
    assert len(message) < 220


def test_folder_of_the_platform(monkeypatch):
    monkeypatch.delenv("CIRCLET_DATA", raising=False)
    assert "circlet" in str(catalog.data_folder())


def test_every_entry_is_complete():
    for name, known in catalog.ENTRIES.items():
        assert catalog.entry(name) is known
        assert known.title
        if known.sdist is not None:
            assert len(known.sdist.sha256) == 64
        elif name != "pydocs":
            assert name in catalog.where_to_get(name)


def test_numbers_are_compared_with_the_published_ones():
    dataset = Dataset("toy", Split(sp.identity(3, dtype=np.float32, format="csr"), sp.csr_matrix(np.eye(3))))
    found = dataset.statistics()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(catalog.ENTRIES, "toy", catalog.Entry("Toy", train_points=3, features=3, labels=3))
        catalog.verify("toy", found)
        patch.setitem(catalog.ENTRIES, "toy", catalog.Entry("Toy", train_points=3, features=4, labels=3))
        with pytest.raises(DataError, match="toy: found 3 features; the published set has 4"):
            catalog.verify("toy", found)
