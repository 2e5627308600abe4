"""The package's face: what is there after `import circlet`."""

from __future__ import annotations

import subprocess
import sys

import pytest

import circlet


def test_public_names():
    assert {*circlet.__all__} <= {*dir(circlet)}
    assert all(getattr(circlet, name) for name in circlet.__all__)
    with pytest.raises(AttributeError, match="module 'circlet' has no attribute 'nothing'"):
        circlet.nothing  # noqa: B018


def test_packages_are_there_after_one_import_and_torch_is_not_loaded():
    code = """
import circlet, sys
assert {name for name in sys.modules if name.startswith("circlet.")} == {"circlet.threads", "circlet.version"}
dir(circlet)
circlet.load_dataset, circlet.errors.DataError, circlet.metrics.precision_at_k, circlet.data.load_dataset
assert "torch" not in sys.modules
circlet.algebra.circular.bind
"""
    subprocess.run([sys.executable, "-c", code], check=True)
