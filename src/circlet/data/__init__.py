"""From files to datasets and back: readers and writers for each format, and a catalog of named datasets."""

from circlet.data.dataset import Dataset, Split, Statistics
from circlet.data.load import load_dataset

__all__ = ["Dataset", "Split", "Statistics", "load_dataset"]
