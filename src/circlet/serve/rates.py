"""How often a client may ask: a bucket of tokens for each, which fills at a steady rate."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict

__all__ = ["Rates"]

#: Seconds' worth of requests that a client may save up.
BURST = 2.0
#: Clients to remember; who has been silent longest is forgotten first.
CLIENTS = 10_000


class Rates:
    """Token buckets by client.

    >>> rates = Rates(2)
    >>> [rates.wait("a", 0.0) for _ in range(5)]
    [0.0, 0.0, 0.0, 0.0, 0.5]
    >>> rates.wait("b", 0.0), rates.wait("a", 0.5)
    (0.0, 0.0)
    """

    def __init__(self, rate: float) -> None:
        self.rate, self.most = rate, max(1.0, BURST * rate)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, address: str, now: float) -> float:
        """Take a token, or say how many seconds it takes until there is one; `now` is of a steady clock."""
        if not self.rate:
            return 0.0
        client = bucket_of(address)
        tokens, before = self._buckets.pop(client, (self.most, now))
        tokens = min(self.most, tokens + self.rate * (now - before))
        missing = max(0.0, 1 - tokens)
        self._buckets[client] = (tokens if missing else tokens - 1, now)
        if len(self._buckets) > CLIENTS:
            self._buckets.popitem(last=False)
        return missing / self.rate


def bucket_of(address: str) -> str:
    """Whose bucket an address has: its own or, for IPv6, that of its network, since one host may have 2⁶⁴."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.IPv6Network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address
