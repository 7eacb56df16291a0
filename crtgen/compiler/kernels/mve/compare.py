"""Comparisons of int8 with one constant, with Helium: a table of 256 results.

For two tensors VCMP and VPSEL take 0.3 to 0.5 instructions for each element instead of 11. They were dropped:
the proof follows no predicate that depends on an input in a loop with tail predication.
"""

from dataclasses import replace

import numpy as np

from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.mve.elements import (
    BYTES,
    StoreForm,
    elementwise,
    walk,
)
from crtgen.compiler.kernels.mve.unary import looked_up
from crtgen.network.ir import Array, DType, Signature
from crtgen.network.ops.compare import Comparison

__all__ = ["tabulated"]

_BOOLS = StoreForm(lanes=BYTES, store="vstrb.8", step=BYTES)


@design(Comparison, types=(DType.INT8,), needs="mve", to=DType.BOOL, weights=None)
def tabulated(op: Comparison, sig: Signature, target: Target) -> Kernel | None:
    """Compare with a single constant by a table of 256 results; None for other operands."""
    at = next((i for i, value in enumerate(sig.inputs) if not value.is_constant), 0)
    x, other = sig.inputs[at], sig.inputs[1 - at]
    if not other.is_constant or other.elements > 1 or x.shape != sig.y.shape or x.quant is None:
        return None
    every = np.arange(256, dtype=np.uint8).view(np.int8)
    given: list[Array] = [other.array().reshape(1)] * 2
    given[at] = every
    values = [replace(other, shape=(1,), data=given[1 - at])] * 2
    values[at] = replace(x, shape=(256,))
    (results,) = op.reference(Signature(tuple(values), (replace(sig.y, shape=(256,)),)), given)
    table = Const.of("table", results.astype(np.uint8), 1, "by the input's bits as an unsigned number")
    alone = Signature((x,), sig.outputs)
    kernel = elementwise("mve compare table", alone, target, walk(alone), looked_up, _BOOLS, [table])
    return kernel and replace(kernel, inplace=(InPlace(at),))
