"""SELECT of int8 with Helium, sixteen elements at a time: ``b + (a - b) c``, since a condition c is 0 or 1.

All is modulo 256. VPSEL would save an instruction, but the proof follows no predicate that depends on an
input in a loop with tail predication.
"""

from dataclasses import replace

from crtgen.compiler.kernels.engine.kernel import InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.mve.elements import (
    BYTES,
    ElementSteps,
    Operands,
    StoreForm,
    elementwise,
    spread,
    walk,
)
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.compare import Select

__all__ = ["select"]

_BYTES = StoreForm(lanes=BYTES, store="vstrb.8", step=BYTES)


@design(Select, types=(DType.BOOL,), to=DType.INT8, needs="mve", weights=None)
def select(op: Select, sig: Signature, target: Target) -> Kernel | None:
    taken, *others = sig.inputs
    places = [i for i, value in enumerate(sig.inputs) if not value.is_constant]
    if taken.is_constant or any(sig.inputs[i].shape != sig.y.shape for i in places):
        return None
    if any(value.is_constant and value.elements > 1 for value in others):
        return None
    numbers = [int(v.array().reshape(-1)[0]) if v.is_constant else None for v in others]

    def steps(o: Operands) -> ElementSteps:
        f, (conditions, *pointers) = o.f, o.inputs
        condition, chosen, *operands = f.vectors("conditions; results; operands", 4)
        for operand, number in zip(operands, numbers, strict=True):
            if number is not None:
                spread(f, operand, number, 8)
        given = iter(pointers)
        moving = [(v, next(given)) for v, number in zip(operands, numbers, strict=True) if number is None]
        a, b = operands

        def vector() -> str:
            f("vldrb.8", condition, f"[{conditions}], #{BYTES}")
            for operand, pointer in moving:
                f("vldrb.8", operand, f"[{pointer}], #{BYTES}")
            f("vsub.i8", chosen, a, b)
            f("vmul.i8", chosen, chosen, condition)
            f("vadd.i8", chosen, chosen, b)
            return chosen

        return ElementSteps(vector)

    alone = Signature(tuple(sig.inputs[i] for i in places), sig.outputs)
    kernel = elementwise("mve select", alone, target, walk(alone), steps, _BYTES)
    return kernel and replace(kernel, inplace=tuple(InPlace(i) for i in places))
