from __future__ import annotations

import os
import subprocess
import sys

import pytest

from circlet.threads import CHOICES, spin_briefly

ASK = "import os, circlet; print(os.environ.get('GOMP_SPINCOUNT')); import sys; assert 'torch' not in sys.modules"


@pytest.fixture
def nothing_chosen(monkeypatch):
    for name in CHOICES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "torch")


@pytest.mark.usefixtures("nothing_chosen")
def test_threads_spin_briefly_unless_told_otherwise(monkeypatch):
    monkeypatch.setenv("GOMP_SPINCOUNT", "set, to be restored")
    monkeypatch.delenv("GOMP_SPINCOUNT")
    spin_briefly()
    assert os.environ["GOMP_SPINCOUNT"] == "1000"


@pytest.mark.usefixtures("nothing_chosen")
@pytest.mark.parametrize("name", CHOICES)
def test_a_users_choice_stays(name, monkeypatch):
    monkeypatch.setenv(name, "7")
    spin_briefly()
    assert {choice: os.environ[choice] for choice in CHOICES if choice in os.environ} == {name: "7"}


def test_too_late_changes_nothing(monkeypatch):
    for name in CHOICES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "torch", object())
    spin_briefly()
    assert not any(name in os.environ for name in CHOICES)


def test_importing_circlet_is_early_enough():
    environment = {name: value for name, value in os.environ.items() if name not in CHOICES}
    done = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "1000\n"
