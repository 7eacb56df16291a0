"""Designs for cores with the DSP extension: Cortex-M4, M7 and M33. Importing the package registers them."""

from crtgen.kernels.dsp import binary, conv, dense, depthwise, depthwise_any, pool

__all__ = ["binary", "conv", "dense", "depthwise", "depthwise_any", "pool"]
