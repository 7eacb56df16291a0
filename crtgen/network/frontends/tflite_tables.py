"""Constants that are stored as indices into tables, in TFLite Micro's form."""

from math import prod

import numpy as np

from crtgen.network.ir import Array, Quant, shape_text

__all__ = ["BadCodes", "looked_up", "table_axis"]

_MOST_BITS = 7


class BadCodes(ValueError):
    """Inconsistent lengths or indices; the text gives the reason."""


def table_axis(shape: tuple[int, ...], quant: Quant | None) -> int | None:
    """Return the axis whose channels have a table each, according to the scales: the first or the last; None
    means one table.
    """
    axis = None if quant is None else quant.axis
    if axis is not None and axis not in (0, len(shape) - 1):
        raise BadCodes(
            f"tables of channels of axis {axis} of {shape_text(shape)}; it has to be the first or last"
        )
    return axis


def looked_up(packed: Array, tables: Array, bits: int, shape: tuple[int, ...], axis: int | None) -> Array:
    """Return ``tables[channel, index]`` in the given shape.

    Indices of ``bits`` bits are ``packed`` into bytes, the first one in the highest bits. ``axis`` is the
    axis of channels with a table each; None means that all share one table. Raises ``BadCodes``.
    """
    if not 1 <= bits <= _MOST_BITS:
        raise BadCodes(f"indices of {bits} bits; possible are 1 to {_MOST_BITS}")
    count = prod(shape)
    needed = -(-count * bits // 8)
    if len(packed) != needed:
        raise BadCodes(f"{len(packed)} bytes of indices instead of {needed}, {bits} bits for each of {count}")
    indices = np.zeros(count, np.uint8)
    ones = np.unpackbits(packed.view(np.uint8), count=count * bits)
    for bit in range(bits):
        indices |= ones[bit::bits] << np.uint8(bits - 1 - bit)
    if count and int(indices.max()) >= tables.shape[1]:
        raise BadCodes(f"an index of {int(indices.max())} into a table of {tables.shape[1]} numbers")
    if axis is None:
        one: Array = tables[0][indices].reshape(shape)
        return one
    channels = np.arange(shape[axis]).reshape([-1 if n == axis else 1 for n in range(len(shape))])
    made: Array = tables[channels, indices.reshape(shape)]
    return made
