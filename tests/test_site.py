"""The documentation's site: every public name has a reference, and every page can be found."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="not a source checkout")

PACKAGES = (
    "circlet",
    "circlet.algebra",
    "circlet.algebra.circular",
    "circlet.algebra.holographic",
    "circlet.codebooks",
    "circlet.data",
    "circlet.estimator",
    "circlet.features",
    "circlet.metrics",
    "circlet.model",
    "circlet.runtime",
    "circlet.settings",
    "circlet.training",
    "circlet.tuning",
)


def referenced() -> set[str]:
    """What reference pages describe."""
    pages = sorted((DOCS / "reference").glob("*.md"))
    return {name for page in pages for name in re.findall(r"^::: (\S+)$", page.read_text("utf-8"), re.MULTILINE)}


def resolve(dotted: str) -> Any:
    """The module of this name, or else what a module calls so."""
    try:
        return import_module(dotted)
    except ModuleNotFoundError:
        home, _, name = dotted.rpartition(".")
        return getattr(import_module(home), name)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_has_a_reference(package):
    described = referenced()
    modules = {name for name in described if isinstance(resolve(name), ModuleType)}
    objects = [resolve(name) for name in described - modules]
    missing = []
    for name in import_module(package).__all__:
        value, dotted = resolve(f"{package}.{name}"), f"{package}.{name}"
        if isinstance(value, ModuleType):
            found = any(f"{each}.".startswith(f"{dotted}.") for each in described)
        else:
            found = bool({package, dotted} & described) or any(value is each for each in objects if callable(each))
        if not found:
            missing.append(name)
    assert not missing


def test_the_check_finds_what_is_missing():
    assert "circlet.data.load_dataset" in referenced()
    assert "circlet.data.nothing" not in referenced()
    with pytest.raises(AttributeError):
        resolve("circlet.data.nothing")


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    pages = [path.relative_to(ROOT).as_posix() for path in DOCS.rglob("*.md")]
    assert [page for page in pages if f": {page}\n" not in navigation] == []
    for page in re.findall(r": (\S+\.md)$", navigation, re.MULTILINE):
        assert (ROOT / page).is_file(), page


@pytest.mark.parametrize("page", ["tutorial.md", "ideas.md", "guides"])
def test_links_lead_somewhere(page):
    pages = sorted((DOCS / page).glob("*.md")) if (DOCS / page).is_dir() else [DOCS / page]
    for path in pages:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
            assert target.startswith("http") or (path.parent / target).exists(), (path.name, target)
