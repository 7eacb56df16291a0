"""Lifetimes of each value, and of the scratch memory of each step, in the arena."""

from collections.abc import Iterator
from dataclasses import dataclass

from crtgen.compiler.plan.plan import Plan
from crtgen.compiler.plan.slot import ArenaSlot

__all__ = ["Lifetime", "lifetimes"]


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A place in the arena or a part of it, with the first and last moment at which it holds its data.

    Moments are steps, counted from 1; 0 is before the first step, and the number of steps plus one is after
    the last. ``name`` is that of the value, or of the step whose scratch memory it is; ``is_apart`` marks the
    separate memory of an NPU. A value that is a view of another one with a new shape has the same place at
    the same time: ``alias_of`` names that one.
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
    roots = {name: name for name in plan.graph.inputs}
    spans = {name: [0, 0] for name in plan.graph.inputs}
    for moment, step in enumerate(plan.steps, start=1):
        for name in (n for n in step.inputs if n in roots):
            spans[roots[name]][1] = moment
        for name in step.outputs:
            roots[name] = roots.get(step.inputs[0], name) if step.kernel.is_alias else name
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
