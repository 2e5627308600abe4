"""Imports point one way: no cycles among modules or packages, with type hints and lazy imports counted too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import circlet

SOURCE = Path(circlet.__file__).parent
#: Each package may import those before it, and `circlet.*` modules at the top.
ORDER = """
algebra kernels scoring codebooks data settings features metrics storage runtime bulk export
network training model estimator tuning annif serve cli
"""
LAYERS = tuple(ORDER.split())


def name_of(path: Path) -> str:
    parts = ("circlet", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(SOURCE.rglob("*.py"))}


def imported(path: Path) -> Iterator[str]:
    """The modules that a file imports anywhere in it: a name that is no module stands for the module it is in."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name in MODULES:
                yield name
            elif name.rpartition(".")[0] in MODULES:
                yield name.rpartition(".")[0]


IMPORTS = {name: set(imported(path)) - {name} for name, path in MODULES.items()}


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    """Some cycle of a graph; empty if there is none."""
    done: set[str] = set()

    def search(node: str, trail: list[str]) -> list[str]:
        if node in trail:
            return [*trail[trail.index(node) :], node]
        if node in done:
            return []
        for other in sorted(graph.get(node, ())):
            if found := search(other, [*trail, node]):
                return found
        done.add(node)
        return []

    return next((found for node in sorted(graph) if (found := search(node, []))), [])


def package_of(module: str) -> str | None:
    part = module.split(".")[1] if "." in module else ""
    return part if part in LAYERS else None


def test_nothing_knows_the_paper():
    """Only tables of commands and of encoders name it; what they name is imported when it is asked for."""
    found = {name for name, path in MODULES.items() if "circlet_paper" in path.read_text(encoding="utf-8")}
    assert found == {"circlet.cli", "circlet.encoders"}
    for name in found:
        tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
        imports = [each for each in ast.walk(tree) if isinstance(each, (ast.Import, ast.ImportFrom))]
        assert not any("circlet_paper" in ast.dump(each) for each in imports)


#: What the paper's package may import of circlet: modules whose names others may use, too.
NAMES = """
algebra.circular algebra.holographic checks cli cli.console codebooks data data.catalog data.matrices encoders
errors features features.embed features.vectorizer files hashing identity metrics metrics.evaluation model network
provenance report runtime settings settings.auto settings.network training
"""
PUBLIC = {f"circlet.{name}" for name in NAMES.split()}


def test_the_paper_uses_public_names_only():
    used: set[str] = set()
    for path in sorted((SOURCE.parent / "circlet_paper").rglob("*.py")):
        used.update(imported(path))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module in PUBLIC:
                names = {alias.name for alias in node.names if f"{node.module}.{alias.name}" not in MODULES}
                listed = getattr(import_module(node.module), "__all__", names)
                assert names <= {name for name in listed if not name.startswith("_")}, path
    assert used == PUBLIC


def test_reads_every_kind_of_import(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        "import circlet.files\nfrom circlet import errors\nfrom circlet.data import Dataset\n"
        "if TYPE_CHECKING:\n    from circlet.model.model import Model\ndef f():\n    import circlet.report\n"
    )
    wanted = "files", "errors", "data", "model.model", "report"
    assert set(imported(path)) == {f"circlet.{name}" for name in wanted}


def test_no_cycle_among_modules():
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert cycle_in({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
    assert cycle_in(IMPORTS) == []


def test_packages_import_only_those_below_them():
    assert {path.parent.name for path in SOURCE.glob("*/__init__.py")} == set(LAYERS)
    for module, others in IMPORTS.items():
        package = package_of(module)
        for other in others:
            below = package_of(other)
            if package and below:
                assert LAYERS.index(below) <= LAYERS.index(package), f"{module} imports {other}"


#: Modules of such packages that need torch.
WITH_TORCH = ("circlet.codebooks.fourier", "circlet.features.embed", "circlet.scoring.tensors")


TORCHLESS = "scoring codebooks settings data features metrics storage runtime bulk export serve"


@pytest.mark.parametrize("package", TORCHLESS.split())
def test_what_needs_no_torch_names_none(package):
    for module, path in MODULES.items():
        if package_of(module) == package and module not in WITH_TORCH:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            top = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
            names = [getattr(node, "module", None) or node.names[0].name for node in top]
            assert not any(name.partition(".")[0] == "torch" for name in names), module
