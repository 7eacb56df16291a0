"""Clamps of int8 with the DSP extension, four elements in a word: SSUB8 compares, SEL selects."""

from dataclasses import dataclass
from functools import lru_cache

from crtgen.compiler.kernels.arithmetic.requant import clamp_limits
from crtgen.compiler.kernels.asm import Function, Routine
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.shared.single_routine import single_routine
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.activation import Relu

__all__ = ["ClampView", "clamp"]

_BLOCK = 16  # elements at a time


@dataclass(frozen=True, slots=True)
class ClampView:
    """Limits of ``elements`` elements: ``low`` and ``high``, each None if it equals the limit of int8."""

    elements: int
    low: int | None
    high: int | None

    @property
    def blocks(self) -> int:
        return self.elements // _BLOCK

    @property
    def rest(self) -> int:
        return self.elements % _BLOCK


@lru_cache(maxsize=256)
def clamp_all(k: ClampView) -> Routine:
    """Write ``clamp(x, y)``, which clamps all elements, four at a time."""
    f = Function("clamp", "const int8_t *x", "int8_t *y", purpose=f"Clamps {k.elements} elements.")
    x, y = f.arguments
    word, spare = f.core("elements"), f.core("differences")
    ends = (("lt", k.low), ("gt", k.high))
    limits = [(beyond, limit, f.core("a limit")) for beyond, limit in ends if limit is not None]
    for _, limit, register in limits:
        f.number(register, (limit & 0xFF) * 0x01010101)
    if k.blocks:
        with f.repeated("blocks", k.blocks):
            for _ in range(_BLOCK // 4):
                f("ldr", word, f"[{x}], #4")
                for beyond, _, register in limits:
                    pair = (word, register) if beyond == "lt" else (register, word)
                    f("ssub8", spare, *pair, note="marks the bytes that are not less")
                    f("sel", word, word, register)
                f("str", word, f"[{y}], #4")
    if k.rest:
        with f.repeated("elements", k.rest):
            f("ldrsb", word, f"[{x}], #1")
            for beyond, limit, _ in limits:
                f("cmp", word, f"#{limit}")
                f("it", beyond)
                f(f"mov{beyond}", word, f"#{limit}")
            f("strb", word, f"[{y}], #1")
    return f.done()


@design(Relu, types=(DType.INT8,), needs="dsp")
def clamp(op: Relu, sig: Signature, target: Target) -> Kernel | None:
    if sig.x.quant != sig.y.quant:
        return None
    params = op.parameters(sig)
    low, high = clamp_limits(params.act_min, params.act_max)
    view = ClampView(sig.x.elements, low, high)
    routine = clamp_all(view)
    return single_routine("dsp_clamp", routine, inplace=True)
