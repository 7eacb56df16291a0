"""Kernel designs: how an operator is computed on a core.

Importing the package registers the designs. ``select`` chooses one for each layer.
"""

from crtgen.kernels import binary, depthwise, gemm, move, pointwise, pool, reduce, softmax
from crtgen.kernels.kernel import Const, InPlace, Kernel, Target
from crtgen.kernels.registry import Design, applicable, design, select

__all__ = [
    "Const",
    "Design",
    "InPlace",
    "Kernel",
    "Target",
    "applicable",
    "binary",
    "depthwise",
    "design",
    "gemm",
    "move",
    "pointwise",
    "pool",
    "reduce",
    "select",
    "softmax",
]
