"""Sums or maxima of the columns of an int8 or int16 matrix with Helium."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from crtgen.compiler.kernels.asm import Function, Routine

__all__ = ["Columns", "maxima", "sums"]

_LETTERS = {1: "b", 2: "h"}  # of loads and stores, by the bytes of a number


@dataclass(frozen=True, slots=True)
class Columns:
    """An image of ``rows`` rows, ``pitch`` bytes apart, each with ``blocks * unroll`` pixels ``step`` bytes
    apart.

    Elements have ``size`` bytes, and a vector holds ``lanes`` of them; sums have twice the bytes. With
    ``given``, the caller passes the numbers of rows and blocks. If ``rest`` is not 0, only that many columns
    of the vector are read.
    """

    rest: int
    rows: int
    blocks: int
    unroll: int
    step: int
    pitch: int = 0
    given: bool = False
    size: int = 1

    @property
    def lanes(self) -> int:
        return 16 // self.size


@lru_cache(maxsize=256)
def sums(k: Columns) -> Routine:
    """Write ``sums(x, to, rows, pixels)``: sums of a vector's columns, or of half of them if ``rest`` columns
    fit there.
    """
    half, bits = k.lanes // 2, 16 * k.size
    writer = _ColumnsWriter(k, "sums", f"int{bits}_t *to")
    f = writer.f
    totals = f.vectors("sums", 1 if 0 < k.rest <= half else 2)
    pixels = f.vectors("columns of a pixel", len(totals))
    for total in totals:
        f(f"vmov.i{bits}", total, "#0")
    partial = k.rest % half
    writer.mask(bits, partial)

    def pixel(x: str) -> None:
        for number, vector in enumerate(pixels):
            place = f"[{x}, #8]" if number else f"[{x}]"
            writer.load(f"s{bits}", vector, place, partial > 0 and number == len(pixels) - 1)
        f("add", x, x, writer.step)
        for total, vector in zip(totals, pixels, strict=True):
            f(f"vadd.i{bits}", total, total, vector)

    writer.write(pixel)
    store = {16: "vstrh.16", 32: "vstrw.32"}[bits]
    for number, total in enumerate(totals):
        f(store, total, f"[{writer.to}, #{16 * number}]")
    return f.done()


@lru_cache(maxsize=256)
def maxima(k: Columns, low: int, high: int | None) -> Routine:
    """Write ``maxima(x, y, rows, pixels)``: the maximum of each column of a vector, within ``low..high``."""
    bits = 8 * k.size
    writer = _ColumnsWriter(k, "maxima", f"int{bits}_t *y")
    f = writer.f
    most, vector = f.vector("maxima"), f.vector("columns of a pixel")
    f.number(writer.spare, low)
    f(f"vdup.{bits}", most, writer.spare)
    writer.mask(bits, k.rest)

    def pixel(x: str) -> None:
        writer.load(str(bits), vector, f"[{x}]", k.rest > 0)
        f("add", x, x, writer.step)
        f(f"vmax.s{bits}", most, most, vector)

    writer.write(pixel)
    if high is not None:
        f.number(writer.spare, high)
        f(f"vdup.{bits}", vector, writer.spare)
        f(f"vmin.s{bits}", most, most, vector)
    if k.rest:
        f("vpst")
    f(f"vstr{_LETTERS[k.size]}{'t' if k.rest else ''}.{bits}", most, f"[{writer.to}]")
    return f.done()


class _ColumnsWriter:
    def __init__(self, k: Columns, name: str, to: str) -> None:
        given = ("uint32_t rows", "uint32_t pixels") if k.given else ()
        self.k = k
        self.f = f = Function(name, f"const int{8 * k.size}_t *x", to, *given, purpose="Columns of a window.")
        self.x, self.to, *self.given = f.arguments
        self.spare = f.core("a number")
        self.step = f.constant("bytes of a pixel", k.step)

    def mask(self, bits: int, columns: int) -> None:
        if columns:
            self.f.number(self.spare, columns)
            self.f(f"vctp.{bits}", self.spare)

    def load(self, kind: str, vector: str, place: str, masked: bool) -> None:
        if masked:
            self.f("vpst")
        self.f(f"vldr{_LETTERS[self.k.size]}{'t' if masked else ''}.{kind}", vector, place)

    def write(self, pixel: Callable[[str], None]) -> None:
        f, k = self.f, self.k
        if k.given:
            rows, pixels = self.given
            at = f.core("inputs of a row")
            with f.loop("rows", "rows") as again:
                f("mov", at, self.x)
                with f.low_overhead_loop("pixels", "pixels", pixels):
                    pixel(at)
                f.advance(self.x, k.pitch)
                f("subs", rows, rows, "#1")
                f("bne", again)
            return
        moved = k.blocks * k.unroll * k.step
        with f.repeated("rows", k.rows):
            with f.low_overhead_loop("pixels", k.blocks):
                for _ in range(k.unroll):
                    pixel(self.x)
            if k.rows > 1:
                f.advance(self.x, k.pitch - moved)
