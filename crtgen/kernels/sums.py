"""What an int8 sum gives for every pair of inputs: what a cheaper form of it has to agree with."""

from dataclasses import dataclass, replace

import numpy as np

from crtgen.ir import Signature
from crtgen.ops.attrs import tensor_quant
from crtgen.ops.binary import Add, Sub
from crtgen.ops.fixedpoint import Int64

__all__ = ["EverySum", "every_sum"]


@dataclass(frozen=True, slots=True, eq=False)
class EverySum:
    """The 65,536 pairs ``x`` of int8 values and the reference's ``result`` for each, as int64.

    ``factors`` are the real factors of the two inputs in units of the output (negative for a subtracted
    one), ``limits`` the least and the greatest output.
    """

    x: tuple[Int64, Int64]
    result: Int64
    factors: tuple[float, float]
    limits: tuple[int, int]


def every_sum(op: Add | Sub, sig: Signature) -> EverySum:
    """The table of an operator on quantised int8 values."""
    every = np.arange(-128, 128, dtype=np.int64)
    x0, x1 = (a.reshape(-1) for a in np.meshgrid(every, every, indexing="ij"))
    pairs = Signature(
        tuple(replace(v, shape=x0.shape) for v in sig.inputs), (replace(sig.y, shape=x0.shape),)
    )
    (result,) = op.reference(pairs, [x0.astype(np.int8), x1.astype(np.int8)])
    params = op.parameters(sig)
    out = tensor_quant(sig.y).scale
    a, b = (tensor_quant(v).scale / out for v in sig.inputs)
    factors = (a, -b if isinstance(op, Sub) else b)
    return EverySum((x0, x1), result.astype(np.int64), factors, (params.act_min, params.act_max))
