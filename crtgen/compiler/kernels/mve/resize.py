"""Bilinear resizing with Helium: four pixels are combined, four channels at a time.

A call computes a row of outputs. Its inputs are two rows of the image and a table, which has for each pixel
the bytes of the left and the right one from the start of a row, and their shares. Four shares of a pixel are
products in 32 bits, so that a vector takes four products and a rounded shift. Sums of int16 that need more
than 32 bits are computed in two halves (``_wide``).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.asm import LOW, Function, Writer
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.portable.resize import BilinearView, bilinear_view, lines_of, row_consts
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.resize import ResizeBilinear

__all__ = ["bilinear"]

_LANES = 4
_WRITTEN_OUT = 4  # vectors of a pixel
_ONE, _BITS = 1024, 10  # of a share


@dataclass(frozen=True, slots=True)
class _ResizedRow:
    pixels: int
    channels: int
    type: str
    size: int
    shift: int
    wide: bool


@design(ResizeBilinear, types=(DType.INT8, DType.INT16), needs="mve")
def bilinear(op: ResizeBilinear, sig: Signature, target: Target) -> Kernel:
    view, size, rows = bilinear_view(op, sig), sig.x.dtype.itemsize, sig.y.shape[0] * sig.y.shape[1]
    row = _ResizedRow(view.out_width, view.channels, view.type, size, view.shift, bool(view.wide))
    routine = _Mixed.routine(row)
    return Kernel(
        design="mve bilinear",
        template="mve/resize_bilinear.c.j2",
        view=view,
        consts=(*row_consts(op, sig), _pixels(op, sig, view)),
        work=Work(rows * routine.runs()).block("row", rows),
        routines=(routine,),
    )


def _pixels(op: ResizeBilinear, sig: Signature, view: BilinearView) -> Const:
    columns = lines_of(op, sig)[1]
    later = columns.part.astype(np.int64) * view.one // _ONE
    places = np.stack([columns.lower, columns.upper]) * sig.x.shape[3] * sig.x.dtype.itemsize
    table = np.stack([view.one - later, later, *places], axis=1).astype(np.int32)
    return Const.of("pixels", table, 4, "shares of the left and right pixel, and their first bytes")


class _Mixed(Writer):
    # ``mixed(lines, shares, table, y)``: a row of pixels between two lines, by the lines' shares.
    def __init__(self, k: _ResizedRow) -> None:
        self.k = k
        self.written_out = k.channels % _LANES == 0 and k.channels <= _LANES * _WRITTEN_OUT
        self.f = f = Function(
            "mixed",
            f"const {k.type} *const *lines",
            "const int32_t *shares",
            "const int32_t *table",
            f"{k.type} *y",
            purpose=f"{k.pixels} pixels of {k.channels} channels, each of four pixels times their shares.",
            local=0 if self.written_out else 2,
            no_alias=True,
        )
        lines, self.shares, self.table, self.y = f.arguments
        self.places = f.cores("addresses of four pixels", 4, LOW)
        f.free(lines)
        self.above, self.below = f.core("line", (lines,)), f.core("line")
        f("ldrd", self.above, self.below, f"[{lines}]")
        self.factors = f.cores("shares", 4)

    def write(self) -> None:
        f, k = self.f, self.k
        vector = self._vectors()
        if self.written_out:
            with f.low_overhead_loop("pixels", k.pixels):
                self._pixel()
                for number in range(k.channels // _LANES):
                    vector(number)
            return
        with f.counted_loop("pixels", self.places[0], k.pixels, "[sp]"):
            self._pixel()
            with f.predicated_loop("channels", 128 // _LANES, k.channels):
                vector(-1)
            f.advance(self.y, -(-k.channels % _LANES) * k.size)

    def _pixel(self) -> None:
        # The addresses of four pixels, and the shares of each, or of columns and rows.
        f, (first, second, third, fourth), shares = self.f, self.places, self.factors
        f("ldrd", shares[2], shares[3], f"[{self.table}], #8", note="shares of columns")
        if not self.k.wide:
            f("ldrd", first, second, f"[{self.shares}]")
            f("mul", shares[0], first, shares[2])
            f("mul", shares[1], second, shares[2])
            f("mul", shares[2], first, shares[3])
            f("mul", shares[3], second, shares[3])
        else:
            f("ldrd", shares[0], shares[1], f"[{self.shares}]")
        f("ldrd", second, fourth, f"[{self.table}], #8", note="bytes of columns")
        for base, to, column in (
            (self.above, first, second),
            (self.below, second, second),
            (self.above, third, fourth),
            (self.below, fourth, fourth),
        ):
            f("add", to, base, column)

    def _vectors(self) -> Callable[[int], None]:
        # A function that appends one vector: its number in the pixel, or -1 to go on from the last one.
        if self.k.wide:
            return self._wide()
        f, k = self.f, self.k
        count = min(_WRITTEN_OUT, k.channels // _LANES) if self.written_out else 1
        totals, others = f.vectors("sums", count), f.vectors("channels of a pixel", count)

        def vector(number: int) -> None:
            total, other = totals[number], others[number]
            self._load(total, 0, number)
            f("vmul.i32", total, total, self.factors[0])
            for place in range(1, 4):
                self._load(other, place, number)
                f("vmla.s32", total, other, self.factors[place])
            f("vshr.s32", other, total, "#31")
            f("vadd.i32", total, total, other, note="halves go away from zero")
            f("vrshr.s32", total, total, f"#{k.shift}")
            self._store(total)

        return vector

    def _wide(self) -> Callable[[int], None]:
        # Sums of 36 bits as ``1024 * high + low``. Between two rows 26 bits suffice; each such value is cut
        # in two before the columns' shares. Then ``high + (low >> 10)`` has the sign of the sum, by which it
        # is rounded: a half of a negative one goes down.
        f, mask = self.f, self.f.vector("ten bits")
        spare = self.factors[0]
        f.number(spare, _ONE - 1)
        f("vdup.32", mask, spare)
        high, low, other, last = f.vectors("parts of sums", 4)
        upper, lower, former, later = self.factors

        def vector(number: int) -> None:
            for total, places in ((high, (0, 1)), (other, (2, 3))):
                self._load(total, places[0], number)
                f("vmul.i32", total, total, upper)
                self._load(last, places[1], number)
                f("vmla.s32", total, last, lower)
            f("vand", low, high, mask)
            f("vand", last, other, mask)
            for part in (high, other):
                f("vshr.s32", part, part, f"#{_BITS}")
            for part in (low, high):
                f("vmul.i32", part, part, former)
            f("vmla.s32", low, last, later)
            f("vmla.s32", high, other, later)
            f("vshr.s32", last, low, f"#{_BITS}")
            f("vadd.i32", last, last, high)
            f("vshr.s32", last, last, "#31", note="-1 for negative sums")
            f("vadd.i32", low, low, last)
            f("vshr.s32", low, low, f"#{_BITS}")
            f("vadd.i32", high, high, low)
            f("vrshr.s32", high, high, f"#{_BITS}")
            self._store(high)

        return vector

    def _load(self, to: str, place: int, number: int) -> None:
        k, letter = self.k, "b" if self.k.size == 1 else "h"
        step = _LANES * k.size
        at = f"[{self.places[place]}], #{step}" if number < 0 else f"[{self.places[place]}, #{number * step}]"
        self.f(f"vldr{letter}.s32", to, at if number else f"[{self.places[place]}]")

    def _store(self, total: str) -> None:
        letter = "b" if self.k.size == 1 else "h"
        self.f(f"vstr{letter}.32", total, f"[{self.y}], #{_LANES * self.k.size}")
