"""Convolutions of up to 16 inputs by windows of one pixel: the weights of four channels stay in registers for many pixels.

The inputs of a chunk of pixels are copied to scratch first, so that outputs may lie over inputs.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import gcd

import numpy as np

from crtgen.ir import DType, Signature
from crtgen.kernels.asm import EVEN, ODD, Function, Routine
from crtgen.kernels.cost import Work
from crtgen.kernels.kernel import InPlace, Kernel, Target
from crtgen.kernels.mve.bytes import copy
from crtgen.kernels.mve.conv import requantise
from crtgen.kernels.mve.gather import windows_of_pixels
from crtgen.kernels.mve.matrix import gather_sums
from crtgen.kernels.mve.stream import LANES, Cut, stream_const
from crtgen.kernels.registry import design
from crtgen.kernels.window import Window, least_lead
from crtgen.ops import Conv2d

__all__ = ["StationaryView", "pointwise"]

_CHUNK = 64
_UNROLL = 4
_FAR = 127  # the greatest step of VSTRB


@dataclass(frozen=True, slots=True)
class StationaryView:
    """``chunks`` chunks of ``chunk`` pixels and one of ``rest``, each a multiple of ``unroll``.

    ``packed``: weights have four bits. ``line`` bytes of inputs lie between chunks; pixels that are ``step``
    bytes apart are a line of outputs each, and 0 is for neighbours.
    """

    chunks: int
    chunk: int
    rest: int
    unroll: int
    depth: int
    outputs: int
    shift: int
    packed: bool
    step: int = 0
    line: int = 0

    @property
    def pitch(self) -> int:
        """Bytes between the inputs of two pixels in scratch."""
        return LANES if self.step else self.depth

    @property
    def moving(self) -> Routine:
        """What copies the inputs of a chunk."""
        if not self.step:
            return copy()
        return windows_of_pixels(1, ((0, 0),), self.depth, False, self.step, self.pitch, self.depth % LANES)

    @property
    def ragged(self) -> bool:
        return self.outputs % 4 != 0

    @property
    def near(self) -> bool:
        """Whether a store can step to the next pixel."""
        return self.outputs <= _FAR

    @property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """How often, and how many pixels."""
        return tuple((n, size) for n, size in ((self.chunks, self.chunk), (1, self.rest)) if n and size)

    @property
    def scratch(self) -> int:
        """A load may reach behind the last pixel."""
        return -(-self.chunk * self.pitch // LANES) * LANES + LANES

    @property
    def work(self) -> Work:
        chunk, work = chunk_of_pixels(self), Work()
        for n, size in self.sizes:
            copying = self.moving.runs(pixels=size, vectors=-(-size * self.depth // LANES))
            work.assembly += n * (chunk.runs(rounds=size // self.unroll) + copying)
            work.block("chunk" if n > 1 else "chunk alone", n)
        return work


@lru_cache(maxsize=256)
def chunk_of_pixels(k: StationaryView) -> Routine:
    """``chunk(weights, y, x, rounds)``: so many times ``k.unroll`` pixels."""
    f = Function(
        "chunk",
        "const uint32_t *weights",
        "int8_t *y",
        "const int8_t *x",
        "uint32_t rounds",
        purpose=f"`rounds` times {k.unroll} pixels, with the weights of four channels at a time in vectors.",
        keep=(2,),
        apart=True,
    )
    weights, y, x, count = f.arguments
    to = f.core("outputs of a pixel", ODD)  # a low register, as VSTRB of words wants it
    weights, inputs = f.moved(weights, "weights", ODD), f.moved(x, "inputs of a pixel", ODD)
    left = f.core("channels left", ODD)
    sums = f.cores("sums", 7, EVEN)
    vectors = (*f.vectors("weights", 4), f.vector("multiplier"), f.vector("last constant"))
    several = f.vectors("inputs, then sums", 2)
    f.number(left, k.outputs)
    with f.loop("four channels", -(-k.outputs // 4)) as again:
        for vector in vectors[: 4 : 2 if k.packed else 1]:
            f("vldrw.u32", vector, f"[{weights}], #16")
        for number, vector in enumerate(vectors[4:], 1):
            f("vldrw.u32", vector, f"[{weights}, #{16 * number}]")
        f("add", weights, weights, "#48")
        if k.packed:
            for vector, other in (vectors[:2], vectors[2:4]):
                f("vshl.i8", other, vector, "#4")
                f("vshr.s8", other, other, "#4")
                f("vshr.s8", vector, vector, "#4")
        if k.ragged:
            f("vctp.32", left)
        f("ldr", inputs, f.kept[2])
        f("mov", to, y)
        f("add", y, y, "#4")
        with f.low_overhead_loop("pixels", "rounds", count):
            for pixel in range(k.unroll):
                q, four = several[pixel % 2], [sums[(4 * pixel + n) % len(sums)] for n in range(4)]
                f("vldrb.u8", q, f"[{inputs}], #{k.pitch}")
                f("ldrd", *four[:2], f"[{weights}, #-48]")
                f("ldrd", *four[2:], f"[{weights}, #-40]")
                for total, vector in zip(four, vectors, strict=False):
                    f("vmladava.s8", total, q, vector)
                gather_sums(f, q, four)
                f("vmulh.s32", q, q, vectors[4])
                f("vadd.i32", q, q, vectors[5])
                f("vqrshrnb.s32", q, q, f"#{k.shift}")
                f("vqmovnb.s16", q, q)
                if k.ragged:
                    f("vpst")
                f(
                    "vstrbt.32" if k.ragged else "vstrb.32",
                    q,
                    f"[{to}], #{k.outputs}" if k.near else f"[{to}]",
                )
                if not k.near:
                    f("add", to, to, f"#{k.outputs}")
        f("subs", left, left, "#4")
        f("bgt", again)
    return f.done()


@design(Conv2d, types=(DType.INT8,), needs="mve", weights=(1, 2), packed=True)
def pointwise(op: Conv2d, sig: Signature, target: Target) -> Kernel | None:
    """For int8; None for others, more than 16 inputs, or outputs that are clamped or not re-encoded."""
    x, w, b = sig.inputs
    if x.shape[3] > LANES:
        return None
    if target.optimize == "size":  # its code is of one layer
        return None
    window = Window.of(sig, (w.shape[1], w.shape[2]), op.stride, op.padding, op.dilation)
    if window.padded or window.taps_y * window.taps_x > 1:
        return None
    apart = not window.is_pointwise
    if apart and (window.out_width > _CHUNK or window.batch > 1):
        return None
    weights, packed = w.array().astype(np.int64).reshape(w.shape[0], -1), w.dtype is DType.INT4
    requant = requantise(op.parameters(sig), weights, b.array().astype(np.int64), packed)
    if requant is None:
        return None
    epilogue = requant.epilogue
    if epilogue.shift is None or epilogue.low is not None or epilogue.high is not None:
        return None
    outputs, depth = weights.shape
    chunk = window.out_width if apart else min(_CHUNK, window.pixels)
    chunks, rest = divmod(window.pixels, chunk)
    unroll = gcd(gcd(chunk, rest), _UNROLL)
    step = window.stride_x * depth if apart else 0
    line = window.stride_y * window.pitch if apart else chunk * depth
    view = StationaryView(chunks, chunk, rest, unroll, depth, outputs, epilogue.shift, packed, step, line)
    ends = np.minimum(np.arange(chunk, window.pixels + chunk, chunk), window.pixels)
    read = line * np.arange(1, len(ends))
    return Kernel(
        design="mve stationary",
        template="mve/stationary.c.j2",
        view=view,
        consts=(stream_const(weights, [Cut(0, depth)], requant, 4, "per four channels"),),
        scratch=view.scratch,
        inplace=(InPlace(lead=least_lead(ends[:-1] * outputs, read)),),
        work=view.work,
        routines=(chunk_of_pixels(view), view.moving),
    )
