"""Operators with which exporters compute shapes, evaluated on constants with numpy by ONNX's definitions."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx

from crtgen.network.frontends.onnx_convert import OnnxLayer
from crtgen.network.ir import Array
from crtgen.network.ops.narrow import FORMATS

__all__ = ["COMPUTED", "length_of"]


def length_of(layer: OnnxLayer, arrays: Sequence[Array]) -> int:
    """Return an upper estimate of the elements in the results of one of ``COMPUTED``; ``arrays`` are its
    inputs.

    Raises ``ValueError`` for invalid inputs.
    """
    code = layer.node.code
    if code == "Range":
        return _range_length(*(array.reshape(-1)[0] for array in arrays))
    if code == "ConstantOfShape":
        return math.prod(layer.integers(0, "lengths"))
    if code == "Expand":
        return math.prod(np.broadcast_shapes(arrays[0].shape, tuple(layer.integers(1, "lengths"))))
    if code == "Gather":
        data, indices = arrays
        return int(indices.size * max(data.size // max(data.shape[layer.own_axis(0)], 1), 1))
    if code in _TOGETHER:
        return math.prod(np.broadcast_shapes(*(array.shape for array in arrays)))
    return sum(array.size for array in arrays)


def _range_length(start: Array, limit: Array, delta: Array) -> int:
    steps = (float(limit) - float(start)) / float(delta)
    return max(math.ceil(steps), 0)


def _array(layer: OnnxLayer, position: int = 0) -> Array:
    return layer.constant(position, "operands")


def _shape(layer: OnnxLayer) -> list[Array]:
    shape = _array(layer).shape
    return [np.array(shape[slice(layer.attribute("start", 0), layer.attribute("end"))], np.int64)]


def _gather(layer: OnnxLayer) -> list[Array]:
    return [
        np.take(_array(layer), _array(layer, 1).astype(np.int64, casting="same_kind"), axis=layer.own_axis(0))
    ]


def _slice(layer: OnnxLayer) -> list[Array]:
    x = _array(layer)
    starts, ends = (layer.listed(name, n) for n, name in enumerate(("starts", "ends"), 1))
    if starts is None or ends is None:
        raise ValueError("the Slice has no starts or no ends")
    axes = layer.listed("axes", 3) or list(range(len(starts)))
    steps = layer.listed("steps", 4) or [1] * len(starts)
    parts = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        place = layer.axis(axis, x.ndim)
        # An end far before the first element means that this one is taken, too.
        before_first = step < 0 and end < -x.shape[place]
        parts[place] = slice(start, None if before_first else end, step)
    return [x[tuple(parts)]]


def _concat(layer: OnnxLayer) -> list[Array]:
    return [np.concatenate([_array(layer, i) for i in range(len(layer.inputs))], layer.own_axis(0))]


def _cast(layer: OnnxLayer) -> list[Array]:
    number = layer.whole("to") if layer.node.code == "Cast" else None
    to = _array(layer, 1).dtype if number is None else onnx.helper.tensor_dtype_to_np_dtype(number)
    x = _array(layer)
    if to.name.startswith("float8") and to.name in FORMATS and layer.whole("saturate", 1):
        most = FORMATS[to.name].most
        x = np.clip(x.astype(np.float32), -most, most)
    return [x.astype(to)]


def _squeeze(layer: OnnxLayer) -> list[Array]:
    x, axes = _array(layer), layer.listed("axes", 1)
    return [np.squeeze(x, None if axes is None else tuple(axes))]


def _unsqueeze(layer: OnnxLayer) -> list[Array]:
    return [np.expand_dims(_array(layer), tuple(layer.listed("axes", 1) or ()))]


def _range(layer: OnnxLayer) -> list[Array]:
    start, limit, delta = (_array(layer, i).reshape(-1)[0] for i in range(3))
    return [np.arange(start, limit, delta, dtype=start.dtype)]


def _constant_of_shape(layer: OnnxLayer) -> list[Array]:
    value = layer.attribute("value", np.zeros(1, np.float32))
    return [np.full(tuple(layer.integers(0, "lengths")), value.reshape(-1)[0], value.dtype)]


def _reshape(layer: OnnxLayer) -> list[Array]:
    x, shape = _array(layer), layer.integers(1, "lengths")
    if not layer.whole("allowzero"):
        shape = [x.shape[i] if length == 0 else length for i, length in enumerate(shape)]
    return [x.reshape(shape)]


def _transpose(layer: OnnxLayer) -> list[Array]:
    return [np.transpose(_array(layer), layer.attribute("perm"))]


def _expand(layer: OnnxLayer) -> list[Array]:
    x = _array(layer)
    return [np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(layer.integers(1, "lengths"))))]


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.asarray(np.divide(a, b))
    whole = np.floor_divide(a, b)
    return np.asarray(whole + ((whole < 0) & (whole * b != a)).astype(a.dtype))


def _of_pair(function: Callable[[Array, Array], Array]) -> Callable[[OnnxLayer], list[Array]]:
    # A function of two arrays whose result has their type.
    def compute(layer: OnnxLayer) -> list[Array]:
        a, b = _array(layer), _array(layer, 1)
        return [np.asarray(function(a, b)).astype(a.dtype, copy=False)]

    return compute


def _remainder(layer: OnnxLayer) -> list[Array]:
    return _of_pair(np.fmod if layer.whole("fmod") else np.mod)(layer)


def _compared(function: Callable[[Array, Array], Array]) -> Callable[[OnnxLayer], list[Array]]:
    return lambda layer: [np.asarray(function(_array(layer), _array(layer, 1)))]


# Those whose operands are repeated to one shape.
_TOGETHER: Mapping[str, Callable[[OnnxLayer], list[Array]]] = {
    "Add": _of_pair(np.add),
    "And": _compared(np.logical_and),
    "Div": _of_pair(_divide),
    "Equal": _compared(np.equal),
    "Greater": _compared(np.greater),
    "GreaterOrEqual": _compared(np.greater_equal),
    "Less": _compared(np.less),
    "LessOrEqual": _compared(np.less_equal),
    "Mod": _remainder,
    "Mul": _of_pair(np.multiply),
    "Sub": _of_pair(np.subtract),
    "Where": lambda layer: [np.where(_array(layer), _array(layer, 1), _array(layer, 2))],
}

COMPUTED: Mapping[str, Callable[[OnnxLayer], list[Array]]] = {
    **_TOGETHER,
    "Cast": _cast,
    "CastLike": _cast,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Gather": _gather,
    "Identity": lambda layer: [_array(layer)],
    "Not": lambda layer: [np.logical_not(_array(layer))],
    "Range": _range,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": lambda layer: [np.array(_array(layer).size, np.int64)],
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
"""Functions that compute a node with constant inputs; they raise ``ValueError`` and its subclasses."""
