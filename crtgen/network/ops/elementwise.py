"""Common parts of element-wise operators: broadcasting, and plain integers."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import Array, AxisMap, DType, Signature, Value
from crtgen.network.ops.attrs import require, require_inputs
from crtgen.network.ops.scheme import scheme_of
from crtgen.network.ops.traits import Channelwise, along_all

__all__ = ["Elementwise", "Numbers", "wide", "wrapped"]

Numbers = npt.NDArray[Any]


class Elementwise(Channelwise):
    """An operator whose output elements are computed from the elements at the same position of the broadcast
    inputs.
    """

    __slots__ = ()

    operands: ClassVar[int] = 1

    def axis_map(self, sig: Signature, axes: Sequence[int | None]) -> AxisMap | None:
        return along_all(sig, axes)

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, self.operands)
        self.require_types(inputs)
        return ((np.broadcast_shapes(*(v.shape for v in inputs)), self.result_type(inputs)),)

    def require_types(self, inputs: Sequence[Value]) -> None:
        """Raise ``ValueError`` unless the input types are allowed; by default all must be equal."""
        for value in inputs[1:]:
            alike = value.dtype is inputs[0].dtype
            require(alike, f"operands of {inputs[0].dtype.value} and {value.dtype.value}")

    def result_type(self, inputs: Sequence[Value]) -> DType:
        return inputs[0].dtype


def wide(value: Value, array: Array) -> Numbers:
    """Return a tensor's values in a wider type for computing: float64 or int64."""
    return array.astype(np.float64 if value.dtype is DType.FLOAT32 else np.int64)


def wrapped(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Wrap integers to int32, as C does on every supported core."""
    return numbers.astype(np.int32).astype(np.int64)


def is_quantised(value: Value) -> bool:
    return value.quant is not None and not scheme_of(value).is_real
