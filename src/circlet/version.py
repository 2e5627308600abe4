"""The version of circlet."""

__version__ = "0.1.0"
