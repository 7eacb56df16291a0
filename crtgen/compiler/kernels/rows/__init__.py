"""Kernels that call other kernels row by row, so that only a window of an image is in RAM."""
