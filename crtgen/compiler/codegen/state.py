"""States in C: memory of a model that persists between runs and is not shared with other models."""

from collections.abc import Iterator
from math import prod

import numpy as np

from crtgen.compiler.codegen.arena import Arena
from crtgen.compiler.codegen.names import comment
from crtgen.compiler.codegen.views import StateView, rows_of
from crtgen.compiler.plan import Plan
from crtgen.network.ir import Array, shape_text

__all__ = ["states_of"]


def states_of(plan: Plan, arena: Arena) -> Iterator[StateView]:
    copied = dict(plan.copied)
    for before in plan.states:
        value = plan.graph.values[before]
        part = _repeated(value.array())
        yield StateView(
            text=comment(f"{before}: {shape_text(value.shape)} {value.dtype.value}"),
            place=arena.value(before),
            becomes=arena.value(copied[before]) if before in copied else "",
            nbytes=value.nbytes,
            c_type=value.dtype.c_name,
            initial=tuple(rows_of(part)) if np.frombuffer(part.tobytes(), np.uint8).any() else (),
            repeats=value.elements // part.size,
        )


def _repeated(array: Array) -> Array:
    # The elements that the array is made of again and again: some of its last axes.
    flat = array.reshape(-1)
    for axis in reversed(range(array.ndim + 1)):
        part = flat[: prod(array.shape[axis:])]
        if (flat.reshape(-1, part.size).view(np.uint8) == part.view(np.uint8)).all():
            return part
    return flat
