"""Constants in RAM: selects the layers whose weights start-up copies there, because the core waits for them
in flash.

Each layer has a gain (the modelled cycles per run that it saves with its constants in RAM) and a size (their
bytes). The choice for one memory is a 0-1 knapsack, solved exactly by dynamic programming over its free bytes
in units of 16: ``best[c]`` is the greatest gain within ``c`` units, and a layer of size s turns it into
``max(best[c], best[c - s] + gain)``. Memories are filled one after another, starting with those that wait
least.

A layer's kernel may change with the memory: one that first copied its weights to scratch memory no longer has
to. Order and chains of the plan do not change, so gains of layers are independent of each other.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from crtgen.boards.board import FlashReads
from crtgen.compiler.kernels import Kernel, Parts, Target, on_two_cores, select
from crtgen.compiler.kernels.rows.row_loop import row_loop
from crtgen.compiler.plan.plan import Branch, Call, Plan, RowLoop, RowStream, Step, WhileLoop
from crtgen.compiler.plan.planner import Spread, make_plan
from crtgen.network.ir import Graph
from crtgen.network.passes import Rewrite

__all__ = ["FreeMemory", "Resident", "place_constants"]

_UNIT = 16  # bytes: the greatest alignment of a constant
_WORTH = 1 / 1000, 1 / 50  # shares of a run that a layer has to save, and all of them together


@dataclass(frozen=True, slots=True)
class FreeMemory:
    """A RAM of the board: its name, its free bytes, and its read timing (None: without waiting)."""

    name: str
    nbytes: int
    reads: FlashReads | None = None


@dataclass(frozen=True, slots=True)
class Resident:
    """A plan in which some layers' constants are in RAM.

    ``memories`` maps layers to memories; ``rewrites`` has a note for each memory.
    """

    plan: Plan
    memories: Mapping[str, str]
    rewrites: tuple[Rewrite, ...] = ()


@dataclass(frozen=True, slots=True)
class _Candidate:
    # A layer with its kernel for a memory: the number of its plan, cycles saved, units of memory.
    plan: int
    step: Step
    kernel: Kernel
    gain: float
    units: int


def place_constants(
    plans: Sequence[Plan],
    target: Target,
    free: Sequence[FreeMemory],
    fixed: Sequence[Mapping[str, str]] = (),
) -> tuple[Resident, ...]:
    """Move constants of layers to ``free`` memory where that saves cycles by the model of the core.

    ``fixed`` has a mapping per plan: from layers that keep their kernels to the memory for their constants.
    If that memory is full, or not in ``free``, the constants are not moved. An empty name leaves the choice
    to the cycle model. Constants of subgraphs are not moved either, nor those of a layer that saves less than
    a thousandth of a run; and nothing is moved if the total saving is less than a fiftieth. The arenas do not
    grow.
    """
    fixed = fixed or [{} for _ in plans]
    total = sum((step.kernel.cycles or 0.0) + step.waits for plan in plans for step in plan.steps)
    found: dict[tuple[int, str], tuple[Kernel, str]] = {}
    bound: dict[tuple[int, str], tuple[Kernel, str]] = {}
    saved = 0.0
    for memory in sorted(free, key=lambda m: (m.reads.waits(1) if m.reads else 0.0, m.nbytes)):
        there = replace(target, constants=memory.reads)
        candidates = [
            (candidate, fixed[n].get(candidate.step.name, ""))
            for n, plan in enumerate(plans)
            for candidate in _candidates(n, plan, there, frozenset(fixed[n]))
        ]
        room = memory.nbytes // _UNIT
        for candidate in _knapsack([c for c, wanted in candidates if wanted == memory.name], room):
            bound[candidate.plan, candidate.step.name] = candidate.kernel, memory.name
            room -= candidate.units
        worth = [
            candidate
            for candidate, wanted in candidates
            if not wanted
            and (candidate.plan, candidate.step.name) not in found
            and candidate.gain > total * _WORTH[0]
        ]
        for candidate in _knapsack(worth, room):
            found[candidate.plan, candidate.step.name] = candidate.kernel, memory.name
            saved += candidate.gain
    if saved < total * _WORTH[1]:
        found = {}
    found = bound | found
    return tuple(
        _placed(plan, {name: chosen for (number, name), chosen in found.items() if number == n})
        for n, plan in enumerate(plans)
    )


def _candidates(number: int, plan: Plan, there: Target, fixed: frozenset[str]) -> Iterator[_Candidate]:
    steps = [step for step in plan.steps if _is_eligible(step)]
    fresh = _chosen(plan.graph, [step for step in steps if step.name not in fixed], there)
    for step in steps:
        same = _moved(step.kernel, there.constants)
        other = fresh.get(step.name, same)
        kernel = other if other.scratch <= same.scratch and _cycles(other) < _cycles(same) else same
        units = sum(-(-const.nbytes // _UNIT) for const in kernel.consts)
        yield _Candidate(number, step, kernel, _cycles(step.kernel) - _cycles(kernel), units)


def _is_eligible(step: Step) -> bool:
    own = step.kernel.cycles is not None and step.kernel.estimate is None
    return own and bool(step.kernel.consts) and not isinstance(step.item, Branch | WhileLoop)


def _chosen(graph: Graph, steps: Sequence[Step], there: Target) -> Mapping[str, Kernel]:
    # The kernels that layers would have if all constants were there.
    calls = tuple(step.item.node for step in steps if isinstance(step.item, Call))
    found = dict(select(Graph(graph.name, graph.values, calls, (), ()), there))
    parts = Parts(there)
    if there.cores == 2:
        found = {
            node.name: on_two_cores(node.op, graph.signature(node), found[node.name], parts) for node in calls
        }
    for step in steps:
        if isinstance(step.item, RowLoop) and not isinstance(step.item, RowStream):
            stages = [stage.described(graph) for stage in step.item.stages]
            kernel = row_loop(stages, step.item.rows, parts)
            found |= {step.name: kernel} if kernel is not None else {}
    return found


def _moved(kernel: Kernel, reads: FlashReads | None) -> Kernel:
    # The same kernel with its constants in a memory that is read so.
    return kernel if kernel.target is None else kernel.priced(replace(kernel.target, constants=reads))


def _cycles(kernel: Kernel) -> float:
    return kernel.cycles or 0.0


def _knapsack(candidates: Sequence[_Candidate], room: int) -> list[_Candidate]:
    # The candidates of the greatest gain within ``room`` units.
    fitting = [candidate for candidate in candidates if candidate.units <= room]
    if sum(candidate.units for candidate in fitting) <= room:
        return fitting
    best = np.zeros(room + 1)
    taken = []
    for candidate in fitting:
        with_it = best[: room + 1 - candidate.units] + candidate.gain
        better = with_it > best[candidate.units :]
        taken.append(better)
        best[candidate.units :] = np.where(better, with_it, best[candidate.units :])
    chosen, left = [], room
    for candidate, better in zip(reversed(fitting), reversed(taken), strict=True):
        if left >= candidate.units and better[left - candidate.units]:
            chosen.append(candidate)
            left -= candidate.units
    return chosen[::-1]


def _placed(plan: Plan, chosen: Mapping[str, tuple[Kernel, str]]) -> Resident:
    # The plan with the chosen kernels; if these would enlarge the arena, with the kernels that it has.
    if not chosen:
        return Resident(plan, {})
    memories = {name: memory for name, (_, memory) in chosen.items()}
    make = partial(
        make_plan,
        plan.graph,
        items=[step.item for step in plan.steps],
        keep_inputs=plan.kept_inputs,
        align=plan.align,
        outside=plan.outside,
        spread=Spread.of(plan),
    )
    before = {step.name: step.kernel for step in plan.steps}
    made = make(kernels={**before, **{name: kernel for name, (kernel, _) in chosen.items()}})
    if made.arena > plan.arena:
        reads = {name: kernel.target.constants for name, (kernel, _) in chosen.items() if kernel.target}
        same = {name: _moved(before[name], found) for name, found in reads.items()}
        made = make(kernels={**before, **same})
    waits = {step.name: step.waits for step in plan.steps}
    made = replace(made, steps=tuple(replace(step, waits=waits[step.name]) for step in made.steps))
    return Resident(made, memories, tuple(_notes(plan, made, memories)))


def _notes(before: Plan, after: Plan, memories: Mapping[str, str]) -> Iterator[Rewrite]:
    times = {step.name: _cycles(step.kernel) for step in before.steps}
    for memory in dict.fromkeys(memories.values()):
        steps = [step for step in after.steps if memories.get(step.name) == memory]
        nbytes = sum(step.kernel.cost.constants for step in steps)
        saved = sum(times[step.name] - _cycles(step.kernel) for step in steps)
        layers = f"{len(steps)} layer{'s' if len(steps) > 1 else ''}"
        text = f"constants of {layers}, {nbytes:,} bytes, are copied there at the start"
        yield Rewrite("copy to RAM", memory, f"{text}; a run takes {saved:,.0f} cycles less by estimate")
