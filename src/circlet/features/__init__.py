"""Turn texts and matrices into feature rows for a network: vectorizers, scaling, dense features."""

from circlet.features.rows import SCALINGS, Scaling
from circlet.features.vectorizer import TextVectorizer, load_vectorizer

__all__ = ["SCALINGS", "Scaling", "TextVectorizer", "load_vectorizer"]
