"""Texts and matrices to the rows that a network learns from."""
