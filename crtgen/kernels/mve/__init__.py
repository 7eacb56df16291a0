"""Designs for cores with Helium: Cortex-M55 and M85. Importing the package registers them."""

from crtgen.kernels.mve import (
    binary,
    conv,
    dense,
    depthwise,
    float_elements,
    floats,
    mean,
    move,
    pool,
    softmax,
    stationary,
    unary,
    upright,
)

__all__ = [
    "binary",
    "conv",
    "dense",
    "depthwise",
    "float_elements",
    "floats",
    "mean",
    "move",
    "pool",
    "softmax",
    "stationary",
    "unary",
    "upright",
]
