"""From feature rows to label scores: an encoder, a head that predicts a code, a scorer, and losses."""

from circlet.network.ensemble import Ensemble
from circlet.network.network import Network
from circlet.settings import NetworkSettings

__all__ = ["Ensemble", "Network", "NetworkSettings"]
