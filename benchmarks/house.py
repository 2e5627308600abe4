"""How large the house is, and how far a document walks through it.

    python benchmarks/house.py [src/circlet]

Counts the lines, modules and top-level names of the package (functions, classes and constants of a module), the
lines of its tests, and the modules that `import circlet.runtime` loads. Then it trains a small model on `pydocs`,
tags a line with it, and watches which of the package's modules do something:

- modules entered: those of which a function is called, in the order of their first calls. What runs because a
  module is imported does not count;
- borders crossed: how often one of them is in another package than the one entered before it. Modules beside the
  packages (`files.py`, `errors.py`, …) are left out here;
- returns: how often that package had been left before.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import tempfile
from pathlib import Path

#: Runs a command in a process that prints the modules entered, in their order, as the last line of stderr.
WATCHED = """
import sys, threading
entered = {}

def watch(frame, event, argument):
    name = frame.f_globals.get("__name__", "")
    if event == "call" and name.startswith("circlet") and name not in entered and not imports(frame):
        entered[name] = True

def imports(frame):
    while frame is not None and frame.f_globals.get("__name__") != "__main__":
        if frame.f_code.co_name == "<module>":
            return True
        frame = frame.f_back
    return False

from circlet.cli import main
sys.argv = ["circlet", *sys.argv[1:]]
threading.setprofile(watch)
sys.setprofile(watch)
try:
    main()
finally:
    sys.setprofile(None)
    print("\\n", *entered, file=sys.stderr)
"""
LOADED = "import sys, circlet.runtime; print(*(name for name in sys.modules if name.split('.')[0] == 'circlet'))"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path, nargs="?", default=Path(__file__).parents[1] / "src/circlet")
    root = parser.parse_args().root.resolve()
    tests = root.parents[1] / "tests"
    lines, modules, names, code = counts(root)
    print(f"{'lines':42}{lines:>8,}\n{'modules':42}{modules:>8,}")
    print(f"{'top-level names':42}{names:>8,}\n{'code lines for each':42}{code / names:>8.1f}")
    print(f"{'lines of tests, tests/paper apart':42}{lines_of_tests(tests):>8,}")
    environment = {**os.environ, "PYTHONPATH": str(root.parent), "OMP_NUM_THREADS": "1"}

    def ran(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            (sys.executable, *words), input=stdin, capture_output=True, text=True, check=True, env=environment
        )

    loaded = ran("-c", LOADED).stdout.split()
    with tempfile.TemporaryDirectory() as folder:
        for title, words, stdin in (
            ("train pydocs", ("train", "pydocs", "--model", f"{folder}/model", "--epochs", "1"), ""),
            ("predict", ("predict", f"{folder}/model", "-"), "solve a sparse linear system\n"),
        ):
            entered = ran("-c", WATCHED, *words, stdin=stdin).stderr.splitlines()[-1].split()
            packages = [package for name in entered if (package := package_of(name, root))]
            borders, returns = crossed(packages)
            print(f"{title + ': modules entered':42}{len(entered):>8,}")
            print(f"{title + ': borders crossed, returns':42}{borders:>8,}{returns:>8,}")
    print(f"{'modules loaded by import circlet.runtime':42}{len(loaded):>8,}")


def counts(root: Path) -> tuple[int, int, int, int]:
    """Lines, modules, top-level names, and lines that are neither blank, comment nor docstring."""
    lines = names = code = 0
    paths = sorted(root.rglob("*.py"))
    for path in paths:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
        names += sum(isinstance(each, kinds) and not ast.unparse(each).startswith("__all__") for each in tree.body)
        lines += text.count("\n")
        numbers = {n for n, line in enumerate(text.splitlines(), 1) if line.strip() and line.lstrip()[0] != "#"}
        for node in ast.walk(tree):
            documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            if isinstance(node, documented) and ast.get_docstring(node) is not None:
                numbers -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
        code += len(numbers)
    return lines, len(paths), names, code


def lines_of_tests(tests: Path) -> int:
    """Lines of the tests, without those of the paper."""
    paths = (path for path in tests.rglob("*.py") if path.relative_to(tests).parts[0] != "paper")
    return sum(path.read_text(encoding="utf-8").count("\n") for path in paths)


def package_of(name: str, root: Path) -> str:
    """The package that a module is in: the first name below the root, if that is a folder; else nothing."""
    first = name.partition(".")[2].partition(".")[0]
    return first if (root / first).is_dir() else ""


def crossed(packages: list[str]) -> tuple[int, int]:
    """Borders between packages that follow each other, and how many of them lead back."""
    borders = returns = 0
    for i in range(1, len(packages)):
        if packages[i] != packages[i - 1]:
            borders += 1
            returns += packages[i] in packages[:i]
    return borders, returns


if __name__ == "__main__":
    main()
