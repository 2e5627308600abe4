"""The origin of a result: enough to reproduce it and to judge its times."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from circlet.version import __version__


def provenance(*, packages: tuple[str, ...] = ()) -> dict[str, Any]:
    """Describe the running command, its software and its machine.

    Parameters
    ----------
    packages : tuple of str
        Distributions whose versions matter for the result, besides the usual ones.
    """
    versions: dict[str, str | None] = {"circlet": __version__, "python": platform.python_version()}
    for package in ("torch", "numpy", "scipy", *packages):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    cpuinfo = Path("/proc/cpuinfo")
    about = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines() if cpuinfo.exists() else []
    models = (line.split(":", 1)[1].strip() for line in about if line.startswith("model name"))
    program = Path(sys.argv[0])
    # The console script goes by its name; a script file is kept as it was typed.
    name = "circlet" if program.stem in ("circlet", "__main__") else f"python {sys.argv[0]}"
    return {
        "command": shlex.join([*name.split(), *sys.argv[1:]]),
        "versions": versions,
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "processor": next(models, platform.processor() or "unknown"),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        },
    }
