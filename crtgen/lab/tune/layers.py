"""The layers of a model that have a choice, and the parts of each of their kernels."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from crtgen import api
from crtgen.compiler.kernels import Kernel, Target
from crtgen.compiler.kernels.engine.variants import Candidate, candidates, content_of
from crtgen.compiler.plan import Call, Step
from crtgen.compiler.tuned import layer_digest

__all__ = ["KernelFigures", "TunableLayer", "functions_of", "layers_of"]


@dataclass(frozen=True, slots=True)
class KernelFigures:
    """Measured figures of a kernel: one run, bytes of its constants, and bytes of each of its functions.

    Functions are in the order of ``functions_of``.
    """

    figure: int
    constants: int
    code: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TunableLayer:
    """A layer with all its kernels, for constants in ``memory``, which is empty if the core does not wait for
    memories.
    """

    name: str
    digest: str
    candidates: tuple[Candidate, ...]
    usual: int
    memory: str = ""


def layers_of(compiled: api.Compiled, coded: bool = False) -> tuple[TunableLayer, ...]:
    """Return the layers of the only model that have a choice. Layers within row loops and subgraphs have
    none.

    ``coded``: kernels that decode their weights are included.
    """
    (plan,) = compiled.plans
    found = []
    for step in plan.steps:
        if not isinstance(step.item, Call) or step.kernel.module is not None:
            continue
        node = step.item.node
        memory = _memory_of(compiled, step)
        known = candidates(node.op, plan.graph.signature(node), _target(compiled, memory), coded)
        own = content_of(step.kernel)
        usual = next((n for n, c in enumerate(known) if content_of(c.kernel) == own), None)
        if usual is not None and len(known) > 1:
            found.append(TunableLayer(node.name, layer_digest(plan.graph, node), known, usual, memory))
    return tuple(found)


def _memory_of(compiled: api.Compiled, step: Step) -> str:
    if not compiled.resident or not step.kernel.consts:
        return ""
    return compiled.resident[0].get(step.name, compiled.board.code)


def _target(compiled: api.Compiled, memory: str) -> Target:
    target, reads = compiled.request.target, compiled.request.constants_reads
    return replace(target, constants=reads[memory]) if memory else target


def functions_of(kernel: Kernel) -> Sequence[Hashable]:
    """Return keys of a kernel's functions, its own first; equal keys are one function of the image."""
    if kernel.is_alias:
        return ()
    routines: list[Hashable] = list(kernel.ordered_routines)
    if not kernel.template:
        return routines[:1]
    below = [function for part in kernel.parts for function in functions_of(part.kernel)] + routines
    consts = tuple((const.name, const.dtype) for const in kernel.consts)
    own: tuple[Any, ...] = (kernel.function, consts, bool(kernel.scratch), tuple(below))
    return own, *dict.fromkeys(below)
