"""From documents to the scores of all labels: encoder, head, scorer and losses."""

from circlet.network.network import Network
from circlet.settings import NetworkSettings

__all__ = ["Network", "NetworkSettings"]
