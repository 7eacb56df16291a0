"""Depthwise convolutions in float32 with Helium: four channels of four neighbouring outputs at a time.

A column of the ring that several outputs read is loaded once for all of them.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from crtgen.ir import Array, DType, Signature
from crtgen.kernels.asm import Function, Routine
from crtgen.kernels.cost import Work
from crtgen.kernels.depthwise import DepthwiseView, ring_lead, ring_view, ring_work
from crtgen.kernels.epilogue import float_epilogue
from crtgen.kernels.kernel import Const, InPlace, Kernel, Target
from crtgen.kernels.mve.bytes import copy, fill
from crtgen.kernels.registry import design
from crtgen.kernels.words import bits_of
from crtgen.ops import DepthwiseConv2d

__all__ = ["depthwise"]

_LANES = 4
_OUTPUTS, _TAPS = 4, 3  # at a time: with a vector of inputs they are all registers
_FAR = 508  # bytes that an access moves its register by at most


@dataclass(frozen=True, slots=True)
class _FloatRow:
    """A row of ``width`` outputs of ``channels`` channels; ``stride`` and ``dilation`` are pixels."""

    width: int
    channels: int
    taps_y: int
    taps_x: int
    stride: int
    dilation: int
    low: float
    high: float

    @property
    def pixel(self) -> int:
        """Bytes."""
        return 4 * self.channels

    @property
    def weight_bytes(self) -> int:
        return self.pixel * (1 + self.taps_y * self.taps_x)

    def columns(self, outputs: int, taps: Sequence[int]) -> Mapping[int, Sequence[tuple[int, int]]]:
        """Which output meets which tap in a column, by the columns from left to right."""
        found: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for tap in taps:
            for output in range(outputs):
                found[output * self.stride + tap * self.dilation].append((output, tap))
        return dict(sorted(found.items()))


@lru_cache(maxsize=256)
def _line_of_outputs(k: _FloatRow) -> Routine:
    """``line(rows, y, weights)``: ``rows`` are where the rows of the windows begin."""
    writer = _FloatDepthwiseWriter(k)
    writer.write()
    return writer.f.done()


class _FloatDepthwiseWriter:
    def __init__(self, k: _FloatRow) -> None:
        self.k = k
        self.f = f = Function(
            "line",
            "const float *const *rows",
            "float *y",
            "const float *weights",
            purpose=f"A row of {k.width} outputs of {k.channels} channels.",
        )
        self.rows, self.y, self.weights = f.arguments
        self.column, self.place = f.core("bytes from where rows begin"), f.core("inputs")
        self.sums = f.vectors("sums", _OUTPUTS)
        self.taps = f.vectors("weights, then limits", _TAPS)
        self.inputs = f.vector("inputs")

    def write(self) -> None:
        f, k = self.f, self.k
        f.number(self.column, 0)
        for outputs, count in ((_OUTPUTS, k.width // _OUTPUTS), (k.width % _OUTPUTS, 1)):
            if not outputs or not count:
                continue
            with f.repeated("neighbours", count):
                with f.repeated("channels", k.channels // _LANES):
                    self._block(outputs)
                if k.width > outputs:
                    f.advance(self.weights, -k.weight_bytes)
                    f.advance(self.column, (outputs * k.stride - 1) * k.pixel)
                    f.advance(self.y, (outputs - 1) * k.pixel)

    def _block(self, outputs: int) -> None:
        """Four channels of some outputs."""
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
                for output, tap in met:
                    f("vfma.f32", self.sums[output], self.taps[tap - start], self.inputs)
            place = max(columns)

    def _access(self, mnemonic: str, vector: str, place: str, by: int) -> None:
        """A load or a store, and the step of its register."""
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
    """None unless there are whole vectors of channels, each with one output."""
    if op.multiplier != 1 or sig.x.shape[3] % _LANES:
        return None
    view = ring_view(op, sig, float_epilogue(op.activation))
    g, limits = view.window, op.activation.float_range()
    line = _FloatRow(
        g.out_width, g.channels, g.taps_y, g.taps_x, g.stride_x, g.dilation_x, low=limits[0], high=limits[1]
    )
    return Kernel(
        design=f"mve float depthwise {min(_OUTPUTS, g.out_width)}x{_LANES}",
        template="depthwise_lines.c.j2",
        view=view,
        consts=(_weights(sig, line),),
        scratch=4 * view.ring_elements,
        inplace=(InPlace(lead=ring_lead(view, 4)),),
        work=_work(view, line),
        routines=(_line_of_outputs(line), copy(), fill()),
    )


def _weights(sig: Signature, line: _FloatRow) -> Const:
    weights, bias = sig.inputs[1].array(), sig.inputs[2].array()

    def pack() -> Array:
        rows = np.concatenate([bias[None], weights.reshape(-1, line.channels)])
        return rows.reshape(len(rows), -1, _LANES).transpose(1, 0, 2).ravel()

    note = "[channel / 4][bias, then tap][channel % 4]"
    return Const("weights", "float32", (line.weight_bytes // 4,), pack, 4, note)


def _work(view: DepthwiseView, line: _FloatRow) -> Work:
    lines = view.window.batch * view.window.out_height
    return ring_work(Work(lines * _line_of_outputs(line).runs()), view, 4, _copied, _filled)


def _copied(work: Work, nbytes: int, runs: float) -> None:
    work.block("copy", runs).assembly += runs * copy().runs(vectors=-(-nbytes // 16))


def _filled(work: Work, nbytes: int, runs: float) -> None:
    work.block("fill", runs).assembly += runs * fill().runs(vectors=-(-nbytes // 16))
