"""Weights and constants of depthwise convolutions in the order of their patches."""

import numpy as np

from crtgen.compiler.kernels.engine.kernel import Const
from crtgen.compiler.kernels.engine.layout import nibbles, records
from crtgen.compiler.kernels.engine.words import Words
from crtgen.compiler.kernels.mve.patches import SIDE
from crtgen.compiler.kernels.mve.stream import LANES
from crtgen.network.ir import Array
from crtgen.network.ops.fixedpoint import Int64

__all__ = ["int4_patches", "patches", "requant_const"]


def patches(weights: Int64, order: Int64) -> Const:
    """Return ``weights[rows, columns, C]`` as patches, preceded by a row and a column of zeros."""

    def pack() -> Words:
        return np.concatenate([np.zeros(LANES, np.int8), _ordered(weights[..., order])]).view(np.uint32)

    words = (LANES + _padded(weights)) // 4
    return Const("weights", "uint32", (words,), pack, 8, "16 zeros; per channel: columns of four rows")


def int4_patches(weights: Int64, order: Int64) -> Const:
    def pack() -> Words:
        return nibbles(_ordered(weights[..., order])).view(np.uint32)

    note = "per channel: columns of four rows, two weights in a byte"
    return Const("weights", "uint32", (_padded(weights) // 8,), pack, 8, note)


def _padded(weights: Int64) -> int:
    rows, columns, channels = weights.shape
    return int(channels * -(-rows // SIDE) * -(-columns // SIDE) * LANES)


def _ordered(weights: Int64) -> Array:
    # ``weights[rows, columns, C]`` by channel and patch, each column by column.
    rows, columns, channels = weights.shape
    down, across = -(-rows // SIDE), -(-columns // SIDE)
    padded = np.zeros((channels, down * SIDE, across * SIDE), np.int8)
    padded[:, :rows, :columns] = weights.transpose(2, 0, 1)
    ordered: Array = padded.reshape(channels, down, SIDE, across, SIDE).transpose(0, 1, 3, 4, 2).reshape(-1)
    return ordered


def requant_const(constants: Int64) -> Const:
    """Return multiplier, initial value and the last constant in the order of the registers, ``[C * 3]``."""
    words = records(constants[[1, 0, 2]].T.astype(np.int32)).ravel()
    return Const.of("requant", words, 4, "per channel: multiplier, start, last")
