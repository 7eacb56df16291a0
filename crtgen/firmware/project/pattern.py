"""Examples with known outputs: a pattern as input, and the outputs of the numpy reference."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crtgen.compiler.codegen.module import CModule, Interface, ModelInfo
from crtgen.firmware.project.firmware import FirmwareRequest
from crtgen.network.ir import Array, DType

__all__ = ["CheckedModel", "checked_models", "is_checkable", "pattern"]

# Elements of an output that an example compares.
_MOST = 64

_PER_LINE = 12
_SHIFT = {DType.BOOL: 31, DType.INT16: 16, DType.UINT16: 16}
_SHIFTED = 24
_FLOAT_BITS = 8
_FLOAT_ONE = 1 << 24


@dataclass(frozen=True, slots=True)
class _Input:
    # An input; ``value`` is the C expression for the next element.

    name: str
    member: str
    macro: str
    type: str
    value: str


@dataclass(frozen=True, slots=True)
class _PatternOutput:
    """An output; its first ``count`` elements are compared with ``lines``, or none if ``count`` is 0."""

    name: str
    member: str
    macro: str
    type: str
    is_float: bool
    count: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """A model for the templates of examples; ``has_states``: it keeps data between runs.

    ``run`` and ``reset`` are its functions in C.
    """

    name: str
    run: str
    reset: str
    has_states: bool
    inputs: tuple[_Input, ...]
    outputs: tuple[_PatternOutput, ...]


def is_checkable(module: CModule) -> bool:
    """Return True if an example can be written: the model has a typed function, and C has the types."""
    info = module.info
    types = {interface.dtype for interface in (*info.inputs, *info.outputs)}
    return f"{info.name}_run(" in module.files.get(f"{info.name}.h", "") and not types & {
        DType.FLOAT16,
        DType.INT4,
    }


def pattern(info: ModelInfo) -> tuple[Array, ...]:
    """Return the inputs: integers from a linear congruential generator, or floats from 0 to 1."""
    random, arrays = 1, []
    for interface in info.inputs:
        numbers = np.empty(math.prod(interface.shape), np.uint32)
        for i in range(numbers.size):
            random = (random * 1664525 + 1013904223) & 0xFFFFFFFF
            numbers[i] = random
        arrays.append(_elements(numbers, interface.dtype).reshape(interface.shape))
    return tuple(arrays)


def checked_models(firmware: FirmwareRequest) -> tuple[CheckedModel, ...]:
    slots = firmware.options.slots
    return tuple(_model(m, firmware.expected.get(m.info.name, ()), slots) for m in firmware.modules)


def _elements(numbers: npt.NDArray[np.uint32], dtype: DType) -> Array:
    if dtype is DType.FLOAT32:
        return ((numbers >> _FLOAT_BITS) / np.float32(_FLOAT_ONE)).astype(np.float32)
    return (numbers >> _SHIFT.get(dtype, _SHIFTED)).astype(dtype.numpy)


def _value(dtype: DType) -> str:
    if dtype is DType.FLOAT32:
        return f"(float)(random >> {_FLOAT_BITS}) / {_FLOAT_ONE}.0f"
    shifted = f"random >> {_SHIFT.get(dtype, _SHIFTED)}"
    return f"({shifted}) != 0u" if dtype is DType.BOOL else f"({dtype.c_name})({shifted})"


def _model(module: CModule, expected: Sequence[Array], slots: bool) -> CheckedModel:
    info = module.info
    inputs = tuple(_Input(*_names(info, "input", i), i.dtype.c_name, _value(i.dtype)) for i in info.inputs)
    known = [*expected, *([None] * len(info.outputs))]
    outputs = tuple(_output(info, o, array) for o, array in zip(info.outputs, known, strict=False))
    has_states = f"{info.name}_reset(" in module.files[f"{info.name}.h"]
    newest = "_newest" if slots else ""
    run, reset = f"{info.name}_run{newest}", f"{info.name}_reset{newest}"
    return CheckedModel(info.name, run, reset, has_states, inputs, outputs)


def _names(info: ModelInfo, side: str, interface: Interface) -> tuple[str, str, str]:
    name = f"{info.name}_{side}_{interface.c_name}"
    return name, interface.c_name, name.upper()


def _output(info: ModelInfo, interface: Interface, array: Array | None) -> _PatternOutput:
    first = [] if array is None else array.ravel()[:_MOST].tolist()
    first = first if all(map(math.isfinite, first)) else []
    texts = [_literal(number, interface.dtype) for number in first]
    lines = tuple(", ".join(texts[i : i + _PER_LINE]) + "," for i in range(0, len(texts), _PER_LINE))
    names = _names(info, "output", interface)
    return _PatternOutput(*names, interface.dtype.c_name, interface.dtype is DType.FLOAT32, len(texts), lines)


def _literal(number: Any, dtype: DType) -> str:
    if dtype is DType.FLOAT32:
        text = f"{number:.9g}"
        return f"{text}f" if any(mark in text for mark in ".e") else f"{text}.0f"
    if dtype in (DType.INT32, DType.INT64) and number == -(1 << (8 * dtype.itemsize - 1)):
        return f"{number + 1} - 1"  # the least value has no literal of its own in C
    return f"{int(number)}{'u' if dtype in (DType.UINT32, DType.UINT64) else ''}"
