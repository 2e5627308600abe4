"""Vectors that stand for symbols, circular and real, and the operations on them: the paper's Table 1."""

from circlet.checks import for_training

with for_training(__name__):
    from circlet.algebra import circular, holographic

__all__ = ["circular", "holographic"]
