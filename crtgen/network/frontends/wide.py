"""Layers whose weights need nine bits, as several whose weights have eight."""

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
    """Sums of products with ``weights[O, ...]``, by one ``layer`` of weights of int8 and a bias, or several.

    Where all outputs read the same inputs (``is_whole``), weights moved into int8 leave a multiple of
    the sum of the inputs. Else they are a sum of weights of int8.
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
