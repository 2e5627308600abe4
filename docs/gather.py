"""Gather the pages of the whole repository, under their own paths, in the folder from which mkdocs builds the site.

Pages link to each other, to pictures, results and source files by relative paths, which work in a checkout and on a
forge. The site keeps these paths instead of translating links.
"""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / ".site" / "pages"
#: What pages link to, besides pages and pictures: sources, results, and how to deploy.
FOLDERS = {"docs": "*", "experiments": "*", "benchmarks": "*", "src": "*.py", "deploy": "*"}
FILES = ("*.md", "LICENSE", "CITATION.cff", "Makefile", "Dockerfile", "constraints.txt", "pyproject.toml")


def gather() -> None:
    """Copy everything anew."""
    shutil.rmtree(PAGES, ignore_errors=True)
    found = [path for folder, pattern in FOLDERS.items() for path in (ROOT / folder).rglob(pattern)]
    found += [path for pattern in FILES for path in ROOT.glob(pattern)]
    for path in found:
        if path.is_file() and "__pycache__" not in path.parts:
            target = PAGES / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


if __name__ == "__main__":
    gather()
