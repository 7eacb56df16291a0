"""Kernels that keep samples between runs; each has its own memory."""

from dataclasses import dataclass

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import Op, Signature
from crtgen.network.ops.stream import Delay, Framer, OverlapAdd, Stacker

__all__ = ["StreamView"]


@dataclass(frozen=True, slots=True)
class StreamView:
    """An operator and its attributes. Its input has ``rows`` rows of ``inputs`` samples, and each row has a
    memory of ``memory`` samples.
    """

    op: Op
    type: str
    rows: int
    inputs: int
    memory: int


def _kernel(template: str, op: Op, sig: Signature, steps: int) -> Kernel:
    # ``steps`` is how often a row's memory is moved.
    memory = sig.inputs[1]
    rows = memory.shape[0] if len(memory.shape) > 1 else 1
    view = StreamView(op, sig.x.dtype.c_name, rows, sig.x.elements // rows, memory.elements // rows)
    kind = sig.x.dtype.value
    work = Work().block("row", rows).block("step", rows * steps)
    work.block(f"{kind} kept", memory.elements * steps).block(f"{kind} output", sig.y.elements)
    places = tuple(InPlace(i, o) for i, o in op.states)
    return Kernel(template, f"signal/{template}.c.j2", view, inplace=places, work=work)


@design(Delay)
def delay(op: Delay, sig: Signature, target: Target) -> Kernel:
    return _kernel("delay", op, sig, 1)


@design(Framer)
def framer(op: Framer, sig: Signature, target: Target) -> Kernel:
    return _kernel("framer", op, sig, sig.x.shape[-1] // op.step)


@design(Stacker)
def stacker(op: Stacker, sig: Signature, target: Target) -> Kernel:
    return _kernel("stacker", op, sig, 1)


@design(OverlapAdd)
def overlap_add(op: OverlapAdd, sig: Signature, target: Target) -> Kernel:
    return _kernel("overlap_add", op, sig, sig.x.shape[-2])
