"""A trained tagger: what is fitted, saved and loaded."""

from circlet.model.model import FORMAT, Model, fit

__all__ = ["FORMAT", "Model", "fit"]
