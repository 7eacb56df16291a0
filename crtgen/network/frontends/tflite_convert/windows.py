"""Reductions of windows along any axes, one axis at a time."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np

from crtgen.network.frontends.builder import Converted, NamedTensor, RefusedOperator
from crtgen.network.frontends.tflite_convert.layer import TfliteConverter, TfliteLayer, same
from crtgen.network.ir import DType, Op
from crtgen.network.ops import Add, Pad, StridedSlice
from crtgen.network.ops.compare import Maximum, Minimum

__all__ = ["CONVERTERS"]

_MOST_TAPS = 64
_OPERATORS: Mapping[str, Op] = {"ADD": Add(), "MAXIMUM": Maximum(), "MINIMUM": Minimum()}
_NEUTRAL = {"ADD": 0.0, "MAXIMUM": -np.inf, "MINIMUM": np.inf}
_LISTS = ("WindowDimensions", "WindowStrides", "BaseDilations", "WindowDilations", "Padding")


@dataclass(frozen=True, slots=True)
class _Axis:
    taps: int
    stride: int
    dilation: int
    before: int
    after: int


def _reduce_window(layer: TfliteLayer) -> Converted:
    # Padding is the start value, which counts once more for each window.
    name = str(layer.operator.options.get("Reduction", "a subgraph of several operators"))
    if name not in _OPERATORS:
        raise RefusedOperator(f"windows reduced by {name}; supported: {', '.join(_OPERATORS)}")
    op, start = _OPERATORS[name], layer.constant(1, "the start value").reshape(()).astype(np.float32)
    axes = _axes(layer)
    made: NamedTensor | Converted = layer.x
    before, after = tuple(a.before for a in axes), tuple(a.after for a in axes)
    if any((*before, *after)):
        made = Converted(Pad(before, after, float(start)), (made,))
    shape = [n + a.before + a.after for n, a in zip(layer.x.shape, axes, strict=True)]
    for place, axis in enumerate(axes):
        made = _along(made, shape, place, axis, op)
    if start != _NEUTRAL[name]:
        made = Converted(op, (made, start), ("start",))
    return made if isinstance(made, Converted) else Converted(op, (made, start), ("start",))


def _axes(layer: TfliteLayer) -> list[_Axis]:
    rank, found = len(layer.x.shape), {}
    for name in _LISTS:
        given = layer.option(f"{name}AsNumpy")
        values = [1] * rank if isinstance(given, int) else np.asarray(given).reshape(-1).tolist()
        found[name] = [0] * 2 * rank if name == "Padding" and isinstance(given, int) else values
    if any(len(found[name]) != rank * (2 if name == "Padding" else 1) for name in _LISTS):
        raise ValueError(f"windows of {len(found['WindowDimensions'])} axes on {rank}")
    if any(n != 1 for n in found["BaseDilations"]):
        raise RefusedOperator("a dilated input; supported: dilated windows")
    if min((*found["Padding"], 0)) < 0:
        raise RefusedOperator("negative padding; supported: from 0 on")
    if min(n for name in _LISTS[:4] for n in found[name]) < 1:
        raise ValueError("windows, strides or dilations below 1")
    pads = zip(found["Padding"][::2], found["Padding"][1::2], strict=True)
    names = (found[name] for name in ("WindowDimensions", "WindowStrides", "WindowDilations"))
    return [_Axis(*one, *ends) for *one, ends in zip(*names, pads, strict=True)]


def _along(
    x: NamedTensor | Converted, shape: list[int], place: int, axis: _Axis, op: Op
) -> NamedTensor | Converted:
    # Windows along one axis, whose length in ``shape`` becomes their number.
    extent = (axis.taps - 1) * axis.dilation + 1
    if axis.taps == axis.stride == 1:
        return x
    if axis.taps > _MOST_TAPS:
        raise RefusedOperator(f"a window of {axis.taps}; supported: {_MOST_TAPS}")
    if shape[place] < extent:
        raise ValueError(f"a window of {extent} does not fit into {shape[place]}")
    count, parts = (shape[place] - extent) // axis.stride + 1, []
    for tap in range(axis.taps):
        begin, end, stride = [0] * len(shape), list(shape), [1] * len(shape)
        begin[place] = tap * axis.dilation
        end[place] = begin[place] + (count - 1) * axis.stride + 1
        stride[place] = axis.stride
        parts.append(Converted(StridedSlice(tuple(begin), tuple(end), tuple(stride)), (x,)))
    shape[place] = count
    return reduce(lambda a, b: Converted(op, (a, b)), parts)


_FIELDS = (*(f"{name}AsNumpy" for name in _LISTS), "BodySubgraphIndex")

CONVERTERS: Mapping[str, TfliteConverter] = {
    "STABLEHLO_REDUCE_WINDOW": TfliteConverter(
        _reduce_window,
        ("reduce_window", "pool"),
        "StablehloReduceWindowOptions",
        _FIELDS,
        same(DType.FLOAT32),
    ),
}
