"""Kernel designs: how an operator is computed on a core."""
