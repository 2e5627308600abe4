"""Searches for settings that suit a dataset better than the defaults, within a time budget."""

from circlet.tuning.study import Study
from circlet.tuning.trials import Trial

__all__ = ["Study", "Trial"]
