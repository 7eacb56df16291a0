"""Concatenations without copies: each part is computed where the result has it.

Problem
    A concatenation along its outermost axis puts arrays one after another. Usually it copies them, so that
    all parts are there twice while it runs: the heads of a detector, or the halves of an image.

Idea
    Where the planner gives the parts their places, it can as well put them one after another. Then the
    result is there as soon as its parts are, and the concatenation is no instruction (``Kernel.joins``).

Example
    Heads of 768, 192 and 48 bytes: their places are at 0, 768 and 960 of the result's 1,008 bytes. Copying
    them takes 2,016 bytes while it runs.

The price is that the result's memory is taken from the first part on, even if other layers run before the
next part. So this is done only where it improves the objective of the level.

A part has to be computed by a layer of the network (through reshapes, which compute nothing) for one
concatenation only, and to begin at a word and at a whole element, as kernels rely on it; those of other code
generators rely on the alignment of the arena.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from math import prod

from crtgen.compiler.kernels import Kernel, Target
from crtgen.compiler.level import Level, find_level
from crtgen.compiler.plan.plan import Call, Plan
from crtgen.compiler.plan.planner import make_plan
from crtgen.network.ir import Node
from crtgen.network.ops import Concat
from crtgen.network.ops.control import ControlFlow
from crtgen.network.passes import Rewrite

__all__ = ["gain_of", "join_in_place"]

_MOST_ALONE = 12
"""Concatenations that are tried one by one where all together are no gain."""
_WORD = 4
_JOINED = Kernel(design="in place", template="", view=None, joins=True)


def join_in_place(
    plan: Plan, target: Target, *, apart: frozenset[str] = frozenset()
) -> tuple[Plan, tuple[Rewrite, ...]]:
    """Return ``plan`` with those concatenations in place that improve it, and a note for each.

    Layers in ``apart`` are left alone.
    """
    level, start = find_level(target.optimize), plan
    names = _candidates(plan, apart)
    tried = [names, *([name] for name in names[:_MOST_ALONE] if len(names) > 1)]
    for some in tried if names else []:
        made = _with(plan, some, target)
        if gain_of(plan, made, level) > 0:
            plan = made
            if some is names:
                break
    known = {step.name for step in start.steps if step.kernel.joins}
    joined = [step for step in plan.steps if step.kernel.joins and step.name not in known]
    less = f"; the arena is {plan.arena:,} bytes instead of {start.arena:,}" * (plan.arena < start.arena)
    return plan, tuple(
        Rewrite("concat in place", step.name, f"its {len(step.inputs)} inputs are computed within it{less}")
        for step in joined
    )


def gain_of(before: Plan, after: Plan, level: Level) -> float:
    """Return by how much ``after`` is better, in the objective of the level; negative if it is worse."""
    time = sum(step.kernel.cost.time for step in before.steps)
    added = sum(step.kernel.cost.time for step in after.steps) - time
    memory = after.arena - before.arena
    return -level.objective(added / max(time, 1.0), memory=memory / max(before.arena, 1))


def _with(plan: Plan, names: Sequence[str], target: Target) -> Plan:
    joined = _JOINED.priced(target)
    kernels = {step.name: joined if step.name in names else step.kernel for step in plan.steps}
    return make_plan(
        plan.graph,
        kernels,
        [step.item for step in plan.steps],
        keep_inputs=plan.kept_inputs,
        align=plan.align,
        outside=plan.outside,
    )


def _candidates(plan: Plan, apart: frozenset[str]) -> list[str]:
    # Concatenations that can all be in place at the same time: no value is a part of two.
    kernels = {step.name: step.kernel for step in plan.steps}
    nodes = {step.name: step.item.node for step in plan.steps if isinstance(step.item, Call)}
    joins = [node for node in nodes.values() if kernels[node.name].joins]
    taken = {root for node in joins for root in _roots(plan, kernels, node)}
    found = []
    for name, node in nodes.items():
        roots = _roots(plan, kernels, node)
        if name not in apart and _can_join(plan, kernels, node) and taken.isdisjoint(roots):
            found.append(name)
            taken.update(roots)
    return found


def _can_join(plan: Plan, kernels: Mapping[str, Kernel], node: Node) -> bool:
    if not isinstance(node.op, Concat) or kernels[node.name].is_alias or node.outputs[0] in plan.homes:
        return False
    sig, others = plan.graph.signature(node), any(kernel.module is not None for kernel in kernels.values())
    align = plan.align if others else max(_WORD, sig.y.dtype.itemsize)
    if any(start % align for start in accumulate(value.nbytes for value in sig.inputs[:-1])):
        return False
    roots = _roots(plan, kernels, node)
    if prod(sig.y.shape[: node.op.axis]) > 1 or not 1 < len(set(roots)) == len(node.inputs):
        return False
    return all(_is_part(plan, kernels, name) for name in node.inputs)


def _is_part(plan: Plan, kernels: Mapping[str, Kernel], value: str) -> bool:
    # True if a layer computes it, through any views, and it has no place of its own for another reason.
    lasting = {*plan.graph.lasting, *plan.graph.inputs, *plan.homes}
    views = tuple(_views(plan, kernels, value))
    made = plan.graph.producer(views[-1])
    if made is None or isinstance(made.op, ControlFlow) or len(made.outputs) > 1:
        return False
    return lasting.isdisjoint(views)


def _roots(plan: Plan, kernels: Mapping[str, Kernel], node: Node) -> list[str]:
    # The computed value behind each input, which may be a view of it.
    return [tuple(_views(plan, kernels, name))[-1] for name in node.inputs]


def _views(plan: Plan, kernels: Mapping[str, Kernel], value: str) -> Iterator[str]:
    # The value, what it is a view of, and so on.
    yield value
    node = plan.graph.producer(value)
    while node is not None and node.name in kernels and kernels[node.name].is_alias:
        if kernels[node.name].joins:
            return
        value = node.inputs[0]
        yield value
        node = plan.graph.producer(value)
