"""Nested loops over tensors, with dimensions merged where strides permit."""

from collections.abc import Sequence
from dataclasses import dataclass

from crtgen.network.ir import Value

__all__ = ["Loop", "index_of", "merge", "repeated_strides", "strides_of"]


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of ``count`` steps, each of which advances operand i by ``strides[i]`` elements."""

    count: int
    strides: tuple[int, ...]


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))


def repeated_strides(value: Value, to: Value) -> tuple[int, ...]:
    own = zip(value.shape, strides_of(value.shape), strict=True)
    strides = tuple(0 if length == 1 else stride for length, stride in own)
    return (0,) * (len(to.shape) - len(strides)) + strides


def merge(loops: Sequence[Loop], operands: int) -> tuple[Loop, ...]:
    """Merge loops over ``operands`` tensors into as few as possible, outermost first; returns at least
    one.
    """
    merged: list[Loop] = []
    for loop in loops:
        if loop.count == 1:
            continue
        steps = tuple(s * loop.count for s in loop.strides)
        if merged and merged[-1].strides == steps:
            merged[-1] = Loop(merged[-1].count * loop.count, loop.strides)
        else:
            merged.append(loop)
    return tuple(merged) or (Loop(1, (0,) * operands),)


def index_of(loops: Sequence[Loop], operand: int, prefix: str = "i") -> str:
    """Return C for the index of an operand, with loop counters ``i0, i1, ...``."""
    strides = [loop.strides[operand] for loop in loops]
    terms = [f"{prefix}{n}" + (f" * {s}" if s != 1 else "") for n, s in enumerate(strides) if s]
    return " + ".join(terms) or "0"
