"""Bilinear resizing with the DSP extension: first two rows are combined into one, then two columns."""

from functools import cache

from crtgen.compiler.kernels.asm import LISTED, Function, Routine, Runs, listed
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.portable.resize import bilinear_consts, bilinear_view
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.resize import ResizeBilinear

__all__ = ["bilinear"]

_ONE = 1024  # of a share
_FOUR = 4  # elements of a word
_TWICE = 2 * 10  # bits of two shares


@design(ResizeBilinear, types=(DType.INT8,), needs="dsp")
def bilinear(op: ResizeBilinear, sig: Signature, target: Target) -> Kernel:
    """Compute the output row by row, with the sums of two input rows in scratch."""
    _, _, width, channels = sig.x.shape
    rows = sig.y.shape[0] * sig.y.shape[1]
    routines = _down(width * channels), _across(sig.y.shape[2], channels)
    return Kernel(
        design="dsp bilinear",
        template="dsp/resize_bilinear.c.j2",
        view=bilinear_view(op, sig),
        consts=bilinear_consts(op, sig),
        scratch=4 * width * channels,
        work=Work(rows * Runs.sum(routine.runs() for routine in routines)).block("row", rows),
        routines=routines,
    )


@cache
def _down(elements: int) -> Routine:
    # ``down(to, above, below, lower)``: between two rows, times 1024, by the share of the second.
    f = Function(
        "down",
        "int32_t *to",
        "const int8_t *above",
        "const int8_t *below",
        "int32_t lower",
        purpose=f"{elements} elements between two rows.",
    )
    to, above, below, lower = f.arguments
    shares = f.core("shares of both rows")
    f("rsb", shares, lower, f"#{_ONE}")
    f("orr", shares, shares, lower, "lsl #16")
    f.free(lower)
    sums = f.cores("elements, then sums", _FOUR, LISTED)
    first, second = f.cores("elements 0 and 2", 2)
    if elements // _FOUR:
        with f.repeated("words", elements // _FOUR):
            f("ldr", first, f"[{above}], #4")
            f("ldr", second, f"[{below}], #4")
            f("sxtb16", sums[1], first, "ror #8")
            f("sxtb16", sums[3], second, "ror #8")
            f("sxtb16", first, first)
            f("sxtb16", second, second)
            f("pkhbt", sums[0], first, second, "lsl #16")
            f("pkhtb", sums[2], second, first, "asr #16")
            f("pkhbt", first, sums[1], sums[3], "lsl #16")
            f("pkhtb", sums[3], sums[3], sums[1], "asr #16")
            for total, pair in zip(sums, (sums[0], first, sums[2], sums[3]), strict=True):
                f("smuad", total, pair, shares)
            f("stm", f"{to}!", listed(sums))
    for _ in range(elements % _FOUR):
        f("ldrsb", first, f"[{above}], #1")
        f("ldrsb", second, f"[{below}], #1")
        f("pkhbt", first, first, second, "lsl #16")
        f("smuad", first, first, shares)
        f("str", first, f"[{to}], #4")
    return f.done()


@cache
def _across(pixels: int, channels: int) -> Routine:
    # ``across(row, y, columns, shares)``: a row of outputs between elements of ``row``.
    f = Function(
        "across",
        "const int32_t *row",
        "int8_t *y",
        "const int32_t *columns",
        "const int32_t *shares",
        purpose=f"{pixels} pixels of {channels} channels between columns of a row.",
    )
    row, y, columns, shares = f.arguments
    left, right = f.cores("pixels of the row", 2)
    former, later = f.core("share of the left one"), f.core("share of the right one")
    total, other = f.cores("elements", 2)
    scale = f.constant("a share of two in 2^32", 1 << (32 - _TWICE))
    unroll = next(n for n in (4, 3, 2, 1) if channels % n == 0)
    with f.repeated("pixels", pixels):
        f("ldr", left, f"[{columns}], #4")
        f("ldr", right, f"[{columns}], #4")
        f("ldr", later, f"[{shares}], #4")
        f("add", left, row, left, "lsl #2")
        f("add", right, row, right, "lsl #2")
        f("rsb", former, later, f"#{_ONE}")
        with f.repeated("channels", channels // unroll):
            for _ in range(unroll):
                f("ldr", total, f"[{left}], #4")
                f("ldr", other, f"[{right}], #4")
                f("mul", total, total, former)
                f("mla", total, other, later, total)
                f("add", total, total, total, "asr #31", note="halves go away from zero")
                f("smmulr", total, total, scale)
                f("strb", total, f"[{y}], #1")
    return f.done()
