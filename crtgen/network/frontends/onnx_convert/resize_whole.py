"""Linear Resize of integer images, with the roundings of ONNX Runtime's own operator.

A pixel is the sum of four others, each times the product of two float32 weights, added in that order and
truncated.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crtgen.network.frontends.builder import Converted, RefusedOperator
from crtgen.network.frontends.onnx_convert.layer import OnnxLayer, Operand, ask_for_room, cast
from crtgen.network.ir import DType
from crtgen.network.ops import Add, Mul
from crtgen.network.ops.gather import Gather

__all__ = ["WHOLE", "resized_whole"]

WHOLE = (DType.INT8, DType.UINT8)
"""The types that ONNX Runtime resizes so."""

_DOWN, _ACROSS = 2, 3
_MODES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
Real = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _ResizeLine:
    # For each output along an axis: its two neighbours in the input, and the weight of each.
    places: tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]
    shares: tuple[Real, Real]


def resized_whole(layer: OnnxLayer, targets: Mapping[int, tuple[str, float]]) -> Converted:
    """Resize by ``sizes`` or ``scales``, one for each resized axis."""
    _mode(layer)
    if layer.rank != 4 or not set(targets) <= {_DOWN, _ACROSS} or layer.whole("antialias"):
        raise RefusedOperator(
            f"shares of {layer.x.type_name} beside those of plain images; supported: FLOAT32"
        )
    assert layer.x.dtype is not None
    down, across = (_line(layer, axis, *targets.get(axis, ("scales", 1.0))) for axis in (_DOWN, _ACROSS))
    ask_for_room((4, len(down.shares[0]), len(across.shares[0])))
    total: Converted | None = None
    for row in (0, 1):
        rows = Converted(Gather(_DOWN), (layer.x, down.places[row]), ("rows",))
        for column in (0, 1):
            pixels = Converted(Gather(_ACROSS), (rows, across.places[column]), ("columns",))
            shares = across.shares[column] * down.shares[row][:, None]
            term = Converted(Mul(), (_real(pixels), shares), ("shares",))
            total = term if total is None else Converted(Add(), (total, term), ("term",))
    assert total is not None
    return cast(total, layer.x.dtype)


def _real(x: Operand) -> Converted:
    return cast(x, DType.FLOAT32)


def _line(layer: OnnxLayer, axis: int, kind: str, number: float) -> _ResizeLine:
    length = layer.x.shape[axis]
    scale = np.float32(number if kind == "scales" else np.float32(number) / np.float32(length))
    count = int(np.float32(length) * scale) if kind == "scales" else int(number)
    if count < 1:
        raise ValueError(f"an axis of {length} resized to {count}")
    ask_for_room((8, count))
    places = np.clip(_coordinates(layer, length, count, scale), 0, length - 1)
    first = places.astype(np.int32)
    second = np.minimum(first + 1, length - 1).astype(np.int32)
    after, before = (np.abs(places - edge.astype(np.float32)) for edge in (first, second))
    alike = first == second
    shares = [np.where(alike, np.float32(0.5), part).astype(np.float32) for part in (before, after)]
    return _ResizeLine((first, second), (shares[0], shares[1]))


def _mode(layer: OnnxLayer) -> str:
    # Transformation of coordinates; align_corners is the last case of ``_coordinates``.
    older = layer.opset < 11 or layer.node.code == "Upsample"
    mode = layer.text("coordinate_transformation_mode", "asymmetric" if older else "half_pixel")
    if mode not in _MODES:
        raise RefusedOperator(f"{mode} of {layer.x.type_name}; supported: {', '.join(_MODES)}")
    return mode


def _coordinates(layer: OnnxLayer, length: int, count: int, scale: np.float32) -> Real:
    # Coordinates of the outputs along an axis of ``length`` values.
    mode = _mode(layer)
    at, half = np.arange(count, dtype=np.float32), np.float32(0.5)
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and count > 1) or scale == 1:
        return ((at + half) / scale - half).astype(np.float32)
    if mode == "pytorch_half_pixel" or (mode == "align_corners" and count == 1):
        return np.zeros(1, np.float32)
    if mode == "asymmetric":
        return (at / scale).astype(np.float32)
    return (at * np.float32(length - 1) / np.float32(count - 1)).astype(np.float32)
