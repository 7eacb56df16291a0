"""Numbers as C source."""

import numpy as np

__all__ = ["c_float", "c_number", "plus"]


def c_float(value: float) -> str:
    """The shortest C literal that is this float32; infinities and NaN are the compiler's."""
    if not np.isfinite(value):
        return '__builtin_nanf("")' if np.isnan(value) else f"{'-' if value < 0 else ''}__builtin_inff()"
    text = np.format_float_scientific(np.float32(value), unique=True, trim="0", exp_digits=1)
    plain = np.format_float_positional(np.float32(value), unique=True, trim="0")
    return min(plain, text, key=len) + "f"


def c_number(value: float | int | bool, c_type: str) -> str:
    """A literal of ``c_type``."""
    return c_float(value) if c_type == "float" else str(int(value))


def plus(number: int) -> str:
    """The addition of a constant, as it follows a term: ``+ 3``, ``- 128``."""
    return f"- {-number}" if number < 0 else f"+ {number}"
