"""Element types, quantisation and values: the nouns of the IR."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "DType", "Quant", "Rescaling", "Storage", "Value", "shape_text"]

Array = npt.NDArray[np.generic]


class DType(Enum):
    """Element type of a tensor; the enum's value is numpy's name of it.

    ``INT4`` is for constants only, with two values per byte; in numpy such constants are int8 arrays.
    """

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT4 = "int4"
    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    BOOL = "bool"

    __hash__ = object.__hash__  # there is one of each; that of Enum takes longer

    @cached_property
    def numpy(self) -> np.dtype[np.generic]:
        return np.dtype("int8" if self is DType.INT4 else self.value)

    @property
    def itemsize(self) -> int:
        """Bytes per element; 1 for ``INT4``, which packs two into a byte."""
        return self.numpy.itemsize

    @property
    def c_name(self) -> str:
        return {"float32": "float", "bool": "bool"}.get(self.value, f"{self.numpy.name}_t")

    @property
    def is_integer(self) -> bool:
        return self not in (DType.FLOAT32, DType.FLOAT16, DType.BOOL)


class Rescaling(Enum):
    """Arithmetic with which sums and products of an operator are scaled to its output."""

    FIXED_POINT = "fixed point"
    """TFLite's: by an integer multiplier and a shift; halves go away from zero, or up."""

    FLOAT32 = "float32"
    """ONNX Runtime's: by a float32 product; halves go to even numbers."""


@dataclass(frozen=True, slots=True)
class Quant:
    """Affine quantisation, ``real = scale * (q - zero_point)``.

    There is one scale and zero point for the whole tensor, or one per index along ``axis``. Scales are
    float32 values held as Python floats, as the model stores them. ``rescaling`` selects the arithmetic that
    scales results to the tensor.
    """

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None
    rescaling: Rescaling = Rescaling.FIXED_POINT

    def __post_init__(self) -> None:
        if len(self.scales) != len(self.zero_points):
            raise ValueError(f"{len(self.scales)} scales and {len(self.zero_points)} zero points")
        if self.axis is None and len(self.scales) != 1:
            raise ValueError(f"{len(self.scales)} scales without an axis")

    @classmethod
    def tensor(cls, scale: float, zero_point: int = 0) -> "Quant":
        return cls((float(np.float32(scale)),), (int(zero_point),))

    @property
    def scale(self) -> float:
        if self.axis is not None:
            raise ValueError("quantised per axis: it has no single scale")
        return self.scales[0]

    @property
    def zero_point(self) -> int:
        if self.axis is not None:
            raise ValueError("quantised per axis: it has no single zero point")
        return self.zero_points[0]

    def __str__(self) -> str:
        if self.axis is None:
            return f"scale {self.scale:.6g} zero {self.zero_point}"
        return f"{len(self.scales)} scales on axis {self.axis}"


class Storage(Enum):
    """Lifetime of a value: within a run, constant, or persistent between runs."""

    TEMPORARY = "temporary"
    CONSTANT = "constant"
    STATE = "state"


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A tensor of the graph: temporary, constant, or a state that persists between runs.

    ``data`` is a constant's value, or a state's value before the first run. The name identifies it within a
    graph. Dimensions are fixed and positive; a scalar has shape ``()``.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    quant: Quant | None = None
    data: Array | None = None
    is_state: bool = False

    @classmethod
    def state(cls, name: str, initial: Array, quant: Quant | None = None) -> "Value":
        return replace(cls.constant(name, initial, quant), is_state=True)

    @classmethod
    def constant(
        cls, name: str, data: Array, quant: Quant | None = None, dtype: DType | None = None
    ) -> "Value":
        """Return a constant with the shape of ``data`` and its type, or another one; the array is made
        read-only.
        """
        frozen = np.ascontiguousarray(data).reshape(data.shape)
        frozen.setflags(write=False)
        shape = tuple(int(d) for d in data.shape)
        return cls(name, shape, dtype or DType(frozen.dtype.name), quant, frozen)

    @property
    def is_constant(self) -> bool:
        return self.data is not None and not self.is_state

    @property
    def storage(self) -> Storage:
        if self.is_state:
            return Storage.STATE
        return Storage.CONSTANT if self.is_constant else Storage.TEMPORARY

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        if self.dtype is DType.INT4:
            return -(-self.elements // 2)
        return self.elements * self.dtype.itemsize

    def array(self) -> Array:
        """Return the data of a constant, or the initial value of a state."""
        if self.data is None:
            raise ValueError(f"{self.name} is not a constant")
        return self.data

    def __str__(self) -> str:
        quant = f" ({self.quant})" if self.quant else ""
        return f"%{self.name}: {shape_text(self.shape)} {self.dtype.value}{quant}"


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape as text: ``1x49x10x1``; a scalar is ``scalar``."""
    return "x".join(map(str, shape)) or "scalar"
