"""What is fitted, saved, loaded and used: a network and all that surrounds it."""

from circlet.model.fitting import fit, fit_further, further_settings
from circlet.model.model import Model

__all__ = ["Model", "fit", "fit_further", "further_settings"]
