"""The documentation's site: every public name has a reference, and every page can be found."""

from __future__ import annotations

import ast
import base64
import inspect
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="not a source checkout")

PAGES = [
    *("README.md", "CONTRIBUTING.md", "SECURITY.md", "experiments/README.md", "benchmarks/README.md"),
    *sorted(path.relative_to(ROOT).as_posix() for path in DOCS.rglob("*.md")),
]
#: Modules with public names, by what follows `circlet.`.
NAMED = """
algebra algebra.circular algebra.holographic annif bulk codebooks data estimator features metrics model network
runtime serve.feedback settings training tuning
"""
PACKAGES = ("circlet", *(f"circlet.{name}" for name in NAMED.split()))
#: Packages whose names nobody but circlet itself uses.
INTERNAL = {"circlet.kernels", "circlet.scoring"}


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


def test_every_package_with_public_names_is_checked():
    packages = [path.parent.name for path in (ROOT / "src/circlet").glob("*/__init__.py")]
    named = {f"circlet.{name}" for name in packages if hasattr(import_module(f"circlet.{name}"), "__all__")}
    assert "circlet.bulk" in named
    assert named <= {*PACKAGES, *INTERNAL}
    assert "circlet.data.load_dataset" in referenced()
    assert "circlet.data.nothing" not in referenced()
    with pytest.raises(AttributeError):
        resolve("circlet.data.nothing")


def docstrings() -> dict[str, str]:
    """Of everything that reference pages describe, the methods of its classes included."""
    found: dict[str, str] = {}
    for dotted in referenced():
        value = resolve(dotted)
        inner = getattr(value, "__all__", None) or (vars(value) if isinstance(value, type) else ())
        within = {f"{dotted}.{name}": getattr(value, name) for name in inner if not name.startswith("_")}
        found |= {name: inspect.getdoc(each) or "" for name, each in {dotted: value, **within}.items()}
    return found


def test_each_parameter_has_an_entry_of_its_own():
    """The site gives several parameters in one entry the default of the first."""
    documented = 0
    for name, text in docstrings().items():
        section = re.search(r"^Parameters\n-+\n(.*?)(?=^\S+\n-+$|\Z)", text, re.DOTALL | re.MULTILINE)
        entries = re.findall(r"^\S.*$", section[1], re.MULTILINE) if section else []
        documented += len(entries)
        assert [entry for entry in entries if "," in entry.partition(" :")[0]] == [], name
    assert documented > 150


def test_defaults_of_the_classifier_are_documented():
    (text,) = re.findall(
        r"^Parameters\n-+\n(.*?)^Attributes\n", docstrings()["circlet.CircletClassifier"], re.S | re.M
    )
    entries = dict(re.findall(r"^(\w+) : (.*)$", text, re.MULTILINE))
    parameters = {
        name: each.default
        for name, each in inspect.signature(resolve("circlet.CircletClassifier")).parameters.items()
    }
    assert set(entries) == set(parameters)
    for name, entry in entries.items():
        choices = re.match(r"{(.*?)[,}]", entry)
        shown = choices[1] if choices else entry.rpartition("default=")[2]
        assert ast.literal_eval(shown) == parameters[name], entry


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    pages = [path.relative_to(ROOT).as_posix() for path in DOCS.rglob("*.md")]
    notebooks = [path.relative_to(ROOT).with_suffix(".md").as_posix() for path in DOCS.rglob("*.ipynb")]
    assert notebooks
    assert [page for page in pages + notebooks if f": {page}\n" not in navigation] == []
    for page in re.findall(r": (\S+\.md)$", navigation, re.MULTILINE):
        assert page in notebooks or (ROOT / page).is_file(), page


def test_a_notebook_becomes_a_page(script):
    picture = {"image/png": base64.b64encode(b"dots").decode(), "text/plain": ["<Figure>"]}
    outputs = [
        {"output_type": "stream", "text": ["1\n"]},
        {"output_type": "display_data", "data": picture},
        {"output_type": "execute_result", "data": {"text/plain": ["'```'"]}},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "More"]},
        {"cell_type": "code", "source": ["print(1)\n", "f()"], "outputs": outputs},
        {"cell_type": "code", "source": ["g()"], "outputs": []},
    ]
    page, files = script("docs/gather.py").as_page({"cells": cells}, "play")
    assert page.split("\n\n") == [
        "# Title\nMore",
        "```python\nprint(1)\nf()\n```",
        "```text\n1\n```",
        "![What the code above draws](play-1.png)",
        "````text\n'```'\n````",
        "```python\ng()\n```\n",
    ]
    assert files == {"play-1.png": b"dots"}


def test_the_site_gathers_notebooks_and_no_link_leads_to_their_files(script, tmp_path):
    script("docs/gather.py").gather(tmp_path)
    notebooks = sorted((tmp_path / "docs/notebooks").glob("*.ipynb"))
    assert notebooks
    for notebook in notebooks:
        text = notebook.with_suffix(".md").read_text(encoding="utf-8")
        assert text.startswith(f"# {notebook.stem[:3].capitalize()}")
        assert text.count(f"({notebook.name})") == 1  # to download it
        for target in re.findall(r"\]\(([^):#]+)", text):
            assert (notebook.parent / target).exists(), target
    assert "(notebooks/tag-your-own-documents.md)" in (tmp_path / "docs/tutorial.md").read_text(encoding="utf-8")


def test_the_site_needs_no_other_server():
    """Diagrams in Mermaid's language would load a script; pictures with fonts or links to elsewhere would, too."""
    for page in [ROOT / "mkdocs.yml", *ROOT.glob("*.md"), *DOCS.rglob("*.md")]:
        assert "```mermaid" not in page.read_text(encoding="utf-8"), page
    for picture in DOCS.rglob("*.svg"):
        text = picture.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, picture
        assert "<title" in text, picture


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
        assert target.startswith(("http", "mailto:")) or (path.parent / target).exists(), target
