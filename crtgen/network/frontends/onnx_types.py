"""Element types of `.onnx` files, and the crtgen types that hold their values.

Floats of other sizes are computed as float32, and a Cast rounds to the precision of their type; integers of
four and two bits are stored in eight.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from crtgen.network.ir import Array, DType

__all__ = ["KINDS", "OnnxType", "held", "kind_of", "note_of", "type_name"]


@dataclass(frozen=True, slots=True)
class OnnxType:
    """An element type. ``dtype`` holds its values; a narrower type also has a ``format`` or a number of
    ``bits``.
    """

    name: str
    dtype: DType
    format: str = ""
    bits: int = 0

    @property
    def is_own(self) -> bool:
        return self.name == _NAMES.get(self.dtype, self.dtype.name)


_NAMES = {DType.FLOAT32: "FLOAT"}
_OWN = (
    *(DType.FLOAT32, DType.INT8, DType.UINT8, DType.INT16, DType.INT32, DType.INT64),
    *(DType.UINT16, DType.UINT32, DType.UINT64, DType.BOOL),
)
_KINDS = (
    *(OnnxType(_NAMES.get(dtype, dtype.name), dtype) for dtype in _OWN),
    OnnxType("DOUBLE", DType.FLOAT32),
    OnnxType("FLOAT16", DType.FLOAT32, "float16"),
    OnnxType("BFLOAT16", DType.FLOAT32, "bfloat16"),
    OnnxType("FLOAT8E4M3FN", DType.FLOAT32, "float8_e4m3fn"),
    OnnxType("FLOAT8E4M3FNUZ", DType.FLOAT32, "float8_e4m3fnuz"),
    OnnxType("FLOAT8E5M2", DType.FLOAT32, "float8_e5m2"),
    OnnxType("FLOAT8E5M2FNUZ", DType.FLOAT32, "float8_e5m2fnuz"),
    OnnxType("FLOAT4E2M1", DType.FLOAT32, "float4_e2m1fn"),
    OnnxType("INT4", DType.INT8, bits=4),
    OnnxType("UINT4", DType.UINT8, bits=4),
    OnnxType("INT2", DType.INT8, bits=2),
    OnnxType("UINT2", DType.UINT8, bits=2),
)
KINDS: Mapping[str, OnnxType] = {kind.name: kind for kind in _KINDS}
"""Types by ONNX's name."""


def type_name(number: int) -> str:
    """Return ONNX's name of the type with this code; empty if a file does not state a type."""
    if number == onnx.TensorProto.UNDEFINED:
        return ""
    known = number in onnx.TensorProto.DataType.values()
    return str(onnx.TensorProto.DataType.Name(number)) if known else f"type number {number}"


def kind_of(number: int) -> OnnxType | None:
    return KINDS.get(type_name(number))


def held(data: Array, dtype: DType) -> Array:
    """Return a file's values in the type that holds them; values beyond its range become infinite."""
    with np.errstate(over="ignore"):
        return data.astype(dtype.numpy, copy=False)


def note_of(names: Iterable[str]) -> str:
    """Return a note on tensors of types that crtgen lacks; empty if there are none."""
    kinds = [KINDS[name] for name in sorted(set(names)) if name in KINDS and not KINDS[name].is_own]
    parts = (f"{kind.name} is held and computed as {kind.dtype.value}" for kind in kinds)
    return f"{', '.join(parts)}: inputs and outputs, too" if kinds else ""
