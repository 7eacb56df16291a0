"""Designs for cores with Helium: Cortex-M55 and M85. Importing the package registers them."""

from crtgen.kernels.mve import conv, depthwise

__all__ = ["conv", "depthwise"]
