"""The models that several experiments train: the paper's, and this library's own."""

from __future__ import annotations

from circlet_paper.training_cells import FIXED, Recipe

FC, FC_1024, FC_768 = (
    Recipe(f"FC, h = {width}", "paper", {"head": "fc", "hidden": (width, width)}) for width in (2048, 1024, 768)
)
HRR = Recipe("HRR, d = 800, h = 768", "paper", {"head": "hrr", "dim": 800, "hidden": (768, 768)})
CHRR = Recipe("CHRR, d = 800, h = 768", "paper", {"head": "chrr", "dim": 800, "hidden": (768, 768)})
OWN = Recipe("circlet, fixed sizes", FIXED)
CIRCLET = Recipe("circlet, defaults", "default")
ACCURATE = Recipe("circlet, accurate", "accurate")
