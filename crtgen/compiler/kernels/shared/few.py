"""Fully connected layers of one row with fewer than four outputs: sums in assembly, requantised in C.

Here an input is used for hardly more than one product, so it is read in place.
"""

from collections.abc import Callable
from dataclasses import dataclass

from crtgen.compiler.kernels.arithmetic.epilogue import Epilogue, folded_bias, integer_epilogue
from crtgen.compiler.kernels.asm import Routine, Runs
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel
from crtgen.compiler.kernels.engine.window import is_row
from crtgen.compiler.kernels.engine.words import by_output
from crtgen.network.ir import Array, Signature
from crtgen.network.ops import Conv2d, FullyConnected
from crtgen.network.ops.fixedpoint import Int8

__all__ = ["MOST", "FewView", "few_outputs"]

MOST = 3  # outputs
_DEEPEST = 1 << 16  # products of int8 of which 32 bits hold the sum


@dataclass(frozen=True, slots=True)
class FewView:
    outputs: int
    epilogue: Epilogue


def few_outputs(
    design: str,
    op: FullyConnected | Conv2d,
    sig: Signature,
    routine: Callable[[int, int], tuple[Routine, Runs]],
    order: Callable[[Int8], Array],
) -> Kernel | None:
    """Return the kernel; None for more outputs, several rows, and sums that need too many bits.

    ``routine`` returns ``sums(x, weights, sums)`` and its work, given the numbers of outputs and inputs;
    ``order`` arranges ``[outputs, inputs]`` as the routine reads them.
    """
    weights = by_output(sig.inputs[1])
    outputs, depth = weights.shape
    if outputs > MOST or depth >= _DEEPEST or not is_row(op, sig):
        return None
    bias = folded_bias(sig, op.parameters(sig), tuple(range(1, len(sig.inputs[1].shape))))
    epilogue, scales = integer_epilogue(sig, op.parameters(sig), bias)
    sums, runs = routine(outputs, depth)
    ordered = order(weights)
    work = Work(runs).block("row", 1)
    epilogue.work(work, 1, 1, outputs)
    return Kernel(
        design=design,
        template="few.c.j2",
        view=FewView(outputs, epilogue),
        consts=(
            Const("weights", "int8", ordered.shape, lambda: order(weights), 4, "as they are read"),
            Const.of("bias", bias, bias.dtype.itemsize, "less zero point times weights"),
            *scales,
        ),
        inplace=(InPlace(),),
        work=work,
        routines=(sums,),
    )
