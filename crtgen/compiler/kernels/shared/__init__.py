"""What kernels for several extensions have in common: rings of rows, fields of bits, Fourier transforms."""
