"""Functions of one tensor in float32, which a file computes by one operator after another."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["FunctionOfOne", "composed", "exact"]


@dataclass(frozen=True, slots=True)
class FunctionOfOne:
    """Operators on the numbers of a tensor. ``name`` is that of the last one.

    ``of`` maps arrays of float32. ``unlike`` counts the operators that no two libraries compute alike to the
    last bit.
    """

    tensor: int
    name: str
    of: Callable[[Any], Any]
    unlike: int = 0


def composed(function: Callable[..., Any], operands: Sequence[Any]) -> Callable[[Any], Any]:
    """Apply ``function`` to functions of one tensor and to numbers: return the function of that tensor."""

    def of(x: Any) -> Any:
        return function(*(f.of(x) if isinstance(f, FunctionOfOne) else f for f in operands))

    return of


def exact(function: Callable[[float], float]) -> Callable[[Any], Any]:
    """Apply a function of the C library to each float32, with its exact value rounded once."""

    def each(x: Any) -> Any:
        found = [function(float(v)) for v in np.ravel(x)]
        return np.array(found, np.float64).astype(np.float32).reshape(np.shape(x))

    return each
