"""Gather the pages of the whole repository, under their own paths, for mkdocs to build the site from.

Pages link to each other, to pictures, results and source files by relative paths, which work in a checkout and on
a forge. The site keeps these paths. A link to a folder, which a forge lists, leads to a list of its files here. A
notebook, which a forge shows, is a page here.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = ROOT / ".site" / "pages"
#: What pages link to, besides pages and pictures: sources, results, and how to deploy.
FOLDERS = {"docs": "*", "experiments": "*", "benchmarks": "*", "src": "*.py", "deploy": "*"}
FILES = ("*.md", "LICENSE", "CITATION.cff", "Makefile", "Dockerfile", "constraints.txt", "pyproject.toml")


def gather(pages: Path = PAGES) -> None:
    """Copy everything anew."""
    shutil.rmtree(pages, ignore_errors=True)
    found = [path for folder, pattern in FOLDERS.items() for path in (ROOT / folder).rglob(pattern)]
    found += [path for pattern in FILES for path in ROOT.glob(pattern)]
    for path in found:
        if path.is_file() and "__pycache__" not in path.parts:
            target = pages / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    for page in sorted(pages.rglob("*.md")):
        page.write_text(_linked(page, page.read_text(encoding="utf-8")), encoding="utf-8")
    for notebook in sorted(pages.rglob("*.ipynb")):
        text, pictures = as_page(json.loads(notebook.read_text(encoding="utf-8")), notebook.stem)
        page = notebook.with_suffix(".md")
        title, _, rest = _linked(page, text).partition("\n")
        page.write_text(f"{title}\n\n[Download as a notebook]({notebook.name})\n{rest}", encoding="utf-8")
        for name, content in pictures.items():
            (notebook.parent / name).write_bytes(content)


def as_page(notebook: dict[str, Any], name: str) -> tuple[str, dict[str, bytes]]:
    """A notebook in Markdown, and the files of its pictures, whose names begin with its own."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(_fenced(source, "python") if cell["cell_type"] == "code" else source)
        for output in cell.get("outputs", []):
            shown = output.get("data", {"text/plain": output.get("text", "")})
            if "image/png" in shown:
                file = f"{name}-{len(pictures) + 1}.png"
                pictures[file] = base64.b64decode("".join(shown["image/png"]))
                parts.append(f"![What the code above draws]({file})")
            else:
                parts.append(_fenced("".join(shown["text/plain"]), "text"))
    return "\n\n".join(parts) + "\n", pictures


def _fenced(text: str, language: str) -> str:
    """A block that no fence inside of it ends."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _linked(page: Path, text: str) -> str:
    """With links to what folders and notebooks are here."""
    text = re.sub(r"(\]\([^):#]+)\.ipynb\)", r"\1.md)", text)
    return re.sub(r"\]\(([^):#]+)\)", partial(_to_list, page), text)


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
