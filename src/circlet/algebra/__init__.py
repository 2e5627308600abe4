"""Vectors that stand for symbols, and the operations of the paper's Table 1 on them, circular and real."""

from circlet.algebra import circular, holographic

__all__ = ["circular", "holographic"]
