"""The exact layout by CP-SAT of OR-Tools, which is an extra: ``crtgen[exact]``."""

from collections.abc import Sequence
from importlib.util import find_spec

from crtgen.plan.layout import Problem, arena_of

__all__ = ["exact_available", "lay_exactly"]


def exact_available() -> bool:
    """Whether OR-Tools is installed."""
    return find_spec("ortools") is not None


def lay_exactly(problem: Problem, start: Sequence[int], time_limit: float) -> tuple[tuple[int, ...], bool]:
    """Offsets at least as good as ``start``, and whether they are proven to be the best.

    ``time_limit`` is in CP-SAT's deterministic seconds, with one worker and a fixed seed: the same
    problem gives the same offsets on every machine.
    """
    from ortools.sat.python import cp_model

    align = problem.align
    highest = arena_of(problem, start)
    model = cp_model.CpModel()
    offsets = [model.new_int_var(0, (highest - size) // align, "") for size in problem.sizes]
    arena = model.new_int_var(problem.lower_bound, highest, "")
    for offset, size in zip(offsets, problem.sizes, strict=True):
        model.add(arena >= align * offset + size)
    for (i, j), gap in problem.gaps.items():
        if i < j:
            below = model.new_bool_var("")
            model.add(offsets[i] + -(-gap // align) <= offsets[j]).only_enforce_if(below)
            model.add(offsets[j] + -(-problem.gaps[j, i] // align) <= offsets[i]).only_enforce_if(~below)
    for offset, place in zip(offsets, start, strict=True):
        model.add_hint(offset, place // align)
    model.minimize(arena)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = time_limit
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return tuple(start), False
    return tuple(solver.value(o) * align for o in offsets), status == cp_model.OPTIMAL
