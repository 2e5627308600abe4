from __future__ import annotations

import os
import subprocess
import sys

import pytest

from circlet.threads import CHOICES, sleep_while_waiting

ASK = "import os, circlet; print(os.environ.get('OMP_WAIT_POLICY')); import sys; assert 'torch' not in sys.modules"


@pytest.fixture
def nothing_chosen(monkeypatch):
    for name in CHOICES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "torch")


@pytest.mark.usefixtures("nothing_chosen")
def test_threads_sleep_unless_told_otherwise(monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "set, to be restored")
    monkeypatch.delenv("OMP_WAIT_POLICY")
    sleep_while_waiting()
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"


@pytest.mark.usefixtures("nothing_chosen")
@pytest.mark.parametrize("name", CHOICES)
def test_a_users_choice_stays(name, monkeypatch):
    monkeypatch.setenv(name, "7")
    sleep_while_waiting()
    assert {choice: os.environ[choice] for choice in CHOICES if choice in os.environ} == {name: "7"}


def test_too_late_changes_nothing(monkeypatch):
    for name in CHOICES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "torch", object())
    sleep_while_waiting()
    assert not any(name in os.environ for name in CHOICES)


def test_importing_circlet_is_early_enough():
    environment = {name: value for name, value in os.environ.items() if name not in CHOICES}
    done = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "PASSIVE\n"
