"""Depthwise convolutions in float32 with Helium: four channels of four adjacent outputs at a time.

A column of the ring that several outputs need is loaded once for all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.arithmetic.epilogue import float_epilogue
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.layout import biased
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.words import bits_of
from crtgen.compiler.kernels.mve.bytes import copy, fill
from crtgen.compiler.kernels.mve.floats import copy_vectors
from crtgen.compiler.kernels.shared.ring import FloatLine, FloatRow, float_lines, ring_view
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import DepthwiseConv2d

__all__ = ["depthwise"]

_LANES = 4
_OUTPUTS, _TAPS = 4, 3  # at a time: with a vector of inputs they are all registers
_FAR = 508  # bytes that an access moves its register by at most


@dataclass(frozen=True, slots=True)
class _LimitedRow(FloatRow):
    low: float
    high: float


class _FloatDepthwiseWriter(FloatLine):
    at_once = _OUTPUTS

    def __init__(self, k: _LimitedRow) -> None:
        super().__init__(k)
        f, self.k = self.f, k
        self.place = f.core("inputs")
        self.sums = f.vectors("sums", _OUTPUTS)
        self.taps = f.vectors("weights, then limits", _TAPS)
        self.inputs = f.vector("inputs")

    def outputs(self, count: int) -> None:
        with self.f.repeated("channels", self.k.channels // _LANES):
            self._block(count)

    def _block(self, outputs: int) -> None:
        f, k, sums = self.f, self.k, self.sums[:outputs]
        for number, total in enumerate(sums, 1):
            f("vldrw.u32", total, f"[{self.weights}]{', #16' if number == outputs else ''}")
        with f.low_overhead_loop("rows of a window", k.taps_y):
            f("ldr", self.place, f"[{self.rows}], #4")
            f("add", self.place, self.place, self.column)
            self._row(outputs)
        f.advance(self.rows, -4 * k.taps_y)
        f.advance(self.column, 4 * _LANES)
        self._clamp(sums)
        for number, total in enumerate(sums):
            last = number == outputs - 1
            self._access("vstrw.32", total, self.y, 4 * _LANES - number * k.pixel if last else k.pixel)

    def _row(self, outputs: int) -> None:
        f, k = self.f, self.k
        place = 0
        for start in range(0, k.taps_x, _TAPS):
            taps = range(start, min(start + _TAPS, k.taps_x))
            columns = k.columns(outputs, taps)
            for tap in taps:
                f("vldrw.u32", self.taps[tap - start], f"[{self.weights}], #16")
            f.advance(self.place, (min(columns) - place) * k.pixel)
            ways = [*np.diff(list(columns)).tolist(), 0]
            for way, met in zip(ways, columns.values(), strict=True):
                self._access("vldrw.u32", self.inputs, self.place, way * k.pixel)
                for output, tap in reversed(met):
                    f("vfma.f32", self.sums[output], self.taps[tap - start], self.inputs)
            place = max(columns)

    def _access(self, mnemonic: str, vector: str, place: str, by: int) -> None:
        # A load or a store, and the step of its register.
        near = by and abs(by) <= _FAR
        self.f(mnemonic, vector, f"[{place}]{f', #{by}' if near else ''}")
        if not near:
            self.f.advance(place, by)

    def _clamp(self, sums: Sequence[str]) -> None:
        f, limits = self.f, ((self.k.low, "vmaxnm.f32"), (self.k.high, "vminnm.f32"))
        for (limit, operation), vector in zip(limits, self.taps, strict=False):
            if np.isfinite(limit):
                f.number(self.place, bits_of(limit))
                f("vdup.32", vector, self.place)
                for total in sums:
                    f(operation, total, total, vector)


@design(DepthwiseConv2d, types=(DType.FLOAT32,), needs="mve", weights=(1, 2))
def depthwise(op: DepthwiseConv2d, sig: Signature, target: Target) -> Kernel | None:
    """Depthwise convolution of float32; None unless channels are a multiple of four, with one output each."""
    if op.multiplier != 1 or sig.x.shape[3] % _LANES:
        return None
    view = ring_view(op, sig, float_epilogue(op.activation))
    g, limits = view.window, op.activation.float_range()
    line = _LimitedRow(
        g.out_width, g.channels, g.taps_y, g.taps_x, g.stride_x, g.dilation_x, low=limits[0], high=limits[1]
    )
    weights, bias = (value.array() for value in sig.inputs[1:])
    return float_lines(
        f"mve float depthwise {min(_OUTPUTS, g.out_width)}x{_LANES}",
        view,
        biased(weights.reshape(-1, g.channels).T, bias, _LANES, ("channel", "tap")),
        (_FloatDepthwiseWriter.routine(line), copy(), fill()),
        copy_vectors,
        _filled,
    )


def _filled(work: Work, nbytes: int, runs: float) -> None:
    work.block("fill", runs).assembly += runs * fill().runs(vectors=-(-nbytes // 16))
