"""How much clients may ask for."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """What a service accepts.

    Parameters
    ----------
    body : int
        Bytes of a request's body.
    documents : int
        Documents of a request.
    characters : int
        Characters of a text.
    k : int
        Labels per document.
    queue : int
        Documents that wait to be tagged; beyond that, clients are asked to come back later.
    held : int
        Bytes of all requests' bodies at a time.
    connections : int
        Open connections.
    rate : float
        Requests per second of a client, in the long run; 0 is no limit.
    patience : float
        Seconds that a client may take to send a request, or to take its answer.
    """

    body: int = 8 << 20
    documents: int = 512
    characters: int = 500_000
    k: int = 100
    queue: int = 2048
    held: int = 256 << 20
    connections: int = 1000
    rate: float = 1000.0
    patience: float = 30.0
