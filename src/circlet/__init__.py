"""Multi-label learning with circular vectors: an output layer that does not grow with the labels."""

__version__ = "0.1.0"
