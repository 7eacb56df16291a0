"""SELECT of int8 with the DSP extension, four elements in a word.

A condition is a byte 0 or 1. SSUB8 from 0 marks the bytes that are 0, and SEL selects by these marks. An
operand may be one value for all elements.
"""

from dataclasses import dataclass
from functools import lru_cache

from crtgen.compiler.kernels.asm import Function, Routine
from crtgen.compiler.kernels.dsp.in_words import in_words
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.compare import Select

__all__ = ["select"]


@dataclass(frozen=True, slots=True)
class SelectView:
    elements: int
    numbers: tuple[int | None, int | None]  # operands that are one constant, None for tensors


@design(Select, types=(DType.BOOL,), to=DType.INT8, needs="dsp", weights=None)
def select(op: Select, sig: Signature, target: Target) -> Kernel | None:
    condition, *others = sig.inputs
    tensors = [value for value in (condition, *others) if not value.is_constant]
    if condition.is_constant or any(value.shape != sig.y.shape for value in tensors):
        return None
    if any(value.is_constant and value.elements > 1 for value in others):
        return None
    first, second = (int(v.array().reshape(-1)[0]) if v.is_constant else None for v in others)
    routine = _select(SelectView(sig.y.elements, (first, second)))
    whole = [i for i, value in enumerate(sig.inputs) if not value.is_constant]
    return Kernel(
        design="dsp select",
        template="",
        view=None,
        inplace=tuple(InPlace(i) for i in whole),
        work=Work(routine.runs()),
        routines=(routine,),
    )


@lru_cache(maxsize=256)
def _select(k: SelectView) -> Routine:
    tensors = [f"const int8_t *{name}" for name, n in zip("ab", k.numbers, strict=True) if n is None]
    f = Function("select", "const bool *c", *tensors, "int8_t *y", purpose=f"{k.elements} elements")
    c, *pointers, y = f.arguments
    condition, zeros = f.cores("conditions; zeros", 2)
    f.number(zeros, 0)
    given = iter(pointers)
    sources = [next(given) if number is None else "" for number in k.numbers]
    words = f.cores("elements", 2)
    for word, number in zip(words, k.numbers, strict=True):
        if number is not None:
            f.number(word, (number & 0xFF) * 0x01010101)

    def load(load: str, step: int) -> None:
        f(load, condition, f"[{c}], #{step}")
        for word, source in zip(words, sources, strict=True):
            if source:
                f(load, word, f"[{source}], #{step}")
        f("ssub8", condition, zeros, condition)
        f("sel", condition, *reversed(words))
        f(load.replace("ld", "st"), condition, f"[{y}], #{step}")

    in_words(f, k.elements, load)
    return f.done()
