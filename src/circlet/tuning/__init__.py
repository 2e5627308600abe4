"""Searches for settings that suit a dataset better than the defaults, within a time budget."""

from circlet.tuning.study import Study, Trial

__all__ = ["Study", "Trial"]
