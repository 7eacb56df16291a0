"""Exact choice of a kernel for each layer with CP-SAT of OR-Tools: the shortest time within the available
flash.

Without shared code this would be a multiple-choice knapsack: one candidate per layer, minimise time, limit
flash. But layers can share functions, and a function that several layers use counts once. So there is a 0-1
variable per candidate and one per function:

- of each layer exactly one candidate is taken;
- a candidate implies its functions;
- the constants of the candidates plus the functions that are there fit into ``room`` bytes.

The objective is lexicographic: first time, then flash, then as few layers as possible with another kernel
than the default. One weighted sum expresses this, since flash is at most ``room`` and the number of layers is
fixed. CP-SAT runs with one worker and a deterministic time limit, so the same figures give the same choice
everywhere.
"""

from collections.abc import Hashable, Mapping, Sequence
from importlib.util import find_spec

from crtgen.base.errors import DoesNotFitError, UsageError
from crtgen.lab.tune.layers import KernelFigures, TunableLayer, functions_of

__all__ = ["HINT", "Chosen", "Measured", "check_solver", "choose", "flash_of"]

Measured = Mapping[tuple[str, int], KernelFigures]
"""Figures by layer and number of the candidate. What could not be measured is not there."""

Chosen = Mapping[str, int]
"""Number of the chosen candidate by layer."""

HINT = "give more flash or RAM"

# CP-SAT's deterministic seconds: the same figures give the same choice on every machine.
_TIME_LIMIT = 30.0


def check_solver() -> None:
    if find_spec("ortools") is None:
        raise UsageError("tuning needs OR-Tools", hint="pip install 'crtgen[tune]'")


def choose(
    layers: Sequence[TunableLayer], measured: Measured, room: int, never: Sequence[Chosen] = ()
) -> Chosen:
    """Return the candidates with the shortest total time; among equals those with the least flash, then the
    default ones.

    Their functions and constants have at most ``room`` bytes; functions that layers share count once. A
    choice that includes all of one entry of ``never`` is excluded. Raises ``DoesNotFitError`` if no choice is
    left.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    takes = {key: model.new_bool_var("") for key in measured}
    for layer in layers:
        model.add_exactly_one(takes[layer.name, n] for n in _known(layer, measured))
    there: dict[Hashable, cp_model.IntVar] = {}
    nbytes: dict[Hashable, int] = {}
    for layer in layers:
        for n in _known(layer, measured):
            for function, size in _functions(layer, n, measured):
                used = there.setdefault(function, model.new_bool_var(""))
                nbytes[function] = max(size, nbytes.get(function, 0))
                model.add_implication(takes[layer.name, n], used)
    constants = sum(figures.constants * takes[key] for key, figures in measured.items())
    flash = constants + sum(nbytes[function] * used for function, used in there.items())
    model.add(flash <= room)
    for pattern in never:
        model.add_bool_or(~takes[key] for key in pattern.items())
    time = sum(f.figure * takes[key] for key, f in measured.items())
    moved = sum(~takes[layer.name, layer.usual] for layer in layers if (layer.name, layer.usual) in measured)
    model.minimize(((room + 1) * time + flash) * (len(layers) + 1) + moved)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = _TIME_LIMIT
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise DoesNotFitError("no choice of kernels fits the memory", hint=HINT)
    return {name: n for (name, n), take in takes.items() if solver.boolean_value(take)}


def flash_of(layers: Sequence[TunableLayer], measured: Measured, chosen: Chosen) -> int:
    functions = {f: size for layer in layers for f, size in _functions(layer, chosen[layer.name], measured)}
    return sum(measured[key].constants for key in chosen.items()) + sum(functions.values())


def _known(layer: TunableLayer, measured: Measured) -> list[int]:
    return [n for n in range(len(layer.candidates)) if (layer.name, n) in measured]


def _functions(layer: TunableLayer, n: int, measured: Measured) -> Sequence[tuple[Hashable, int]]:
    functions = functions_of(layer.candidates[n].kernel)
    return list(zip(functions, measured[layer.name, n].code, strict=True))
