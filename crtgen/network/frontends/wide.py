"""Layers whose weights need nine bits, as several layers with 8-bit weights."""

from collections.abc import Callable
from functools import reduce

import numpy as np

from crtgen.network.frontends.layers import Converted
from crtgen.network.ir import Array
from crtgen.network.ops import INT8, Add, Mul
from crtgen.network.ops.fixedpoint import Int64

__all__ = ["wide_sums"]


def wide_sums(
    layer: Callable[[Array, Array], Converted], weights: Int64, bias: Array, is_whole: bool
) -> Converted:
    """Multiply by ``weights[O, ...]`` with one or several copies of ``layer`` that have int8 weights and a
    bias.

    If all outputs read the same inputs (``is_whole``), shifting the weights into int8 leaves a multiple of
    the sum of the inputs. Otherwise the weights are split into a sum of int8 weights.
    """
    moved = int(max(weights.max() - INT8.high, 0) or min(weights.min() - INT8.low, 0))
    if is_whole and moved and INT8.low <= (weights - moved).min() and (weights - moved).max() <= INT8.high:
        inputs = layer(np.ones((1, *weights.shape[1:]), np.int8), np.zeros(1, bias.dtype))
        missing = Converted(Mul(), (inputs, np.array(moved, np.int32)), ("moved",))
        return Converted(Add(), (layer((weights - moved).astype(np.int8), bias), missing), ("missing",))
    parts, left = list[Converted](), weights
    while not parts or left.any():
        part = np.clip(left, *INT8.limits)
        parts.append(
            layer(np.ascontiguousarray(part).astype(np.int8), np.zeros_like(bias) if parts else bias)
        )
        left = left - part
    return reduce(lambda a, b: Converted(Add(), (a, b), ("other",)), parts)
