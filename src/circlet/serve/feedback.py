"""The log of what users said about suggestions; `circlet train --feedback` reads the same files."""

from circlet.data.feedback import Entry, FeedbackLog, Judged, judged

__all__ = ["Entry", "FeedbackLog", "Judged", "judged"]
