"""Gather the pages of the whole repository, under their own paths, for mkdocs to build the site from.

Pages link to each other, to pictures, results and source files by relative paths, which work in a checkout and on
a forge. The site keeps these paths. A link to a folder, which a forge lists, leads to a list of its files here.
"""

from __future__ import annotations

import re
import shutil
from functools import partial
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
    for page in sorted(PAGES.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        linked = re.sub(r"\]\(([^):#]+)\)", partial(_to_list, page), text)
        page.write_text(linked, encoding="utf-8")


def _to_list(page: Path, link: re.Match[str]) -> str:
    """A link to a folder as one to its list, which is made; others as they are."""
    folder = (page.parent / link[1]).resolve()
    if not folder.is_dir():
        return link[0]
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.suffix != ".md")
    files = "\n".join(f"- [{name}]({name})" for name in names if (folder / name).is_file())
    (folder / "index.md").write_text(f"# {folder.name}\n\n{files}\n", encoding="utf-8")
    return f"]({link[1].rstrip('/')}/index.md)"


if __name__ == "__main__":
    gather()
