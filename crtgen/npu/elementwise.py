"""Element-wise operators on one or two feature maps."""

from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType

import numpy as np

from crtgen.npu.output import scaled, store
from crtgen.npu.rounding import NATURAL, Int64, rescale
from crtgen.npu.state import NpuState

__all__ = ["elementwise"]

_MODES = ("MUL", "ADD", "SUB", "MIN", "MAX", "LRELU", "ABS", "CLZ", "SHR", "SHL")
_UNARY = ("LRELU", "ABS", "CLZ")
_HEIGHT, _WIDTH, _DEPTH, _REVERSED, _SCALAR = 1, 2, 4, 0x40, 0x80


def elementwise(state: NpuState, mode: int) -> None:
    if mode >= len(_MODES):
        raise ValueError(f"ELEMENTWISE has the mode {mode}, which is reserved")
    name = _MODES[mode]
    state.spend(prod(state.output_shape))
    first = state.load("IFM", state.output_shape)
    if name in _UNARY:
        result = _unary(state, name, first)
    else:
        second = _second(state)
        if state.get("IFM2_BROADCAST") & _REVERSED:
            first, second = second, first
        result = _BINARY[name](state, first, second)
        if name in ("MIN", "MAX"):
            result = _if_scaled(state, result)
    store(state, result)


def _second(state: NpuState) -> Int64:
    # The second map, with length 1 along the axes on which it is repeated; or a constant of a register.
    bits = state.get("IFM2_BROADCAST")
    if bits & _SCALAR:
        value = state.type("IFM2").number(state.get("IFM2_SCALAR"))
        return np.full((1, 1, 1), value - state.zero_point("IFM2"), np.int64)
    height, width, depth = state.output_shape
    shape = (
        1 if bits & _HEIGHT else height,
        1 if bits & _WIDTH else width,
        1 if bits & _DEPTH else depth,
    )
    return state.load("IFM2", shape)


def _unary(state: NpuState, name: str, value: Int64) -> Int64:
    if name == "ABS":
        return _if_scaled(state, np.abs(value))
    if name == "LRELU":
        below = scaled(state, value)
        result: Int64 = np.where(value >= 0, value, below)
        return result
    # The zeros above the highest bit of a word; frexp gives the length of what is below.
    words = (value & 0xFFFFFFFF).astype(np.float64)
    return 32 - np.frexp(words)[1].astype(np.int64)


def _if_scaled(state: NpuState, value: Int64) -> Int64:
    # Operators that need no scale have one only if the output says so.
    return scaled(state, value) if state.get("OFM_PRECISION") >> 8 & 1 else value


def _sum(sign: int) -> Callable[[NpuState, Int64, Int64], Int64]:
    def add(state: NpuState, a: Int64, b: Int64) -> Int64:
        wide = state.type("IFM").size == 4
        if not wide:
            a, b = _operands(state, a, b)
        total = a + sign * b
        return total if wide and state.scale("OFM_SCALE") == (1, 0) else scaled(state, total)

    return add


def _operands(state: NpuState, a: Int64, b: Int64) -> tuple[Int64, Int64]:
    # Both operands on one grid. With a scale of 16 bits each is a plain product. With one of 32 bits, only
    # that operand is rounded to it, and the other, whose scale the grid is, is shifted.
    mode = state.get("IFM_PRECISION") >> 8 & 3
    scale, shift = state.scale("OPA_SCALE")
    up = (20 if state.type("IFM").size == 1 else 15) - 1
    if mode == 0:
        return a * scale, b * state.get("OPB_SCALE", 1)
    if mode == 1:
        return rescale(a, scale, shift, 0), b << up
    if mode == 2:
        return a << up, rescale(b, scale, shift, 0)
    raise ValueError("IFM_PRECISION has the scale mode 3, which is reserved")


def _mul(state: NpuState, a: Int64, b: Int64) -> Int64:
    # Of a product of 32 bits the second operand is the scale; only the shift is the register's.
    if state.type("IFM").size < 4:
        return scaled(state, a * b)
    _, shift = state.scale("OFM_SCALE")
    return rescale(a, b, shift, state.rounding) if shift else _word(a * b)


def _word(value: Int64) -> Int64:
    # The low 32 bits.
    return value << 32 >> 32


def _shift_right(state: NpuState, a: Int64, b: Int64) -> Int64:
    half = np.where(b > 0, np.int64(1) << np.maximum(b - 1, 0), 0) if state.rounding == NATURAL else 0
    result: Int64 = (a + half) >> b
    return result


def _shift_left(state: NpuState, a: Int64, b: Int64) -> Int64:
    return _word(a << b)


_BINARY: Mapping[str, Callable[[NpuState, Int64, Int64], Int64]] = MappingProxyType(
    {
        "MUL": _mul,
        "ADD": _sum(1),
        "SUB": _sum(-1),
        "MIN": lambda state, a, b: np.minimum(a, b),
        "MAX": lambda state, a, b: np.maximum(a, b),
        "SHR": _shift_right,
        "SHL": _shift_left,
    }
)
