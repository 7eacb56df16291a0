"""Layers between float32 at the ends of a network and the integers within.

A quantisation is a function of one float that never falls; a dequantisation is a table of one integer.
Formats differ only in how they round: TensorFlow Lite takes halves away from zero, ONNX Runtime to even.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from crtgen.proof.checker.algebra.real import number_of, word_of_real
from crtgen.proof.checker.algebra.value import Symbol
from crtgen.proof.checker.network.arithmetic import Ints
from crtgen.proof.checker.network.sums import Channel, SumLayer, Summed, bounds_of, terms_of

__all__ = ["RealInput", "RealOutput"]

_INFINITY = 0x7F800000


def _halves_away(steps: Any) -> Any:
    # A double holds every float32 plus a half exactly, or the float is an integer.
    wide = np.asarray(steps, np.float64)
    return np.copysign(np.floor(np.abs(wide) + 0.5), wide)


class RealInput(SumLayer):
    """QUANTIZE of float32: clamp(round(x / scale) + zero point), with the quotient in float32.

    Numbers beyond the type's range get its ends. NaN has no meaning in TensorFlow Lite, and is left out.
    ``ordered`` numbers all floats from the smallest to the largest.
    """

    places = -_INFINITY, _INFINITY
    rounded: Callable[[Any], Any] = staticmethod(_halves_away)

    def sums(self) -> Iterator[Summed]:
        x, y = self.operator.inputs[0], self.operator.output
        self.scale, self.zero = np.float32(self.file.scale(y)), self.file.zero_point(y)
        self.ranges = {0: (-(1 << 31), (1 << 31) - 1)}
        self.of = {v: i for i, v in enumerate(self.network.values(x)) if isinstance(v, Symbol)}
        for v, i in self.of.items():
            yield i, 0, 0, {v: 1}

    def ends(self, channel: Channel) -> tuple[int, int]:
        return self.type.low, self.type.high

    @staticmethod
    def ordered(k: Ints) -> Ints:
        """Return the bits of the float at position ``k`` of this order; 0.0 is at 0."""
        return np.where(k >= 0, k, -(1 << 31) - k)

    def function(self, channel: Channel, acc: Ints) -> Any:
        with np.errstate(over="ignore"):
            steps = self.rounded(number_of(acc) / self.scale).astype(np.float64)
        return np.clip(steps + self.zero, self.type.low, self.type.high).astype(np.int64)


class RealOutput(SumLayer):
    """DEQUANTIZE to float32: (value - zero point) * scale, rounded once."""

    rises = False

    def sums(self) -> Iterator[Summed]:
        x = self.operator.inputs[0]
        self.scale, self.zero = np.float32(self.file.scale(x)), self.file.zero_point(x)
        low, high = bounds_of(self.network.values(x))
        self.ranges = {0: (int(low.min()), int(high.max()))}
        self.limits = self.type.low, self.type.high
        for i, value in enumerate(self.network.values(x)):
            base, terms = terms_of(0, [(value, 1)])
            yield i, 0, base, terms

    def function(self, channel: Channel, acc: Ints) -> Any:
        return word_of_real((acc - self.zero).astype(np.float32) * self.scale)
