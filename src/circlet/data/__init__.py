"""From files to datasets and back: readers and writers for each format, and a catalog of named datasets."""

from typing import TYPE_CHECKING, Any

from circlet.data.dataset import Dataset, Split, Statistics

if TYPE_CHECKING:
    from circlet.data.load import load_dataset

__all__ = ["Dataset", "Split", "Statistics", "load_dataset"]


def __getattr__(name: str) -> Any:
    # Imported on first use: applying a model needs the classes above, but no reader.
    if name != "load_dataset":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from circlet.data.load import load_dataset

    globals()[name] = load_dataset
    return load_dataset
