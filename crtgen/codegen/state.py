"""What lives from run to run, in C: memory of the model's own, which no other model shares."""

from collections.abc import Iterator

import numpy as np

from crtgen.codegen.arena import Arena
from crtgen.codegen.names import comment
from crtgen.codegen.views import StateView, rows_of
from crtgen.ir import Array, Value, shape_text
from crtgen.plan import Plan

__all__ = ["states_of"]


def states_of(plan: Plan, arena: Arena) -> Iterator[StateView]:
    """The states of a model, in order."""
    copied = dict(plan.copied)
    for before in plan.states:
        value = plan.graph.values[before]
        yield StateView(
            text=comment(f"{before}: {shape_text(value.shape)} {value.dtype.value}"),
            place=arena.value(before),
            becomes=arena.value(copied[before]) if before in copied else "",
            nbytes=value.nbytes,
            c_type=value.dtype.c_name,
            initial=_initial(plan, value),
        )


def _initial(plan: Plan, value: Value) -> tuple[str, ...]:
    array: Array = value.array()
    zero = not np.frombuffer(array.tobytes(), np.uint8).any()
    return () if zero else rows_of(array)
