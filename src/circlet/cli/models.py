"""How commands load a model: without torch on a CPU, with it on a GPU, or if nothing else can run the model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from circlet.cli import options
from circlet.folder.layout import read_config, reads_texts

if TYPE_CHECKING:
    from circlet.model import Model
    from circlet.runtime import RuntimeModel

__all__ = ["load_model"]


def load_model(folder: Path, device: str, threads: int | None) -> Model | RuntimeModel:
    """Load the model in a folder, to use so many threads on a CPU; None leaves their number to the libraries.

    On a CPU, importing torch would take longer than tagging thousands of documents, and only encoders that read
    texts need it.
    """
    config = read_config(folder)
    if device in ("auto", "cpu") and not reads_texts(config):
        from circlet.runtime import RuntimeModel
        from circlet.threads import use_threads

        if threads is not None:
            use_threads(threads)
        return RuntimeModel.load(folder)
    encoder = f"a model with encoder {config['network']['encoder']}" if reads_texts(config) else None
    options.use_torch(encoder or f"running on {device}", threads)
    from circlet.devices import resolve_device
    from circlet.model import Model

    return Model.load(folder, resolve_device(device))
