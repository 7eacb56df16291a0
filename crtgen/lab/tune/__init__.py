"""Tuning: chooses each layer's kernel by measuring on the board instead of estimating."""
