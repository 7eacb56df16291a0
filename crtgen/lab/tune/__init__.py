"""Tuning: which kernel each layer of a model gets is measured on the board, not estimated."""
