"""`pydocs`, the built-in dataset: Python's own documentation, tagged by its source.

A document is the docstring of one public function, method or class of the standard library, numpy, scipy or
scikit-learn, as installed. The sources are parsed with `ast`; nothing is imported or run. A document's labels are

- ``package: scipy`` (``package: python`` for the standard library),
- ``module: scipy.sparse`` and ``module: scipy.sparse.linalg``: every level, down to the first private one,
- ``kind: function``, ``kind: method`` or ``kind: class``,
- ``takes: axis``: one for every parameter, those of `__init__` for a class.

A whole docstring would reveal its labels: numpydoc lists the parameters, and examples import the module. So the
text is only the docstring's prose, without name and signature, examples, and the sections that list parameters,
attributes or methods.

The documents depend on the installed versions, which `pydocs.json` records. The same versions always give the same
documents in the same order, and the same split: a hash of the qualified name puts one fifth into the test set.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import importlib.util
import json
import logging
import os
import platform
import re
import sysconfig
import tokenize
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate, takewhile, zip_longest
from pathlib import Path
from typing import Any

from circlet.errors import DataError
from circlet.files import prepare_folder, read_bytes, write_bytes, write_json

logger = logging.getLogger(__name__)

#: The name of the standard library among the packages.
STDLIB = "python"
#: Import names of the packages besides the standard library, and their distributions, which have the versions.
PACKAGES = {"numpy": "numpy", "scipy": "scipy", "sklearn": "scikit-learn"}

#: Not documentation of the package: tests, build scripts, vendored code, and programs.
_SKIPPED = frozenset(
    {"test", "tests", "conftest", "setup", "distutils", "site-packages", "dist-packages", "__pycache__"}
    | {"externals", "array_api_compat", "array_api_extra", "cobyqa", "pyprima", "_uarray"}
    | {"idlelib", "lib2to3", "turtledemo", "pydoc_data"}
)
#: Headings of sections that reveal the labels; numpydoc underlines them, Google's style adds a colon.
_GIVEAWAYS = frozenset(
    {"parameters", "other parameters", "args", "arguments", "keyword arguments"}
    | {"attributes", "methods", "example", "examples"}
)
_UNDERLINE = re.compile(r"\s*(-{3,}|={3,})\s*$")
_FIELD = re.compile(r"\s*:(param|parameter|arg|argument|key|keyword|type|ivar|cvar|var)\b[^:]*:")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class PyDoc:
    """One document: qualified name, text, and labels (package, modules, kind, parameters, in that order)."""

    name: str
    text: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class PyDocs:
    """The documents for training and for testing, both sorted by name."""

    train: tuple[PyDoc, ...]
    test: tuple[PyDoc, ...]


def build_pydocs(roots: Mapping[str, Path] | None = None, min_documents: int = 5) -> PyDocs:
    """Build the documents from source files, in about five seconds.

    `roots` has the folders of the sources by package; by default those of this Python and its installed packages.
    Names from ``python`` stay unchanged; names from other packages get the package's name as a prefix. Labels with
    fewer than `min_documents` documents are dropped, and then documents without labels.
    """
    found: dict[str, PyDoc] = {}
    # Syntax trees have no cycles, but their nodes are so many that collecting garbage takes as long as parsing.
    collects = gc.isenabled()
    gc.disable()
    try:
        for package, root in (installed_roots() if roots is None else roots).items():
            for path in _source_files(root):
                for document in _documents(package, root, path):
                    found.setdefault(document.name, document)
    finally:
        if collects:
            gc.enable()
    # Of documents with the same text, keep the first.
    first: dict[str, PyDoc] = {}
    for name in sorted(found):
        first.setdefault(found[name].text, found[name])
    counts = Counter(label for document in first.values() for label in document.labels)
    frequent = (
        replace(document, labels=tuple(label for label in document.labels if counts[label] >= min_documents))
        for document in first.values()
    )
    documents = [document for document in frequent if document.labels]
    if not documents:
        raise DataError(
            "pydocs: found no Python source with docstrings; wanted a standard library with its sources"
        )
    return PyDocs(
        train=tuple(document for document in documents if not _for_testing(document.name)),
        test=tuple(document for document in documents if _for_testing(document.name)),
    )


def installed_roots(packages: Iterable[str] = tuple(PACKAGES)) -> dict[str, Path]:
    """Find the folders of the standard library and of the installed packages, without importing them."""
    roots = {STDLIB: Path(sysconfig.get_path("stdlib"))}
    for package in packages:
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            logger.warning("pydocs: %s is not installed; its documentation is left out", package)
        else:
            roots[package] = Path(spec.submodule_search_locations[0])
    return roots


def cached_pydocs(folder: Path, build: Callable[[], PyDocs] = build_pydocs) -> PyDocs:
    """Read the documents from `folder`; if they are missing, damaged or outdated, call `build` first.

    The folder gets `train.jsonl` and `test.jsonl`, whose lines have the keys `id`, `text` and `labels`, and
    `pydocs.json`, with the versions of the sources, the counts and the digests.
    """
    versions = _versions()
    kept = _read_cache(folder, versions)
    if kept is not None:
        return kept
    prepare_folder(folder)
    documents = build()
    splits = {"train.jsonl": documents.train, "test.jsonl": documents.test}
    digests = {}
    for name, split in splits.items():
        records = ({"id": each.name, "text": each.text, "labels": each.labels} for each in split)
        content = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
        write_bytes(folder / name, content)
        digests[name] = hashlib.sha256(content).hexdigest()
    labels = {label for split in splits.values() for document in split for label in document.labels}
    counts = {"train": len(documents.train), "test": len(documents.test), "labels": len(labels)}
    # Written last, so that the digests do not match after an interruption.
    write_json(folder / "pydocs.json", {"format": 2, "versions": versions, "counts": counts, "sha256": digests})
    return documents


def _read_cache(folder: Path, versions: dict[str, str | None]) -> PyDocs | None:
    """Read the documents in `folder`; return None if they must be rebuilt."""
    if not all((folder / name).exists() for name in ("pydocs.json", "train.jsonl", "test.jsonl")):
        return None
    try:
        state = json.loads(read_bytes(folder / "pydocs.json"))
        if state["format"] != 2 or state["versions"] != versions:
            logger.info("pydocs: rebuilding, %s is from other versions", folder)
            return None
        splits = []
        for name in ("train.jsonl", "test.jsonl"):
            content = read_bytes(folder / name)
            if hashlib.sha256(content).hexdigest() != state["sha256"][name]:
                raise DataError(f"{folder / name}: not the content that pydocs.json describes")
            records = map(json.loads, content.decode().split("\n")[:-1])
            splits.append(tuple(PyDoc(each["id"], each["text"], tuple(each["labels"])) for each in records))
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        # Any damage to a cache is repaired by rebuilding it.
        logger.warning("pydocs: rebuilding, %s is damaged: %s", folder, error)
        return None
    return PyDocs(*splits)


def _versions(distributions: Iterable[str] = tuple(PACKAGES.values())) -> dict[str, str | None]:
    found: dict[str, str | None] = {STDLIB: platform.python_version()}
    for distribution in distributions:
        try:
            found[distribution] = version(distribution)
        except PackageNotFoundError:
            found[distribution] = None
    return found


def _source_files(root: Path) -> Iterator[Path]:
    for folder, subfolders, files in os.walk(root):
        # Changed in place, so that os.walk skips folders; names such as config-3.11 are not packages.
        # Sorted, because a.py and a/__init__.py may define the same name and the first one counts.
        subfolders[:] = sorted(name for name in subfolders if name.isidentifier() and name not in _SKIPPED)
        for path in sorted(Path(folder, name) for name in files if name.endswith(".py")):
            if path.stem.isidentifier() and path.stem not in _SKIPPED:
                yield path


def _documents(package: str, root: Path, path: Path) -> Iterator[PyDoc]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escapes in other people's code
            with tokenize.open(path) as file:
                tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        # ValueError: a wrong encoding declaration, or a null byte. The last two: code nested too deeply to parse.
        logger.info("pydocs: skipping %s: %s", path, error)
        return
    parts = list(path.relative_to(root).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    names = parts if package == STDLIB else [package, *parts]
    # Every level down to the first private one: for scipy.stats._stats_py, only scipy.stats.
    levels = accumulate(takewhile(lambda name: not name.startswith("_"), names), "{}.{}".format)
    where = [f"package: {package}", *(f"module: {level}" for level in levels if level != package)]
    for name, kind, node in _definitions(tree.body, inside_class=False):
        text = _unsigned(_prose(ast.get_docstring(node) or ""), node.name)
        if len(text.split()) >= 5:
            takes = (f"takes: {parameter}" for parameter in _parameters(node, kind))
            yield PyDoc(".".join([*names, name]), text, tuple(dict.fromkeys([*where, f"kind: {kind}", *takes])))


def _definitions(body: Iterable[ast.stmt], *, inside_class: bool) -> Iterator[tuple[str, str, Any]]:
    """Yield (name, kind, node) of public definitions, including those in `if` and `try`, but not in functions."""
    for node in body:
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            handlers = [handler.body for handler in getattr(node, "handlers", [])]
            for block in (node.body, *handlers, getattr(node, "orelse", [])):
                yield from _definitions(block, inside_class=inside_class)
            continue
        if not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            continue
        if node.name.startswith("_") and not node.name.endswith("__"):
            continue
        if isinstance(node, ast.ClassDef):
            yield node.name, "class", node
            for name, kind, inner in _definitions(node.body, inside_class=True):
                yield f"{node.name}.{name}", kind, inner
        else:
            yield node.name, "method" if inside_class else "function", node


def _parameters(node: Any, kind: str) -> list[str]:
    """Return the parameters' names, without `self` or `cls`; `*args` and `**kwargs` keep their stars."""
    if kind == "class":
        makers = {child.name: child for child in node.body if isinstance(child, _FUNCTIONS)}
        node = makers.get("__init__") or makers.get("__new__")
        if node is None:
            return []
    positional = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    static = any(getattr(decorator, "id", None) == "staticmethod" for decorator in node.decorator_list)
    if kind != "function" and not static:
        positional = positional[1:]
    names = [*positional, *(argument.arg for argument in node.args.kwonlyargs)]
    stars = [
        star + argument.arg for star, argument in (("*", node.args.vararg), ("**", node.args.kwarg)) if argument
    ]
    return [name for name in names if not name.startswith("_")] + stars


def _prose(docstring: str) -> str:
    """Return the docstring on one line, without the parts that reveal its labels."""
    # "\udc80" is legal in source code, but not in UTF-8.
    lines = docstring.encode(errors="replace").decode().splitlines()
    kept = []
    skipping, indent = "", 0  # the part being skipped: a section, an indented block, an example
    for line, following in zip_longest(lines, lines[1:], fillvalue=""):
        bare = line.strip()
        depth = len(line) - len(line.lstrip())
        heading = bare.rstrip(":").lower()
        if bare and _UNDERLINE.match(following):
            skipping = "section" if heading in _GIVEAWAYS else ""
        elif skipping == "section":
            continue
        elif _FIELD.match(line) or (bare.endswith(":") and heading in _GIVEAWAYS):
            skipping, indent = "block", depth
        elif bare.startswith(">>>"):
            skipping = "example"
        elif (skipping == "block" and bare and depth <= indent) or (skipping == "example" and not bare):
            skipping = ""
        if not skipping and not _UNDERLINE.match(line):
            kept.append(bare)
    return " ".join(" ".join(kept).split())


def _unsigned(text: str, name: str) -> str:
    """Drop a signature at the beginning of the text, such as `insert(index, object) -> None`, as in C code."""
    # Checked first, since compiling a pattern for each name is slow and few texts begin with a signature.
    if not text.partition("(")[0].rstrip().endswith(name):
        return text
    signature = rf"(\w+\.)*{name} ?\(([^()]|\([^()]*\))*\)( ?-> ?\S{{1,200}})?[ :.-]*"
    return re.sub(rf"\A({signature})+", "", text)


def _for_testing(name: str) -> bool:
    # blake2b, because Python's own hash differs between processes.
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < 0.2 * 2**64
