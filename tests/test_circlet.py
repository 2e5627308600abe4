"""The package's face: what is there after `import circlet`."""

from __future__ import annotations

import subprocess
import sys

import pytest

import circlet


def test_public_names_are_found_without_loading_torch():
    code = "import circlet, sys; dir(circlet); circlet.load_dataset; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert {*circlet.__all__} <= {*dir(circlet)}
    assert all(getattr(circlet, name) for name in circlet.__all__)
    with pytest.raises(AttributeError, match="module 'circlet' has no attribute 'nothing'"):
        circlet.nothing  # noqa: B018


def test_packages_are_there_after_one_import():
    code = """
import circlet, sys
assert {name for name in sys.modules if name.startswith("circlet.")} == {"circlet.threads", "circlet.version"}
circlet.errors.DataError, circlet.metrics.precision_at_k, circlet.data.load_dataset
assert "torch" not in sys.modules
circlet.algebra.circular.bind
"""
    subprocess.run([sys.executable, "-c", code], check=True)
