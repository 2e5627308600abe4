"""`CircletClassifier`: a model as a scikit-learn estimator, for texts or feature rows with many labels."""

from circlet.checks import for_training

with for_training(__name__):
    from circlet.estimator.classifier import CircletClassifier

__all__ = ["CircletClassifier"]
