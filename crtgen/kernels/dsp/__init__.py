"""Designs for cores with the DSP extension: Cortex-M4, M7 and M33. Importing the package registers them."""

from crtgen.kernels.dsp import binary, clamp, conv, dense, depthwise, depthwise_any, pool

__all__ = ["binary", "clamp", "conv", "dense", "depthwise", "depthwise_any", "pool"]
