"""Finds what tests of the page need: Chromium, and axe-core for accessibility.

`python -m tests.serve.page.chromium` installs what is missing, if it can, and fails with one line if there is no
Chromium in the end.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome", "msedge")
TOOLS = Path(__file__).parents[3] / ".browser"  # ignored by git
AXE = TOOLS / "node_modules/axe-core/axe.min.js"
AXE_VERSION = "4.14.0"


def chromium() -> str | None:
    """The path of a Chromium: what CIRCLET_CHROMIUM says, or the first one on the PATH."""
    return os.environ.get("CIRCLET_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


def install_chromium() -> None:
    """As root, where apt-get is."""
    if hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
            subprocess.run(["apt-get", "--quiet", "--quiet", *command], env=quiet, check=False)


def install_axe() -> None:
    """From npm, where that is. Its license (MPL-2.0) lies beside it."""
    if npm := shutil.which("npm"):
        options = ["--no-audit", "--no-fund", "--ignore-scripts", "--no-save", "--silent", "--prefix", str(TOOLS)]
        subprocess.run([npm, "install", *options, f"axe-core@{AXE_VERSION}"], check=False)


def main() -> int:
    if not chromium():
        install_chromium()
    if not chromium():
        print("the page is not tested: found no Chromium; install it, or set CIRCLET_CHROMIUM to its path")
        return 1
    if not AXE.exists():
        install_axe()
    if not AXE.exists():
        print("found no axe-core and could not install it with npm: its tests will be skipped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
