"""Softmax of int8 as ONNX Runtime's QLinearSoftmax computes it: exponentials from a table, quotients in
float32.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import Array, AxisMap, DType, Op, Quant, Signature, Value
from crtgen.network.ops.attrs import require, require_inputs, tensor_quant
from crtgen.network.ops.case import Case, int8s, make
from crtgen.network.ops.scheme import INT8
from crtgen.network.ops.traits import along_all

__all__ = ["LookupSoftmax", "LookupSoftmaxParams", "cases"]

_ROOM = 5.0  # the logarithm of what is left above the greatest sum
_LARGEST = float(np.finfo(np.float32).max)
_WHOLE = 1 << 22  # quotients below it are rounded by an addition


@dataclass(frozen=True, slots=True, eq=False)
class LookupSoftmaxParams:
    """``y = clamp(rint(table[255 + x - max] * steps / sum(table[...])) + zero_point)``, all in float32.

    ``table[256]`` has exponentials times a constant; ``steps`` is the number of output steps that represent
    1.0. ``is_far``: products may be infinite, or quotients too large for integers, so quotients are limited
    to ``FAR``, which is beyond all outputs.
    """

    FAR: ClassVar[float] = 512.0

    table: npt.NDArray[np.float32]
    steps: float
    zero_point: int

    @property
    def is_far(self) -> bool:
        return float(self.table[-1]) * self.steps >= _LARGEST or self.steps >= _WHOLE


@dataclass(frozen=True, slots=True)
class LookupSoftmax(Op):
    """``exp(x)`` divided by its sum along the last axis, which is added up in order."""

    name: ClassVar[str] = "lookup_softmax"

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        require(inputs[0].dtype is INT8.activations, f"the input is {inputs[0].dtype.value}")
        require(len(inputs[0].shape) >= 1, "the input must have a dimension")
        return ((inputs[0].shape, INT8.activations),)

    def axis_map(self, sig: Signature, axes: Sequence[int | None]) -> AxisMap | None:
        return along_all(sig, axes) if axes[0] != len(sig.x.shape) - 1 else None

    def parameters(self, sig: Signature) -> LookupSoftmaxParams:
        """Compute the parameters. The table's largest value is as large as the sums allow.

        ONNX Runtime takes the logarithm in float32. Quotients do not depend on that, except for ties, such as
        those of two equal inputs.
        """
        x, y = tensor_quant(sig.x), tensor_quant(sig.y)
        room = float(np.float32(math.log(np.float32(_LARGEST) / np.float32(sig.x.shape[-1])))) - _ROOM
        table = np.exp((np.arange(256.0) - 255 + room / x.scale) * x.scale).astype(np.float32)
        steps = float(np.floor(np.float32(1) / np.float32(y.scale)))
        return LookupSoftmaxParams(table, steps, y.zero_point)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        p = self.parameters(sig)
        x = arrays[0].astype(np.int64)
        powers = p.table[255 + x - x.max(axis=-1, keepdims=True)]
        total = np.cumsum(powers, axis=-1, dtype=np.float32)[..., -1:]
        with np.errstate(over="ignore"):
            shares = np.minimum(powers * np.float32(p.steps) / total, np.float32(p.FAR))
        return (INT8.saturated(np.rint(shares).astype(np.int64) + p.zero_point),)


def cases() -> Iterator[Case]:
    probability = Quant.tensor(1 / 256, -128)
    yield make("row_onnx", LookupSoftmax(), [int8s("x", (1, 10), 0.05, 3)], probability)
    yield make("rows_onnx", LookupSoftmax(), [int8s("x", (2, 3, 7), 0.3, -128)], Quant.tensor(0.0035, -120))
    yield make("one_onnx", LookupSoftmax(), [int8s("x", (5, 1), 0.05, 3)], probability)
    yield make("fine_onnx", LookupSoftmax(), [int8s("x", (3, 4), 0.02, 3)], Quant.tensor(1e-8, -128))
    yield make("long_onnx", LookupSoftmax(), [int8s("x", (1, 200), 0.9, 0)], probability)
