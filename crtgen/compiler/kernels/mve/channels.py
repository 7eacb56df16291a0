"""Depthwise convolutions of int16 with Helium: two pixels times eight channels at a time.

For each tap, eight inputs of a pixel and eight weights are loaded, and the weights are widened by the load.
VMULLB multiplies the even lanes and VMULLT the odd ones, so a pixel has two vectors of sums. VSLI restores
the order of the outputs.
"""

from dataclasses import dataclass, replace

import numpy as np

from crtgen.compiler.kernels.asm import Function, Routine, Runs, Writer
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Target
from crtgen.compiler.kernels.engine.layout import grouped, records, stream
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.window import WindowShape, as_row
from crtgen.compiler.kernels.engine.words import Words
from crtgen.compiler.kernels.mve.conv import MveConvView, requantise, windows_kernel
from crtgen.compiler.kernels.mve.epilogue import MveEpilogue, Requantisation, epilogue_words
from crtgen.compiler.kernels.mve.ring import Ring
from crtgen.compiler.kernels.mve.stream import LANES
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import DepthwiseConv2d
from crtgen.network.ops.fixedpoint import Int64

__all__ = ["ChannelSums", "depthwise16", "stream_of_channels"]

_CHANNELS = 8
_FAR = 254  # the greatest step of VLDRH
_MOST = {"speed": 36, "size": 3}  # taps written out
_NOTE = "per eight channels: weights tap by tap, requantisation of even channels, of odd ones"


@dataclass(frozen=True, slots=True)
class ChannelSums:
    """A row of outputs, two pixels at a time: ``rows`` times ``columns`` taps, ``channels`` channels.

    Pixels are ``step`` bytes apart, columns of taps ``apart`` bytes. The rows of the window are unrolled if
    ``unrolled``; otherwise they are a loop.
    """

    rows: int
    columns: int
    channels: int
    step: int
    apart: int
    unrolled: bool
    epilogue: MveEpilogue

    @property
    def pixel_bytes(self) -> int:
        return self.channels * self.epilogue.size

    @property
    def groups(self) -> int:
        return -(-self.channels // _CHANNELS)

    @property
    def ragged(self) -> bool:
        return self.channels % _CHANNELS != 0

    @property
    def routine(self) -> Routine:
        return _ChannelsWriter.routine(self)

    def runs(self, calls: int, pairs: int) -> Runs:
        return self.routine.runs(pairs=pairs / calls) * calls


class _ChannelsWriter(Writer):
    """Writes ``row(weights, y, x, end)``, which computes the pixels of a row until their outputs reach
    ``end``.

    ``x`` is the address of the row of inputs, or a list of several.
    """

    def __init__(self, k: ChannelSums) -> None:
        self.k = k
        self.f = f = Function(
            "channels",
            "const uint32_t *weights",
            "void *y",
            "const void *x",
            "const void *end",
            no_alias=True,
            purpose="Pixels of a row up to `end`, two by two, each with eight channels at a time.",
            keep=(0, 3),
        )
        self.weights, self.y, self.x, end = f.arguments
        f.free(end)
        self.left = f.core("channels left")
        self.first, self.second = f.core("inputs of the first pixel"), f.core("inputs of the second pixel")
        self.at = f.core("where the inputs are in their rows")
        self.sums = f.vectors("even and odd sums of the first pixel, then of the second", 4)
        self.taps, self.inputs, self.products = f.vector("weights"), f.vector("inputs"), f.vector("products")

    def write(self) -> None:
        f, k = self.f, self.k
        f.number(self.at, 0)
        with f.loop("two pixels", "pairs") as next_pixels:
            f("ldr", self.weights, f.kept[0])
            f.number(self.left, k.channels)
            with f.loop("eight channels", k.groups) as next_channels:
                self._multiply()
                self._store()
                f("add", self.at, self.at, f"#{_CHANNELS * k.epilogue.size}")
                f("subs", self.left, self.left, f"#{_CHANNELS}")
                f("bgt", next_channels)
            whole = _CHANNELS * k.epilogue.size * k.groups
            f.advance(self.at, 2 * k.step - whole)
            f.advance(self.y, 2 * k.pixel_bytes - whole)
            f("ldr", self.left, f.kept[3])
            f("cmp", self.y, self.left)
            f("bne", next_pixels)

    def _multiply(self) -> None:
        f, k = self.f, self.k
        if k.unrolled:
            for row in range(k.rows):
                self._row(f"[{self.x}, #{4 * row}]" if k.rows > 1 else "", not row)
            return
        for total in self.sums:
            f("vmov.i32", total, "#0")
        rows = f.core("rows")
        f("mov", rows, self.x)
        with f.low_overhead_loop("rows", k.rows):
            self._row(f"[{rows}], #4" if k.rows > 1 else "", False)
        f.free(rows)

    def _row(self, row: str, first: bool) -> None:
        # The taps of a row, whose address is at ``row``; or else the only one.
        f, k = self.f, self.k
        if row:
            f("ldr", self.first, row)
        f("add", self.first, self.first if row else self.x, self.at)
        self._ahead()
        for column in range(k.columns):
            f("vldrb.s16", self.taps, f"[{self.weights}], #8")
            last = column == k.columns - 1
            for pointer, sums in ((self.first, self.sums[:2]), (self.second, self.sums[2:])):
                self._load(pointer, last)
                self._add(sums, first and not column)

    def _ahead(self) -> None:
        f, k = self.f, self.k
        if k.step <= 4095:
            f("add", self.second, self.first, f"#{k.step}")
        else:
            f.number(self.second, k.step)
            f("add", self.second, self.second, self.first)

    def _load(self, pointer: str, last: bool) -> None:
        f, apart = self.f, self.k.apart
        near = not last and apart <= _FAR
        f("vldrh.u16", self.inputs, f"[{pointer}], #{apart}" if near else f"[{pointer}]")
        if not last and not near:
            f.advance(pointer, apart)

    def _add(self, sums: tuple[str, ...], first: bool) -> None:
        f = self.f
        for total, operation in zip(sums, ("vmullb.s16", "vmullt.s16"), strict=True):
            f(operation, total if first else self.products, self.inputs, self.taps)
            if not first:
                f("vadd.i32", total, total, self.products)

    def _store(self) -> None:
        # Eight channels of both pixels from their sums to memory.
        f, k = self.f, self.k
        spare = (self.taps, self.inputs, self.second)
        for number in range(2):
            epilogue_words(f, k.epilogue, self.sums[number::2], self.weights, spare)
        for even, odd in (self.sums[:2], self.sums[2:]):
            f("vsli.32", even, odd, "#16")
        far = k.pixel_bytes > _FAR
        if far:
            f("add", self.second, self.y, f"#{k.pixel_bytes}")
        if k.ragged:
            f("vctp.16", self.left)
            f("vpstt")
        store = "vstrht.16" if k.ragged else "vstrh.16"
        f(store, self.sums[2], f"[{self.second}]" if far else f"[{self.y}, #{k.pixel_bytes}]")
        f(store, self.sums[0], f"[{self.y}], #16")


@design(DepthwiseConv2d, types=(DType.INT16,), needs="mve", weights=(1, 2))
def depthwise16(op: DepthwiseConv2d, sig: Signature, target: Target) -> Kernel | None:
    """Depthwise convolution of int16 with one output per channel, or of one channel.

    None if no two outputs are adjacent, or without an exact requantisation.
    """
    x, w, b = sig.inputs
    weights, bias = w.array().astype(np.int64), b.array().astype(np.int64)
    outputs = weights.shape[3]
    by_channel = weights.reshape(-1, outputs).T
    window = WindowShape.of(op, sig)
    if x.shape[3] == 1:
        return windows_kernel(window, by_channel.astype(np.int8), bias, op.parameters(sig), target)
    window = as_row(window)
    requant = requantise(op.parameters(sig), by_channel, bias)
    if op.multiplier > 1 or window.out_width < 2 or requant is None:
        return None
    view = _view(window, requant.epilogue, target.steps(_MOST[target.optimize]))
    if view is None:
        return None
    const = stream_of_channels(by_channel, requant)
    return view.kernel("mve channels", const, outputs * requant.epilogue.size)


def _view(window: WindowShape, epilogue: MveEpilogue, most: int) -> MveConvView | None:
    # None if a row of taps is too long to write out, or pixels are too far apart.
    channels, size = window.channels, epilogue.size
    pixel = channels * size
    if window.taps_x > most * 3 or pixel > 4095:
        return None
    kernel = ChannelSums(
        rows=window.taps_y,
        columns=window.taps_x,
        channels=channels,
        step=window.stride_x * pixel,
        apart=window.dilation_x * pixel,
        unrolled=window.taps_y * window.taps_x <= most,
        epilogue=epilogue,
    )
    bytewise = replace(window, channels=pixel)
    ring = Ring.of(bytewise, 0) if window.padded or pixel % LANES else None
    rows = tuple(i * window.dilation_y for i in range(window.taps_y))
    return MveConvView(kernel, bytewise, ring, None, rows)


def stream_of_channels(weights: Int64, requant: Requantisation) -> Const:
    """Return ``weights[O, taps]`` in blocks of eight channels, each with the constants of the even ones, then
    of the odd ones.
    """
    channels, taps = weights.shape
    groups = -(-channels // _CHANNELS)
    words = _CHANNELS // 4 * taps + _CHANNELS * len(requant.constants)

    def some_groups(some: slice) -> Words:
        part = slice(_CHANNELS * some.start, _CHANNELS * some.stop)
        constants = grouped(requant.constants.T[part].astype(np.int32), _CHANNELS)
        halves = constants.reshape(len(constants), -1, _CHANNELS // 2, 2).transpose(0, 3, 1, 2)
        return records(grouped(weights[part].astype(np.int8), _CHANNELS), halves)

    return stream(groups, words, some_groups, _NOTE, align=8)
