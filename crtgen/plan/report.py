"""A plan as text: a table of the arena with a small chart, one column per step."""

from collections.abc import Iterator

from crtgen.plan.plan import Plan, Slot

__all__ = ["arena_map"]

_CHART = 64


def arena_map(plan: Plan) -> str:
    """The arena: a line per place with offset, bytes, the steps it is alive in, and a bar over the steps.

    Steps count from 1; ``in`` is before the first and ``out`` after the last. Scratch memory has its own
    lines. Long networks are drawn with several steps per column.
    """
    state = "the least possible" if plan.optimal else f"at least {plan.lower_bound:,} are needed"
    rows = sorted(_rows(plan), key=lambda row: (row[1].offset, row[2]))
    width = max((len(name) for name, *_ in rows), default=0)
    moments = len(plan.steps) + 2
    column = -(-moments // _CHART)
    lines = [
        f"arena {plan.arena:,} bytes, {state}",
        f"{'offset':>10} {'bytes':>10}  {'alive':<9} {'value':<{width}}  {column} step(s) per column",
    ]
    for name, slot, (first, last) in rows:
        bar = "".join(
            "#" if first < start + column and last >= start else "." for start in range(0, moments, column)
        )
        alive = f"{_moment(first, moments)}-{_moment(last, moments)}"
        lines.append(f"{slot.offset:>10,} {slot.size:>10,}  {alive:<9} {name:<{width}}  {bar}")
    return "\n".join(lines) + "\n"


def _moment(moment: int, moments: int) -> str:
    return {0: "in", moments - 1: "out"}.get(moment, str(moment))


def _rows(plan: Plan) -> Iterator[tuple[str, Slot, tuple[int, int]]]:
    spans: dict[str, tuple[int, int]] = {name: (0, 0) for name in plan.graph.inputs}
    roots = {name: name for name in plan.graph.inputs}
    for moment, step in enumerate(plan.steps, start=1):
        for name in (n for n in step.node.inputs if n in roots):
            spans[roots[name]] = (spans[roots[name]][0], moment)
        for name in step.node.outputs:
            roots[name] = roots[step.node.inputs[0]] if step.kernel.is_alias else name
            if roots[name] == name:
                spans[name] = (moment, moment)
        if step.scratch is not None:
            yield f"{step.node.name} (scratch)", step.scratch, (moment, moment)
    kept = plan.graph.inputs if plan.kept_inputs else ()
    for name in (*plan.graph.outputs, *kept):
        spans[roots[name]] = (spans[roots[name]][0], len(plan.steps) + 1)
    for name, span in spans.items():
        yield name, plan.slots[name], span
