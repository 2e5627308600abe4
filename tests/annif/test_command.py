"""Registration in Annif's list of backends; a stand-in for that list is all these tests need."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

import circlet.annif as command
from circlet.errors import CircletError, MissingExtraError


@pytest.fixture
def known(monkeypatch) -> dict:
    """Annif's list of backends, without Annif."""
    package: Any = ModuleType("annif")
    backends: Any = ModuleType("annif.backend")
    package.backend, backends._backend_fns = backends, {"omikuji": object}
    package.create_app = lambda config_name: ("an app", config_name, sorted(backends._backend_fns))
    monkeypatch.setitem(sys.modules, "annif", package)
    monkeypatch.setitem(sys.modules, "annif.backend", backends)
    monkeypatch.setattr(command, "require", lambda *_, **__: None)
    monkeypatch.setattr("importlib.metadata.version", lambda _: "9.0")
    return backends._backend_fns


def test_registers_beside_the_others(known):
    assert command.create_app("some.Config") == ("an app", "some.Config", ["circlet", "omikuji"])
    assert list(known) == ["omikuji", "circlet"]


def test_an_annif_that_lists_backends_elsewhere_is_named(known, monkeypatch):
    monkeypatch.delattr(sys.modules["annif.backend"], "_backend_fns")
    with pytest.raises(CircletError, match=r"found Annif 9\.0"):
        command.register()


def test_without_annif_the_command_says_what_to_install(monkeypatch, capsys):
    def missing(module, **about):
        raise MissingExtraError(module, **about)

    monkeypatch.setattr(command, "require", missing)
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "circlet-annif: circlet-annif needs annif, which is not installed: pip install 'circlet[annif]'\n"
    )


def test_the_package_imports_neither_annif_nor_torch():
    code = "import circlet.annif, sys; assert not {'annif', 'torch'} & set(sys.modules), sorted(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
