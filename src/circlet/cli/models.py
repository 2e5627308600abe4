"""How commands load a model: without torch on a CPU, with it on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from circlet.cli import options

if TYPE_CHECKING:
    from circlet.model import Model
    from circlet.runtime import RuntimeModel

__all__ = ["load_model"]


def load_model(folder: Path, device: str, threads: int | None) -> Model | RuntimeModel:
    """Load the model in a folder, to use so many threads on a CPU; None leaves their number to the libraries.

    On a CPU, importing torch would take longer than tagging thousands of documents, and nothing needs it.
    """
    if device in ("auto", "cpu"):
        from circlet.runtime import RuntimeModel
        from circlet.threads import use_threads

        if threads is not None:
            use_threads(threads)
        return RuntimeModel.load(folder)
    options.use_torch(f"running on {device}", threads)
    from circlet.devices import resolve_device
    from circlet.model import Model

    return Model.load(folder, resolve_device(device))
