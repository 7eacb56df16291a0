"""The Helium micro-kernel with weights in registers: the inputs of a pixel are one vector, and many pixels
are processed.
"""

from dataclasses import dataclass
from functools import lru_cache

from crtgen.compiler.kernels.asm import EVEN, ODD, Function, Routine, Runs
from crtgen.compiler.kernels.mve.matrix import gather_sums

__all__ = ["Stationary"]

_FAR = 127  # the greatest step of VSTRB


@dataclass(frozen=True, slots=True)
class Stationary:
    """The micro-kernel: ``unroll`` pixels per iteration, whose inputs are ``pitch`` bytes apart.

    ``int4``: weights have four bits.
    """

    pitch: int
    outputs: int
    shift: int
    unroll: int
    int4: bool

    @property
    def pixel_bytes(self) -> int:
        return self.outputs

    @property
    def routine(self) -> Routine:
        return chunk_of_pixels(self)

    def runs(self, calls: int, pixels: int) -> Runs:
        return calls * self.routine.runs(rounds=pixels / calls / self.unroll)

    @property
    def ragged(self) -> bool:
        return self.outputs % 4 != 0

    @property
    def near(self) -> bool:
        return self.outputs <= _FAR


@lru_cache(maxsize=256)
def chunk_of_pixels(k: Stationary) -> Routine:
    """Write ``chunk(weights, y, x, rounds)``, which computes ``rounds`` times ``k.unroll`` pixels."""
    f = Function(
        "chunk",
        "const uint32_t *weights",
        "int8_t *y",
        "const int8_t *x",
        "uint32_t rounds",
        purpose=f"`rounds` times {k.unroll} pixels, with the weights of four channels at a time in vectors.",
        keep=(2,),
        no_alias=True,
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
        for vector in vectors[: 4 : 2 if k.int4 else 1]:
            f("vldrw.u32", vector, f"[{weights}], #16")
        for number, vector in enumerate(vectors[4:], 1):
            f("vldrw.u32", vector, f"[{weights}, #{16 * number}]")
        f("add", weights, weights, "#48")
        if k.int4:
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
