"""From feature rows to label scores: an encoder, a head that predicts a code, a scorer, and losses."""

from circlet.network.encoders import Dropout, LabelSets, linear, normal
from circlet.network.network import Ensemble, FullHead, Network, Scorer
from circlet.settings import NetworkSettings

__all__ = [
    "Dropout",
    "Ensemble",
    "FullHead",
    "LabelSets",
    "Network",
    "NetworkSettings",
    "Scorer",
    "linear",
    "normal",
]
