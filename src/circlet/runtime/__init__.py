"""A saved model at work, on NumPy and SciPy alone: load it, suggest labels, explain them.

Nothing here imports torch, scikit-learn or the code that trains.
"""

from circlet.runtime.answers import Suggestion
from circlet.runtime.model import RuntimeModel
from circlet.runtime.tagger import Tagger, Threshold, load

__all__ = ["RuntimeModel", "Suggestion", "Tagger", "Threshold", "load"]
