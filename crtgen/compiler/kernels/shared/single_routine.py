"""Kernels that are a single function in assembly, without C around it."""

from collections.abc import Sequence

from crtgen.compiler.kernels.asm import Routine
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel

__all__ = ["single_routine"]


def single_routine(
    design: str, routine: Routine, consts: Sequence[Const] = (), inplace: bool = False, **rounds: float
) -> Kernel:
    """Return the kernel of a single routine. ``inplace``: the output may overwrite the input. ``rounds`` are
    the iterations of named loops.
    """
    return Kernel(
        design=design,
        template="",
        view=routine,
        consts=tuple(consts),
        inplace=(InPlace(),) if inplace else (),
        work=Work(routine.runs(**rounds)),
        routines=(routine,),
    )
