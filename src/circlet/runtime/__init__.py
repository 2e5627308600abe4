"""A saved model at work, on NumPy and SciPy alone: load it, suggest labels, explain them.

Nothing here imports torch, scikit-learn or the code that trains. What a network computes is written down twice,
here and in `circlet.network`; the tests compare the two on models of every kind.
"""

from circlet.runtime.answers import Suggestion
from circlet.runtime.model import RuntimeModel
from circlet.runtime.tagger import Tagger, Threshold, load

__all__ = ["RuntimeModel", "Suggestion", "Tagger", "Threshold", "load"]
