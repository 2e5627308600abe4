"""`CircletClassifier`: a model as a scikit-learn estimator, for texts or feature rows with many labels."""

from circlet.estimator.classifier import CircletClassifier

__all__ = ["CircletClassifier"]
