"""The vector algebras of the paper's Table 1: the same operations on circular and on real vectors."""

from circlet.algebra import circular, holographic

__all__ = ["circular", "holographic"]
