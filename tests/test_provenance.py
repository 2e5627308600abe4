from __future__ import annotations

import json
import platform
import sys

import pytest
import torch

from circlet.provenance import provenance
from circlet.version import __version__


def test_the_command_as_it_was_typed(monkeypatch):
    for words, command in (
        (["/usr/bin/circlet", "train", "my data"], "circlet train 'my data'"),
        (["/lib/circlet/__main__.py", "demo"], "circlet demo"),
        (["benchmarks/growth.py", "--quick"], "python benchmarks/growth.py --quick"),
    ):
        monkeypatch.setattr(sys, "argv", words)
        assert provenance()["command"] == command


def test_versions_and_machine():
    found = provenance(packages=("pytest", "no-such-package"))
    versions = found["versions"]
    assert versions["circlet"] == __version__
    assert versions["python"] == platform.python_version()
    assert versions["pytest"] == pytest.__version__
    assert versions["no-such-package"] is None
    assert found["machine"]["threads"] == torch.get_num_threads()
    assert found["machine"]["processor"]
    assert json.loads(json.dumps(found)) == found
