"""From a network to C code for one core: a kernel for each layer, one memory plan, generated sources."""
