"""From a network to C code for one core: kernels for each layer, one plan of memory, generated sources."""
