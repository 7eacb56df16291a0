"""Lifetimes of each value, and of the scratch memory of each step, in the arena."""

from collections.abc import Iterator
from dataclasses import dataclass

from crtgen.compiler.plan.places import find_parts
from crtgen.compiler.plan.plan import Plan
from crtgen.compiler.plan.slot import ArenaSlot

__all__ = ["Lifetime", "lifetimes"]


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A place in the arena or a part of it, with the first and last moment at which it holds its data.

    Moments are steps, counted from 1; 0 is before the first step, and the number of steps plus one is after
    the last. ``name`` is that of the value, or of the step whose scratch memory it is; ``is_apart`` marks the
    separate memory of an NPU. A value that is a view of another one with a new shape has the same place at
    the same time, and one that is joined without a copy is a part of the result: ``alias_of`` names that one.
    """

    name: str
    slot: ArenaSlot
    first: int
    last: int
    is_scratch: bool = False
    alias_of: str = ""
    is_apart: bool = False


def lifetimes(plan: Plan) -> tuple[Lifetime, ...]:
    """Return the lifetime of every value and every scratch buffer in the arena."""
    return tuple(_lifetimes(plan))


def _lifetimes(plan: Plan) -> Iterator[Lifetime]:
    kernels = {step.name: step.kernel for step in plan.steps}
    inside = find_parts(plan.graph, [step.item for step in plan.steps], kernels)
    roots = {name: inside.get(name, (name,))[0] for name in plan.graph.inputs}
    spans = {root: [0, 0] for root in roots.values()}
    for moment, step in enumerate(plan.steps, start=1):
        for name in (n for n in step.inputs if n in roots):
            spans[roots[name]][1] = moment
        for name in step.outputs:
            is_view = step.kernel.is_alias and not step.kernel.joins
            alone = roots.get(step.inputs[0], name) if is_view else name
            roots[name] = inside[name][0] if name in inside else alone
            spans.setdefault(roots[name], [moment, moment])
        if step.scratch is not None:
            yield Lifetime(step.name, step.scratch, moment, moment, is_scratch=True)
        if step.apart is not None:
            yield Lifetime(step.name, step.apart, moment, moment, is_scratch=True, is_apart=True)
    kept = plan.graph.inputs if plan.kept_inputs else ()
    for name in (*(n for n in plan.graph.lasting if n in roots), *kept):
        spans[roots[name]][1] = len(plan.steps) + 1
    for name, root in roots.items():
        if name not in plan.slots:
            continue
        first, last = spans[root]
        yield Lifetime(name, plan.slots[name], first, last, alias_of=root if root != name else "")
