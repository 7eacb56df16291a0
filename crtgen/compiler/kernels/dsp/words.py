"""Words of constants in the order in which kernels with the DSP extension read them."""

import numpy as np

from crtgen.compiler.kernels.engine.words import Words, words
from crtgen.network.ops.fixedpoint import Int64

__all__ = ["fours", "words16"]


def words16(low: Int64, high: Int64) -> Words:
    return words((low & 0xFFFF) | (high << 16))


def fours(channels: int) -> Int64:
    """``[group, 4]``: the channels of each group of four; the last group may repeat some."""
    starts = np.arange(0, channels, 4)
    starts[-1] = channels - 4
    return starts[:, None] + np.arange(4)
