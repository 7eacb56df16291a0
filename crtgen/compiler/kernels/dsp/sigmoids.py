"""Logistic and tanh of int16 with the DSP extension: a table of linear segments, one per word, two elements
at a time.

Between two entries of TFLite's table the function is linear. With ``s`` = 0 or -1 for the sign of the
argument ``a``, TFLite's result is ``(a * slope + (height ^ s) + middle) >> shift``.
"""

from functools import cache

import numpy as np

from crtgen.compiler.kernels.asm import Function, Routine
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.words import Words, words
from crtgen.compiler.kernels.shared.single_routine import single_routine
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import INT16, Logistic, Tanh
from crtgen.network.ops.sigmoid16 import Sigmoid16Params, sigmoid_places

__all__ = ["SigmoidLines", "sigmoid", "sigmoid_lines", "sigmoid_table", "sigmoids"]

_SLOPE = 22  # where the slope begins in a word; below is the height, in steps of a place
_LAST = 255  # the place from which on the function has one value


@design(Logistic, Tanh, types=(DType.INT16,), needs="dsp")
def sigmoid(op: Logistic | Tanh, sig: Signature, target: Target) -> Kernel:
    p, logistic = op.parameters(sig), isinstance(op, Logistic)
    assert isinstance(p, Sigmoid16Params)
    routine = sigmoids(sig.x.elements, p, logistic, 2 if target.optimize == "size" else 4)
    return single_routine(f"dsp {op.name}", routine, [sigmoid_table("lines", logistic)], inplace=True)


def sigmoid_table(name: str, logistic: bool) -> Const:
    note = "slope << 22 | height at 0, for each place of 65536 / (1 + exp(-i / 24))"
    return Const.of(name, sigmoid_lines(logistic), 4, note)


def sigmoid_lines(logistic: bool) -> Words:
    """Return ``[256]``: the segment between each entry and the next, for twice the function's distance from
    1/2.
    """
    places, slopes = (n.astype(np.int64) for n in sigmoid_places(logistic))
    heights = places - (1 << 15) - np.arange(_LAST + 1) * slopes
    return words(slopes << _SLOPE | heights)


@cache
def sigmoids(elements: int, p: Sigmoid16Params, logistic: bool, block: int) -> Routine:
    """Return ``sigmoid(x, y, lines)``, for a ``block`` of elements in a round."""
    name = "logistic" if logistic else "tanh"
    f = Function(
        name,
        "const int16_t *x",
        "int16_t *y",
        "const uint32_t *lines",
        purpose=f"{name.capitalize()} of {elements} elements.",
    )
    x, y, lines = f.arguments
    line = SigmoidLines(f, p, logistic, lines)
    pair, first, second = f.core("elements"), f.core("results"), f.core("results")

    def two() -> None:
        f("ldr", pair, f"[{x}], #4")
        line(first, pair, "b")
        line(second, pair, "t")
        f("asr", first, first, f"#{line.shift}")
        f("pkhbt", first, first, second, f"lsl #{16 - line.shift}")
        f("str", first, f"[{y}], #4")

    rounds, rest = divmod(elements, block)
    if rounds:
        with f.repeated("elements", rounds):
            for _ in range(block // 2):
                two()
    if rest >= 2:
        two()
    if rest % 2:
        f("ldrsh", pair, f"[{x}]")
        line(first, pair, "b")
        f("asr", first, first, f"#{line.shift}")
        f("strh", first, f"[{y}]")
    return f.done()


class SigmoidLines:
    """Computes results from halfwords, still shifted left by ``shift`` bits; the table is in a register."""

    def __init__(self, f: Function, p: Sigmoid16Params, logistic: bool, lines: str) -> None:
        self.f, self.p, self.lines = f, p, lines
        self.bits, self.shift = (9, 10) if logistic else (8, 8)
        # where it is reached, the last place does not go on where the line before it ends
        self.exact = logistic and -INT16.low * p.multiplier >> p.shift >= _LAST << self.bits
        self.factor = f.constant("multiplier", p.multiplier)
        self.half = f.constant("half", 1 << p.shift >> 1) if p.shift else ""
        self.middle = f.constant("middle", (1 << 24) + (1 << 9) if logistic else 1 << 7)
        self.sign, self.line = f.core("sign, height"), f.core("place, line, slope")

    def __call__(self, result: str, pair: str, half: str) -> None:
        # Appends the instructions for a half, ``b`` or ``t``.
        f, sign, line = self.f, self.sign, self.line
        if self.half:
            f(f"smla{half}b", result, pair, self.factor, self.half)
            f("asr", result, result, f"#{self.p.shift}")
        else:
            f(f"smul{half}b", result, pair, self.factor)
        f("asr", sign, result, "#31")
        f("eor", line, result, sign)
        if self.exact:
            f("sub", line, line, sign)
        f("usat", line, "#8", line, f"asr #{self.bits}")
        f("ldr", line, f"[{self.lines}, {line}, lsl #2]")
        f("eor", sign, sign, line, f"lsl #{self.bits}")
        f("lsr", line, line, f"#{_SLOPE}")
        f("mla", result, result, line, sign)
        f("add", result, result, self.middle)
