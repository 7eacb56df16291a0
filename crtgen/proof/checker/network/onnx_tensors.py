"""Tensors of a quantised ONNX file, and its constants."""

from typing import Any

import numpy as np

from crtgen.proof.checker.network.file import REAL, ElementType, Variable
from crtgen.proof.checker.network.onnx_forms import Scaled
from crtgen.proof.checker.refusal import Refusal

__all__ = ["OnnxTensors"]

_BYTE = ElementType(8, -128, 127)


class OnnxTensors:
    # Tensors by index, integers by name; constants and shapes by name.
    _arrays: dict[str, Any]
    _shapes: dict[str, tuple[int, ...]]

    def __init__(self) -> None:
        self._names: list[str] = []
        self._tensors: dict[str, int] = {}
        self._scales: dict[int, Scaled] = {}

    def _whole_of(self, data: Any, node: Any, axis: int) -> Any:
        # Constants that the file quantises itself: rounded to the nearest, halves to even.
        scale, zero = (np.asarray(self._constant(name)) for name in node.input[1:3])
        if scale.size > 1:
            along = [-1 if k == axis % data.ndim else 1 for k in range(data.ndim)]
            scale, zero = scale.reshape(along), zero.reshape(along)
        ends = np.iinfo(zero.dtype)
        steps = np.rint(data.astype(np.float32) / scale.astype(np.float32)).astype(np.float64)
        return np.clip(steps + zero, ends.min, ends.max).astype(zero.dtype)

    def _scale(self, scale_name: str, zero_name: str = "") -> tuple[Any, int]:
        # The scales, and the zero point as it is for int8. Of several, all have to be the same.
        scale = np.asarray(self._constant(scale_name), np.float32)
        if not zero_name:
            raise Refusal("a quantisation without a zero point")
        zero = np.asarray(self._constant(zero_name))
        if zero.dtype not in (np.int8, np.uint8, np.int32) or (zero != zero.ravel()[0]).any():
            raise Refusal(f"zero points of {zero.dtype}, or several")
        if not (np.isfinite(scale) & (scale > 0)).all():
            raise Refusal("a scale that is not above 0")
        return scale, int(zero.ravel()[0]) - 128 * (zero.dtype == np.uint8)

    def _constant(self, name: str) -> Any:
        if name not in self._arrays:
            raise Refusal(f"{name!r} has to be constant")
        return self._arrays[name]

    @staticmethod
    def _whole(data: Any) -> Any:
        # A constant as int64, less 128 if it is of uint8.
        if data.dtype not in (np.int8, np.uint8, np.int32):
            raise Refusal(f"a constant of {data.dtype}")
        return data.astype(np.int64) - 128 * (data.dtype == np.uint8)

    def _new(self, name: str, shape: tuple[int, ...], scaled: Scaled | None) -> int:
        if 0 in shape:
            raise Refusal(f"{name!r} has no fixed shape")
        self._names.append(name)
        self._shapes[name] = shape
        if scaled is not None:
            self._scales[len(self._names) - 1] = scaled
        return len(self._names) - 1

    def _index(self, name: str) -> int:
        if name not in self._tensors:
            raise Refusal(f"{name!r} is not quantised, and no end of the network")
        return self._tensors[name]

    # ---- what layers ask

    def variables(self) -> list[Variable]:
        return []

    def name(self, tensor: int) -> str:
        return self._names[tensor]

    def is_real(self, tensor: int) -> bool:
        return tensor not in self._scales

    def shape(self, tensor: int) -> tuple[int, ...]:
        return self._shapes[self._names[tensor]]

    def size(self, tensor: int) -> int:
        return int(np.prod(self.shape(tensor), dtype=np.int64))

    def kind(self, tensor: int) -> ElementType:
        return _BYTE if tensor in self._scales else REAL

    def constant(self, tensor: int) -> Any:
        known = self._scales.get(tensor)
        return None if known is None else known.data

    def scale(self, tensor: int) -> Any:
        return np.float32(self._scales[tensor].scales[0])

    def zero_point(self, tensor: int) -> int:
        return self._scales[tensor].zero

    def has_scale(self, tensor: int) -> bool:
        return tensor in self._scales
