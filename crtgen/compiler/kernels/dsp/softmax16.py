"""Softmax of int16 with the DSP extension: the maximum of two at a time, exponentials from a table of linear
segments.
"""

from functools import cache

import numpy as np

from crtgen.compiler.kernels.asm import Function, Routine
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.words import words
from crtgen.compiler.kernels.portable.softmax import by_routines, shares_const
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import Softmax
from crtgen.network.ops.fixedpoint import multiply_by_quantized_multiplier
from crtgen.network.ops.softmax16 import Softmax16Params, exp_table

__all__ = ["Step", "power_lines", "softmax16", "solve_step"]

_EXTENT = 65535  # from the first place of the table to 0
_BITS = 7  # between two places

Step = tuple[int, int, int]
"""Step from a difference d to a place in the table: ``((d << shift) - less) * multiplier >> 32`` before the
last one, halves up.
"""


@design(Softmax, types=(DType.INT16,), needs="dsp")
def softmax16(op: Softmax, sig: Signature, target: Target) -> Kernel | None:
    """Rows of any length; None if no step gives TFLite's table positions."""
    p, depth = op.parameters(sig), sig.x.shape[-1]
    assert isinstance(p, Softmax16Params)
    step = solve_step(p)
    if step is None:
        return None
    block = 1 if target.optimize == "size" else 2
    routines = _greatest(depth), _sum(depth, step, block), _shares(depth, block)
    return by_routines("dsp softmax", sig, (power_lines(), shares_const()), routines)


def power_lines() -> Const:
    """Return ``base << 16 | slope`` for each of the 512 segments."""
    table = exp_table().astype(np.int64)
    lines = words(table[:-1] << 16 | np.diff(table))
    return Const.of("powers", lines, 4, "e^x times 2^15 and, below, its slope, for x from -10 to 0")


@cache
def solve_step(p: Softmax16Params) -> Step | None:
    """Return a step with which a single product gives the result of TFLite's two roundings for every
    difference of two int16 values.

    With a factor below one half, TFLite rounds twice, so a fraction slightly below one half is still rounded
    up.
    """
    differences = -np.arange(_EXTENT + 1, dtype=np.int64)
    wanted = np.maximum(multiply_by_quantized_multiplier(differences, p.multiplier, p.shift), -_EXTENT)
    for shift in range(max(p.shift + 1, 0), 16):
        down = shift - p.shift - 1
        multiplier = (p.multiplier + (1 << down >> 1)) >> down
        less = round(2.0 ** (31 + p.shift) / multiplier) if p.shift < 0 else 0
        for candidate in (less, less - 1, less + 1) if less else (0,):
            products = ((differences << shift) - candidate) * multiplier
            if np.array_equal(np.maximum((products + (1 << 31)) >> 32, -_EXTENT), wanted):
                return shift, multiplier, candidate
    return None


@cache
def _greatest(depth: int) -> Routine:
    f = Function("greatest", "const int16_t *x", purpose="The greatest element.", returns="int32_t")
    x = f.moved(f.arguments[0], "inputs")
    most, spare = f.core("the greatest", ("r0",)), f.core("differences")
    if depth == 1:
        f("ldrsh", most, f"[{x}]")
        return f.done()
    pair = f.core("inputs")

    def compare(count: int, place: str = f"[{x}], #4") -> None:
        for _ in range(count):
            f("ldr", pair, place)
            f("ssub16", spare, pair, most, note="marks the halves that are not less")
            f("sel", most, pair, most)

    f("ldr", most, f"[{x}], #4")
    f.rounds("pairs", depth // 2 - 1, 2, compare)
    if depth % 2:
        compare(1, f"[{x}, #-2]")
    f("sxth", spare, most)
    f("asr", most, most, "#16")
    f("cmp", most, spare)
    f("it", "lt")
    f("movlt", most, spare)
    return f.done()


@cache
def _sum(depth: int, step: Step, block: int) -> Routine:
    # ``sum(x, y, greatest, powers)``: the powers of all elements, and their sum.
    shift, multiplier, less = step
    f = Function(
        "sum",
        "const int16_t *x",
        "int16_t *y",
        "int32_t greatest",
        "const uint32_t *powers",
        purpose="The powers of all elements, and their sum.",
        returns="int32_t",
    )
    x, y, most, lines = f.arguments
    x = f.moved(x, "inputs")
    total = f.core("sum", ("r0",))
    place, line, power = f.core("place in the table"), f.core("line"), f.core("power")
    factor, last = f.constant("multiplier", multiplier), f.constant("last place", _EXTENT)
    half = f.constant("half", 1 << (_BITS - 1))
    f.number(total, 0)
    if shift:
        f("lsl", most, most, f"#{shift}")
    f.advance(most, less)

    def elements(count: int) -> None:
        for _ in range(count):
            f("ldrsh", place, f"[{x}], #2")
            f("rsb", place, most, place, f"lsl #{shift}")
            f("smmlar", place, place, factor, last)
            f("usat", place, "#16", place)
            f("lsr", power, place, f"#{_BITS}")
            f("ldr", line, f"[{lines}, {power}, lsl #2]")
            f("ubfx", place, place, "#0", f"#{_BITS}")
            f("smlabb", place, place, line, half)
            f("asr", power, line, "#16")
            f("add", power, power, place, f"asr #{_BITS}")
            f("strh", power, f"[{y}], #2")
            f("add", total, total, power)

    f.rounds("elements", depth, block, elements)
    return f.done()


@cache
def _shares(depth: int, block: int) -> Routine:
    # ``shares(y, share, shift)``: each power times a share, ``shift`` bits to the right, rounded.
    f = Function(
        "shares", "int16_t *y", "int32_t share", "int32_t shift", purpose="Each power times a share."
    )
    y, share, shift = f.arguments
    pair, first, second = f.core("powers"), f.core("products"), f.core("products")
    half = f.core("half")
    f("mov", half, "#1")
    f("lsl", half, half, shift)
    f("lsr", half, half, "#1")

    def product(result: str, part: str) -> None:
        f(f"smla{part}b", result, pair, share, half)
        f("asr", result, result, shift)
        f("usat", result, "#15", result)

    def pairs(count: int) -> None:
        for _ in range(count):
            f("ldr", pair, f"[{y}]")
            product(first, "b")
            product(second, "t")
            f("pkhbt", first, first, second, "lsl #16")
            f("str", first, f"[{y}], #4")

    f.rounds("pairs", depth // 2, block, pairs)
    if depth % 2:
        f("ldrsh", pair, f"[{y}]")
        product(first, "b")
        f("strh", first, f"[{y}]")
    return f.done()
