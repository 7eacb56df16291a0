"""Parsers of values in descriptions; each raises ``ValueError`` for values that it does not accept."""

from collections.abc import Callable
from typing import Any

__all__ = ["count", "labels", "names", "natural", "number", "one_of"]


def count(value: Any) -> int:
    if type(value) is not int or not 0 < value < 1 << 31:
        raise ValueError(f"{value!r} is not an integer above 0")
    return value


def natural(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise ValueError(f"{value!r} is not an integer from 0 on")
    return value


def number(value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) < 1e9:
        raise ValueError(f"{value!r} is no number")
    return float(value)


def names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) and name.isprintable() for name in value):
        raise ValueError("the value is not a list of names")
    return tuple(value)


def labels(value: Any) -> tuple[int | str, ...]:
    listed = value if isinstance(value, list) else [value]
    if not all(isinstance(label, str) or (type(label) is int and label >= 0) for label in listed):
        raise ValueError("a label is a name, or a number counted from 0")
    return tuple(listed)


def one_of(*known: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in known:
            raise ValueError(f"{value!r} is unknown; known: {', '.join(known)}")
        return str(value)

    return parse
