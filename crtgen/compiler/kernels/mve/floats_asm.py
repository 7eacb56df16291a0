"""Assembly of float32 products: a few pixels times a block of output channels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.asm import LISTED, Function, Writer, listed
from crtgen.compiler.kernels.engine.words import bits_of

__all__ = ["FloatBlock", "FloatsWriter"]

_LANES = 4
_AT_ONCE = 4  # inputs of a pixel


@dataclass(frozen=True, slots=True)
class FloatBlock:
    """Product of ``depth`` inputs of ``tile`` pixels with the weights of ``vectors`` times four of
    ``outputs`` outputs.

    ``unroll`` inputs are unrolled. ``some`` channels of the last vector are used, or all if it is 0. ``low``
    and ``high`` are clamps, if they are finite.
    """

    tile: int
    vectors: int
    depth: int
    unroll: int
    outputs: int
    some: int
    low: float
    high: float


class FloatsWriter(Writer):
    """Writes ``block(x, y, weights, bias)``, which returns the address after these weights."""

    def __init__(self, k: FloatBlock) -> None:
        self.k = k
        self.f = f = Function(
            "block",
            "const float *x",
            "float *y",
            "const float *weights",
            "const float *bias",
            purpose=f"Pixels times the weights of {_LANES * k.vectors} outputs.",
            returns="const float *",
            keep=(1,),
        )
        x, y, weights, self.bias = f.arguments
        f.free(y)
        first = f.moved(x, "inputs of a pixel")
        self.weights = f.moved(weights, "weights", ("r0",))
        self.pixels = (first, *f.cores("inputs of a pixel", k.tile - 1))
        for before, pixel in zip(self.pixels, self.pixels[1:], strict=False):
            self.f.number(pixel, 4 * k.depth)
            f("add", pixel, pixel, before)
        self.sums = [f.vectors("sums of a pixel", k.vectors) for _ in range(k.tile)]
        self.taps = f.vectors("weights, then limits", 2 if k.tile == 1 else _AT_ONCE)

    def write(self) -> None:
        f, k = self.f, self.k
        for sums in self.sums:
            for number, total in enumerate(sums):
                f("vldrw.u32", total, f"[{self.bias}, #{16 * number}]")
        f.free(self.bias)
        self.words = f.cores("inputs", _AT_ONCE * min(2, k.tile), LISTED)
        with f.low_overhead_loop("inputs", k.depth // k.unroll):
            self._inputs(k.unroll)
        self._inputs(k.depth % k.unroll)
        self._store()

    def _inputs(self, count: int) -> None:
        for _ in range(count // _AT_ONCE):
            self._several(_AT_ONCE)
        if count % _AT_ONCE > 1:
            self._several(count % _AT_ONCE)
        if count % _AT_ONCE == 1:
            self._one()

    def _load(self, to: str) -> None:
        self.f("vldrw.u32", to, f"[{self.weights}], #16")

    def _several(self, count: int) -> None:
        # ``count`` inputs of each pixel, with their weights.
        f, alone = self.f, self.k.tile == 1
        if not alone:
            for tap in self.taps[:count]:
                self._load(tap)
        for turn, (pixel, sums) in enumerate(zip(self.pixels, self.sums, strict=True)):
            words = self.words[turn % 2 * _AT_ONCE :][:count]
            f("ldm", f"{pixel}!", listed(words))
            for number, word in enumerate(words):
                for vector, total in enumerate(sums):
                    tap = self.taps[vector % len(self.taps) if alone else number]
                    if alone:
                        self._load(tap)
                    f("vfma.f32", total, tap, word)

    def _one(self) -> None:
        f, tap, word = self.f, self.taps[0], self.words[0]
        for vector in range(self.k.vectors):
            self._load(tap)
            after = ", #4" if vector == self.k.vectors - 1 else ""
            for pixel, sums in zip(self.pixels, self.sums, strict=True):
                f("ldr", word, f"[{pixel}]{after}")
                f("vfma.f32", sums[vector], tap, word)

    def _store(self) -> None:
        f, k, (number, y, *_) = self.f, self.k, self.words
        f("ldr", y, f.kept[1])
        self._clamp(number, [total for sums in self.sums for total in sums])
        if k.some:
            f.number(number, k.some)
            f("vctp.32", number)
        for pixel, sums in enumerate(self.sums):
            for vector, total in enumerate(sums):
                if k.some:
                    f("vpst")
                f("vstrwt.32" if k.some else "vstrw.32", total, f"[{y}, #{16 * vector}]")
            if pixel < k.tile - 1:
                f.advance(y, 4 * k.outputs)

    def _clamp(self, number: str, sums: Sequence[str]) -> None:
        limits = ((self.k.low, "vmaxnm.f32"), (self.k.high, "vminnm.f32"))
        for (limit, operation), vector in zip(limits, self.taps, strict=False):
            if np.isfinite(limit):
                self.f.number(number, bits_of(limit))
                self.f("vdup.32", vector, number)
                for total in sums:
                    self.f(operation, total, total, vector)
