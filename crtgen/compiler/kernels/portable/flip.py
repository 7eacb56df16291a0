"""Conversion between int8 and uint8 with the same scale: inverts the highest bit of four bytes at a time."""

from functools import lru_cache

import numpy as np

from crtgen.compiler.kernels.asm import Function, Routine
from crtgen.compiler.kernels.engine.elements import elements, stored
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.portable.pointwise import every_output
from crtgen.compiler.kernels.shared.single_routine import single_routine
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import Quantize

__all__ = ["flip", "flips"]

_SIGN = 0x80
_WORD = 4  # elements
_UNROLL = {"speed": 8, "size": 2}  # words written out


def flips(op: Quantize, sig: Signature) -> bool:
    """Return True if every output is its input with the highest bit inverted."""
    outputs = every_output(op, sig).data.view(np.uint8)
    return bool((outputs == np.arange(2 * _SIGN, dtype=np.uint8) ^ _SIGN).all())


@design(Quantize, types=(DType.UINT8,), to=DType.INT8)
@design(Quantize, types=(DType.INT8,), to=DType.UINT8)
def flip(op: Quantize, sig: Signature, target: Target) -> Kernel | None:
    """Invert the highest bit, by words if the core has an instruction for four bytes; None for other scales
    and zero points.
    """
    if not flips(op, sig):
        return None
    if not target.core.thumb or target.core.narrow:
        return elements(sig, "flip", [stored(sig.y, f"a ^ {-_SIGN if sig.y.dtype is DType.INT8 else _SIGN}")])
    types = (sig.x.dtype.c_name, sig.y.dtype.c_name)
    routine = _flipped(sig.y.elements, types, target.steps(_UNROLL[target.optimize]))
    return single_routine("flip words", routine, inplace=True)


@lru_cache(maxsize=256)
def _flipped(elements: int, types: tuple[str, str], unroll: int) -> Routine:
    # ``flip(x, y)``, so many words in a round.
    f = Function("flip", f"const {types[0]} *x", f"{types[1]} *y", purpose=f"Turns {elements} highest bits.")
    x, y = f.arguments
    word = f.core("elements")

    def some(words: int) -> None:
        for _ in range(words):
            f("ldr", word, f"[{x}], #{_WORD}")
            f("eor", word, word, "#0x80808080")
            f("str", word, f"[{y}], #{_WORD}")

    words, rest = divmod(elements, _WORD)
    if words >= unroll:
        with f.repeated("words", words // unroll):
            some(unroll)
        words %= unroll
    some(words)
    for _ in range(rest):
        f("ldrb", word, f"[{x}], #1")
        f("eor", word, word, f"#{_SIGN}")
        f("strb", word, f"[{y}], #1")
    return f.done()
