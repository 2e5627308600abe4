"""The network: encoder, head and loss."""

from circlet.network.network import CODEBOOKS, Network, NetworkSettings

__all__ = ["CODEBOOKS", "Network", "NetworkSettings"]
