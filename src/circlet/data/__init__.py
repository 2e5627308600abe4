"""Reading and writing datasets: their formats, and the names they go by."""

from circlet.data.dataset import Dataset, Split, Statistics
from circlet.data.load import load_dataset

__all__ = ["Dataset", "Split", "Statistics", "load_dataset"]
