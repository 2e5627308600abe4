"""The trained model: networks with features, label names and calibration; how it is fitted, saved and loaded."""

from circlet.checks import for_training

with for_training(__name__):
    from circlet.model.model import Model
    from circlet.model.plan import fit
    from circlet.model.session import add_to_index, fit_further, further_settings

__all__ = ["Model", "add_to_index", "fit", "fit_further", "further_settings"]
