"""Common parts of kernels for several extensions: rings of rows, bit fields, Fourier transforms."""
