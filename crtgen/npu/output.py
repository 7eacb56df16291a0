"""The final step of every operator: scale, zero point, limits, table, memory."""

import numpy as np

from crtgen.npu.rounding import Int64, rescale
from crtgen.npu.state import NpuState, Type, signed16

__all__ = ["scaled", "store"]

_TANH, _SIGMOID, _TABLE = 3, 4, 16


def scaled(state: NpuState, value: Int64) -> Int64:
    scale, shift = state.scale("OFM_SCALE")
    return rescale(value, scale, shift, state.rounding)


def store(state: NpuState, value: Int64) -> None:
    """Write scaled values, after applying activation, zero point, limits and table."""
    height, width, depth = state.output_shape
    result = _activated(state, value + state.zero_point("OFM"))
    whole = np.broadcast_to(result, (height, width, depth))
    state.map("OFM").store(state.memory, whole)


def _activated(state: NpuState, value: Int64) -> Int64:
    register = state.get("ACTIVATION", 0)
    function, clip = register & 0xFFF, register >> 12
    type_ = state.type("OFM")
    if function >= _TABLE:
        return _looked_up(state, value, function - _TABLE, clip, type_)
    if function in (_TANH, _SIGMOID):
        raise ValueError("ACTIVATION is a function of the NPU's own, whose last bits are not published")
    if function:
        raise ValueError(f"ACTIVATION has the function {function}, which is reserved")
    return _clipped(state, value, type_)


def _clipped(state: NpuState, value: Int64, type_: Type) -> Int64:
    least, most = type_.limits
    if type_.size <= 2:
        low, high = state.get("ACTIVATION_MIN"), state.get("ACTIVATION_MAX")
        limits = (signed16(low), signed16(high)) if type_.signed else (low, high)
        least, most = max(least, limits[0]), min(most, limits[1])
    result: Int64 = np.clip(value, least, most)
    return result


def _looked_up(state: NpuState, value: Int64, slot: int, clip: int, type_: Type) -> Int64:
    # Before the table a value is clipped to what the table has entries for.
    source = state.type("IFM")
    if source.size == 1:
        least, most = source.limits
        index = np.clip(value, least, most) - least
        return _entries(state, slot, type_)[index]
    if type_.size == 2:
        return _interpolated(state, np.clip(value, -0x8000, 0x7FFF))
    raise ValueError(f"a table from {source} to {type_} does not exist")


def _entries(state: NpuState, slot: int, type_: Type) -> Int64:
    # 256 entries of the output's type, from the slot on; a slot has 256 bytes.
    start, length = slot * 256, 256 * type_.size
    if start + length > state.tables.size:
        raise ValueError(f"table {slot} of {type_} has {length} bytes, and ends outside of the tables")
    kind = f"<{'i' if type_.signed else 'u'}{type_.size}"
    entries: Int64 = np.frombuffer(state.tables[start : start + length].tobytes(), kind).astype(np.int64)
    return entries


def _interpolated(state: NpuState, value: Int64) -> Int64:
    # 512 entries of a base and the slope to the next, 16 bits each; the low 7 bits of a value are between
    # two.
    words = np.frombuffer(state.tables.tobytes(), "<u4").astype(np.int64)
    base, slope = words << 48 >> 48, words << 32 >> 48
    index, part = (value >> 7) + 256, value & 127
    result: Int64 = base[index] + (slope[index] * part + 64 >> 7)
    return np.clip(result, -0x8000, 0x7FFF)
