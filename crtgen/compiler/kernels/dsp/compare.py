"""Comparisons of int8 with the DSP extension, four elements in a word.

SSUB8 marks the bytes of the first operand that are not less than those of the second; SEL writes 0 and 1 by
these marks. Equal bytes are those that are not less either way. A comparison with one constant is a table of
256 results; if it rises once, falls once, or differs at one value, it is a comparison of the stored values.
So is that of two tensors whose scale and zero point are equal.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from crtgen.compiler.kernels.asm import Function, Routine
from crtgen.compiler.kernels.dsp.in_words import in_words
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import Array, DType, Signature
from crtgen.network.ops import INT8
from crtgen.network.ops.compare import Comparison, Greater

__all__ = ["compare", "form_of"]

_OPPOSITE = {">": "<", "<": ">", ">=": "<=", "<=": ">=", "==": "==", "!=": "!="}


@dataclass(frozen=True, slots=True)
class CompareView:
    elements: int
    sign: str
    number: int | None  # None if a second tensor is compared with


@design(Comparison, types=(DType.INT8,), to=DType.BOOL, needs="dsp", weights=None)
def compare(op: Comparison, sig: Signature, target: Target) -> Kernel | None:
    tensors = [i for i, value in enumerate(sig.inputs) if not value.is_constant]
    if sig.x.quant is None or any(sig.inputs[i].shape != sig.y.shape for i in tensors):
        return None
    form: tuple[str, int | None] | None
    if len(tensors) == 1:
        form = _constant_form(op, sig, tensors[0])
    else:
        form = (op.sign, None) if _are_alike(sig) else None
    if form is None:
        return None
    routine = _compare(CompareView(sig.y.elements, *form))
    return Kernel(
        design="dsp compare",
        template="",
        view=None,
        inplace=tuple(InPlace(i) for i in tensors),
        work=Work(routine.runs()),
        routines=(routine,),
    )


def _are_alike(sig: Signature) -> bool:
    # One after the other, in case the scale is so small that neighbours are equal.
    first, second = sig.inputs
    if first.quant != second.quant:
        return False
    every = INT8.every_number()
    x, y = (replace(value, shape=(len(every) - 1,)) for value in (first, sig.y))
    (rises,) = Greater().reference(Signature((x, x), (y,)), [every[1:], every[:-1]])
    return bool(rises.all())


def _constant_form(op: Comparison, sig: Signature, at: int) -> tuple[str, int] | None:
    x, other = sig.inputs[at], sig.inputs[1 - at]
    if other.elements > 1:
        return None
    every = INT8.every_number()
    given: list[Array] = [other.array().reshape(1)] * 2
    values = [replace(other, shape=(1,), data=given[1 - at])] * 2
    given[at], values[at] = every, replace(x, shape=every.shape)
    (results,) = op.reference(Signature(tuple(values), (replace(sig.y, shape=every.shape),)), given)
    return form_of(results.astype(bool))


def form_of(results: npt.NDArray[np.bool_]) -> tuple[str, int] | None:
    """Return the sign and the int8 value by which a comparison gives these results for -128 to 127."""
    true = int(results.sum())
    if true in (0, len(results)):
        return (">=" if true else "<", INT8.low)
    if true in (1, len(results) - 1):
        return ("==" if true == 1 else "!=", INT8.low + int(np.argmax(results == (true == 1))))
    changes = np.flatnonzero(results[1:] != results[:-1])
    if len(changes) > 1:
        return None
    return ("<" if results[0] else ">=", INT8.low + 1 + int(changes[0]))


@lru_cache(maxsize=256)
def _compare(k: CompareView) -> Routine:
    others = () if k.number is not None else ("const int8_t *b",)
    f = Function("compare", "const int8_t *a", *others, "bool *y", purpose=f"{k.elements} elements")
    a, *pointers, y = f.arguments
    word, spare, other, ones, zeros = f.cores("elements; results; the others; 1 in each byte; 0", 5)
    f.number(ones, 0x01010101)
    f.number(zeros, 0)
    if k.number is not None:
        f.number(other, (k.number & 0xFF) * 0x01010101)
    # a > b is b < a, and a <= b is b >= a: so each is by >=, or its opposite
    sign, first, second = k.sign, word, other
    if sign in (">", "<="):
        sign, first, second = _OPPOSITE[sign], second, first
    chosen = (ones, zeros) if sign in (">=", "==") else (zeros, ones)

    def load(load: str, step: int) -> None:
        f(load, word, f"[{a}], #{step}")
        for pointer in pointers:
            f(load, other, f"[{pointer}], #{step}")
        if sign in ("==", "!="):
            f("ssub8", spare, word, other)
            f("sel", spare, *chosen)
            f("ssub8", word, other, word)
            f("sel", word, spare, chosen[1])
        else:
            f("ssub8", word, first, second)
            f("sel", word, *chosen)
        f(load.replace("ld", "st"), word, f"[{y}], #{step}")

    in_words(f, k.elements, load)
    return f.done()
