"""Bilinear resizing with the DSP extension: first two rows are combined into one, then two columns."""

from collections.abc import Callable
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


@design(ResizeBilinear, types=(DType.INT8, DType.INT16), needs="dsp")
def bilinear(op: ResizeBilinear, sig: Signature, target: Target) -> Kernel:
    """Compute the output row by row, with the sums of two input rows in scratch."""
    _, _, width, channels = sig.x.shape
    rows, view = sig.y.shape[0] * sig.y.shape[1], bilinear_view(op, sig)
    down = _down(width * channels) if sig.x.dtype is DType.INT8 else _down16(width * channels)
    across = _across16 if view.wide else _across
    routines = down, across(sig.y.shape[2], channels, view.type, view.shift)
    return Kernel(
        design="dsp bilinear",
        template="dsp/resize_bilinear.c.j2",
        view=view,
        consts=bilinear_consts(op, sig),
        scratch=4 * width * channels,
        work=Work(rows * Runs.sum(routine.runs() for routine in routines)).block("row", rows),
        routines=routines,
    )


def _between(name: str, kind: str, elements: int) -> tuple[Function, str, tuple[str, ...]]:
    # ``name(to, above, below, lower)``, both rows' shares in halves of a word, and four registers.
    f = Function(
        name,
        "int32_t *to",
        f"const {kind} *above",
        f"const {kind} *below",
        "int32_t lower",
        purpose=f"{elements} elements between two rows.",
    )
    *_, lower = f.arguments
    shares = f.core("shares of both rows")
    f("rsb", shares, lower, f"#{_ONE}")
    f("orr", shares, shares, lower, "lsl #16")
    f.free(lower)
    return f, shares, f.cores("elements, then sums", _FOUR, LISTED)


@cache
def _down(elements: int) -> Routine:
    # ``down(to, above, below, lower)``: between two rows, times 1024, by the share of the second.
    f, shares, sums = _between("down", "int8_t", elements)
    to, above, below, _ = f.arguments
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
def _down16(elements: int) -> Routine:
    # As ``_down`` for int16: a word has two elements.
    f, shares, sums = _between("down16", "int16_t", elements)
    to, above, below, _ = f.arguments

    def some(count: int) -> None:
        # Two elements for every word; those of the second row replace the first one's.
        pairs = [(sums[n], sums[n + 1]) for n in range(0, count, 2)]
        for source, which in ((above, 0), (below, 1)):
            for pair in pairs:
                f("ldr", pair[which], f"[{source}], #4")
        for first, second in pairs:
            f("pkhbt", spare, first, second, "lsl #16")
            f("pkhtb", second, second, first, "asr #16")
            f("smuad", first, spare, shares)
            f("smuad", second, second, shares)
        f("stm", f"{to}!", listed(sums[:count]))

    spare = f.core("pixels of two rows")
    f.rounds("words", elements // 2, 2, lambda words: some(2 * words))
    if elements % 2:
        f("ldrsh", spare, f"[{above}]")
        f("ldrsh", lower := sums[0], f"[{below}]")
        f("pkhbt", spare, spare, lower, "lsl #16")
        f("smuad", spare, spare, shares)
        f("str", spare, f"[{to}]")
    return f.done()


@cache
def _across(pixels: int, channels: int, kind: str, shift: int) -> Routine:
    # ``across(row, y, columns, shares)``: a row of outputs between elements of ``row``, for sums of 32 bits.
    f, step = _line("across", pixels, channels, kind, 1 << shift - 10)
    total, other = f.cores("elements", 2)
    scale = f.constant("a share of two in 2^32", 1 << (32 - shift))

    def element(left: str, right: str, former: str, later: str) -> str:
        f("ldr", total, f"[{left}], #4")
        f("ldr", other, f"[{right}], #4")
        f("mul", total, total, former)
        f("mla", total, other, later, total)
        f("add", total, total, total, "asr #31", note="halves go away from zero")
        f("smmulr", total, total, scale)
        return total

    step(element)
    return f.done()


@cache
def _across16(pixels: int, channels: int, kind: str, shift: int) -> Routine:
    # As ``_across`` for sums of 36 bits.
    f, step = _line("across16", pixels, channels, kind, _ONE)
    low, high = f.cores("sums", 2)
    first, second = f.cores("elements", 2)

    def element(left: str, right: str, former: str, later: str) -> str:
        f("ldr", first, f"[{left}], #4")
        f("ldr", second, f"[{right}], #4")
        f("smull", low, high, first, former)
        f("smlal", low, high, second, later)
        f("adds", low, low, high, "asr #31", note="halves go away from zero")
        f("adc", high, high, high, "asr #31")
        f("adds", low, low, f"#{1 << _TWICE - 1}")
        f("adc", high, high, "#0")
        f("lsr", low, low, f"#{_TWICE}")
        f("orr", low, low, high, f"lsl #{32 - _TWICE}")
        return low

    step(element)
    return f.done()


_Element = Callable[[str, str, str, str], str]


def _line(
    name: str, pixels: int, channels: int, kind: str, one: int
) -> tuple[Function, Callable[[_Element], None]]:
    # A function for a line of outputs, and its loops: they call what appends the code of one element.
    f = Function(
        name,
        "const int32_t *row",
        f"{kind} *y",
        "const int32_t *columns",
        "const int32_t *shares",
        purpose=f"{pixels} pixels of {channels} channels between columns of a row.",
    )
    row, y, columns, shares = f.arguments
    left, right = f.cores("pixels of the row", 2)
    former, later = f.core("share of the left one"), f.core("share of the right one")
    store, size = ("strb", 1) if kind == "int8_t" else ("strh", 2)

    def step(element: _Element) -> None:
        unroll = next(n for n in (4, 3, 2, 1) if channels % n == 0)
        with f.repeated("pixels", pixels):
            f("ldr", left, f"[{columns}], #4")
            f("ldr", right, f"[{columns}], #4")
            f("ldr", later, f"[{shares}], #4")
            f("add", left, row, left, "lsl #2")
            f("add", right, row, right, "lsl #2")
            f("rsb", former, later, f"#{one}")
            with f.repeated("channels", channels // unroll):
                for _ in range(unroll):
                    f(store, element(left, right, former, later), f"[{y}], #{size}")

    return f, step
