"""C literals."""

from math import isfinite, isnan

import numpy as np

__all__ = ["c_float", "c_number", "plus"]


def c_float(value: float) -> str:
    """Return the shortest C literal of a float32; infinities and NaN become the compiler's macros."""
    number = np.float32(value)
    if isfinite(number):
        return f"{number!s}f"
    return '__builtin_nanf("")' if isnan(number) else f"{'-' if number < 0 else ''}__builtin_inff()"


def c_number(value: float | int | bool, c_type: str) -> str:
    return c_float(value) if c_type == "float" else str(int(value))


def plus(number: int) -> str:
    """Return the C text that adds a constant to a term: ``+ 3``, ``- 128``."""
    return f"- {-number}" if number < 0 else f"+ {number}"
