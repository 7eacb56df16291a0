"""Depthwise convolutions whose window is the whole image, with Helium: eight channels at a time.

Two taps are multiplied and added in 16 bits, which suffice for both products, and then added to 32-bit sums.
"""

from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.asm import Function, Writer
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.window import WindowShape
from crtgen.compiler.kernels.mve.channels import stream_of_channels
from crtgen.compiler.kernels.mve.conv import requantise
from crtgen.compiler.kernels.mve.epilogue import MveEpilogue, epilogue_words
from crtgen.compiler.kernels.shared.single_routine import single_routine
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import DepthwiseConv2d
from crtgen.network.ops.fixedpoint import Int64

__all__ = ["whole_image"]

_CHANNELS = 8
_NEAR, _FAR = 127, 4095  # by which a load, and an addition, moves an address
_HALF = 1 << 15


@dataclass(frozen=True, slots=True)
class _Whole:
    """A window that covers the whole image: ``taps`` pixels of ``channels`` channels."""

    taps: int
    channels: int
    epilogue: MveEpilogue

    @property
    def groups(self) -> int:
        return -(-self.channels // _CHANNELS)


class _WholeWriter(Writer):
    def __init__(self, k: _Whole) -> None:
        self.k = k
        self.f = f = Function(
            "whole",
            "const int8_t *x",
            "int8_t *y",
            "const uint32_t *weights",
            no_alias=True,
            purpose=f"The only output of {k.channels} channels, eight at a time.",
        )
        self.x, self.y, self.weights = f.arguments
        self.at, self.left, self.number = f.core("inputs"), f.core("channels left"), f.core("a number")
        self.sums = f.vectors("sums of even and of odd channels", 2)
        self.inputs, self.taps = f.vectors("inputs, then products", 2), f.vectors("weights", 2)
        self.spare = f.vector("products of 32 bits")

    def write(self) -> None:
        f, k = self.f, self.k
        f.number(self.left, k.channels)
        with f.loop("eight channels", k.groups) as again:
            f("mov", self.at, self.x)
            f("add", self.x, self.x, f"#{_CHANNELS}")
            if k.channels % _CHANNELS:
                f("vctp.16", self.left)
            self._taps(min(2, k.taps), first=True)
            if k.taps > 3:
                with f.low_overhead_loop("pairs of taps", k.taps // 2 - 1):
                    self._taps(2)
            if k.taps > 2 and k.taps % 2:
                self._taps(1)
            self._store()
            f("subs", self.left, self.left, f"#{_CHANNELS}")
            f("bgt", again)

    def _taps(self, count: int, first: bool = False) -> None:
        # One or two, to the sums; ``first``: they begin with it.
        f, sums = self.f, self.sums
        for inputs, taps in zip(self.inputs[:count], self.taps, strict=False):
            self._load(inputs)
            f("vldrb.s16", taps, f"[{self.weights}], #{_CHANNELS}")
            f("vmul.i16", inputs, inputs, taps)
        if count > 1:
            f("vadd.i16", self.inputs[0], *self.inputs)
        for total, widen in zip(sums, ("vmovlb.s16", "vmovlt.s16"), strict=True):
            f(widen, total if first else self.spare, self.inputs[0])
            if not first:
                f("vadd.i32", total, total, self.spare)

    def _load(self, inputs: str) -> None:
        f, step = self.f, self.k.channels
        ragged = step % _CHANNELS != 0
        if ragged:
            f("vpst")
        name = "vldrbt.s16" if ragged else "vldrb.s16"
        f(name, inputs, f"[{self.at}], #{step}" if step <= _NEAR else f"[{self.at}]")
        if step > _NEAR:
            f("add", self.at, self.at, f"#{step}")

    def _store(self) -> None:
        f, k, (even, odd) = self.f, self.k, self.sums
        if k.channels % _CHANNELS:
            f("vctp.16", self.left)
        spare = (self.inputs[0], self.inputs[1], self.number)
        for total in self.sums:
            epilogue_words(f, k.epilogue, (total,), self.weights, spare)
        f("vsli.32", even, odd, "#16")
        if k.channels % _CHANNELS:
            f("vpst")
        f("vstrbt.16" if k.channels % _CHANNELS else "vstrb.16", even, f"[{self.y}], #{_CHANNELS}")


@design(DepthwiseConv2d, types=(DType.INT8,), needs="mve", weights=(1, 2))
def whole_image(op: DepthwiseConv2d, sig: Signature, target: Target) -> Kernel | None:
    """Depthwise convolution whose window is the whole image, without padding, with one output per channel.

    None for other layers, or without an exact requantisation.
    """
    _, w, b = sig.inputs
    weights, bias = w.array().astype(np.int64), b.array().astype(np.int64)
    by_channel = weights.reshape(-1, weights.shape[3]).T
    window = WindowShape.of(op, sig)
    whole = (window.batch, window.taps_y, window.taps_x) == (1, window.height, window.width)
    channels, taps = by_channel.shape
    if not whole or window.padded or op.multiplier > 1 or channels > _FAR or not _fits(by_channel):
        return None
    params = op.parameters(sig)
    requant = requantise(params, by_channel, bias)
    if requant is None:
        return None
    routine = _WholeWriter.routine(_Whole(taps, channels, requant.epilogue))
    return single_routine("mve whole image", routine, [stream_of_channels(by_channel, requant)], inplace=True)


def _fits(weights: Int64) -> bool:
    # True if 16 bits hold the sums of two products.
    pairs = np.pad(np.abs(weights), ((0, 0), (0, weights.shape[1] % 2))).reshape(len(weights), -1, 2)
    return int(pairs.sum(axis=2).max()) * 128 < _HALF
