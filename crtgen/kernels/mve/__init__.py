"""Designs for cores with Helium: Cortex-M55 and M85. Importing the package registers them."""

from crtgen.kernels.mve import conv, dense, depthwise, elements, pool, stationary

__all__ = ["conv", "dense", "depthwise", "elements", "pool", "stationary"]
