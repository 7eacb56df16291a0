"""Poolings, between transpositions to ``[N,H,W,C]`` and back.

A pooling with dilation, in three dimensions or of integers is computed from slices of the window, axis by
axis.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import product
from math import prod

import numpy as np

from crtgen.base import budget
from crtgen.network.frontends.builder import Converted, RefusedOperator
from crtgen.network.frontends.onnx_convert.layer import (
    OnnxConverter,
    OnnxLayer,
    Operand,
    ask_for_room,
    number,
    power,
    reshaped,
)
from crtgen.network.frontends.onnx_convert.window import (
    AxisWindow,
    ImageWindow,
    lines_of,
    to_first,
    to_last,
    window_of,
)
from crtgen.network.ir import Array, DType, Op, Quant
from crtgen.network.ops import Add, AveragePool2d, MaxPool2d, Mean, Mul, Pad, Padding, StridedSlice
from crtgen.network.ops.compare import Greater, Maximum, Select
from crtgen.network.ops.function import Abs

__all__ = ["CONVERTERS", "averaged_whole"]

_MOST_TAPS = 64
_FEW_TAPS = 8


def _max_pool(layer: OnnxLayer) -> Converted | tuple[Converted, ...]:
    lines = lines_of(layer, ())
    if layer.outputs[1:] not in ((), (None,)):
        return _greatest(layer, lines), _places(layer, lines)
    return _greatest(layer, lines)


def _greatest(layer: OnnxLayer, lines: Sequence[AxisWindow]) -> Converted:
    if _is_plain(layer, lines):
        window = window_of(layer, ())
        return _pooled(layer, window, MaxPool2d(window.taps, window.stride, window.around), layer.x)
    return _slid(_padded(layer, layer.x, lines, _least(layer)), layer, lines, Maximum())


def _is_plain(layer: OnnxLayer, lines: Sequence[AxisWindow]) -> bool:
    # True if an operator for images can compute it.
    near = all(line.dilation == 1 for line in lines)
    return len(lines) < 3 and near and (layer.x.dtype is DType.FLOAT32 or layer.x.quant is not None)


def _least(layer: OnnxLayer) -> float | int:
    dtype = layer.x.dtype
    assert dtype is not None
    return float("-inf") if dtype is DType.FLOAT32 else int(np.iinfo(dtype.value).min)


def averaged_whole(layer: OnnxLayer, x: Operand, quant: Quant) -> Converted:
    """Average each window, without padding, with a separate quantisation of the output.

    A single window over the whole image is a global average, for which ONNX Runtime rounds ties differently.
    """
    window = window_of(layer, ())
    if window.around != Padding() or window.dilation != (1, 1):
        raise RefusedOperator("an average of quantised numbers with padding or dilation; supported: without")
    if window.taps == window.image[2:]:
        return Converted(Mean(tuple(range(2, layer.rank)), True), (x,), quant=quant)
    return _pooled(layer, window, AveragePool2d(window.taps, window.stride), x, quant)


def _pooled(
    layer: OnnxLayer,
    window: ImageWindow,
    op: AveragePool2d | MaxPool2d,
    x: Operand,
    quant: Quant | None = None,
) -> Converted:
    made = Converted(op, (to_last(x, window.image, layer.rank),), quant=quant)
    size = op.padding.output_size(window.image[2:], window.taps, window.stride)
    return to_first(made, (*window.image[:2], *size), layer.rank)


def _padded(layer: OnnxLayer, x: Operand, lines: Sequence[AxisWindow], value: float | int) -> Operand:
    before = (0, 0, *(line.before for line in lines))
    after = (0, 0, *(line.after + line.beyond for line in lines))
    return Converted(Pad(before, after, value), (x,)) if any(before + after) else x


def _slid(x: Operand, layer: OnnxLayer, lines: Sequence[AxisWindow], op: Op) -> Converted:
    # Applies ``op`` to the elements of each window; ``x`` is padded already.
    shape = [*layer.x.shape[:2], *(n.length + n.before + n.after + n.beyond for n in lines)]
    made = x
    for axis, line in enumerate(lines, 2):
        if isinstance(op, Maximum) and line.taps > _FEW_TAPS:
            made = _slid_far(made, shape, axis, line)
            shape[axis] = line.outputs
            continue
        if line.taps > _MOST_TAPS:
            raise RefusedOperator(f"a window of {line.taps}; supported: {_MOST_TAPS}")
        parts = [_tap(made, shape, {axis: (line, tap)}) for tap in range(line.taps)]
        made = reduce(lambda a, b: Converted(op, (a, b)), parts)
        shape[axis] = line.outputs
    assert isinstance(made, Converted)
    return made


def _slid_far(x: Operand, shape: Sequence[int], axis: int, line: AxisWindow) -> Converted:
    # The greatest of many taps: of windows of 2, 4, ... taps, of which the last two overlap.
    width, length, made = 1, shape[axis], x

    def part(first: int, last: int, step: int) -> Converted:
        begin, end, stride = [0] * len(shape), list(shape), [1] * len(shape)
        begin[axis], end[axis], stride[axis] = first, last, step
        return Converted(StridedSlice(tuple(begin), tuple(end), tuple(stride)), (made,))

    while 2 * width < line.taps:
        shift = width * line.dilation
        made, length = (
            Converted(Maximum(), (part(0, length - shift, 1), part(shift, length, 1))),
            length - shift,
        )
        width *= 2
    rest, reach = (line.taps - width) * line.dilation, (line.outputs - 1) * line.stride + 1
    pair = part(0, reach, line.stride), part(rest, rest + reach, line.stride)
    return Converted(Maximum(), pair)


def _tap(x: Operand, shape: Sequence[int], taps: Mapping[int, tuple[AxisWindow, int]]) -> Converted:
    # The elements that all windows have at one place along some axes.
    begin, end, stride = [0] * len(shape), list(shape), [1] * len(shape)
    for axis, (line, tap) in taps.items():
        begin[axis] = tap * line.dilation
        end[axis] = begin[axis] + (line.outputs - 1) * line.stride + 1
        stride[axis] = line.stride
    return Converted(StridedSlice(tuple(begin), tuple(end), tuple(stride)), (x,))


def _places(layer: OnnxLayer, lines: Sequence[AxisWindow]) -> Converted:
    # Indices of the maxima, first ones of equal maxima, counted from the beginning of the tensor.
    if prod(line.taps for line in lines) > _MOST_TAPS:
        raise RefusedOperator(f"places in a window of {prod(n.taps for n in lines)}; supported: {_MOST_TAPS}")
    x = _padded(layer, layer.x, lines, _least(layer))
    padded = [*layer.x.shape[:2], *(n.length + n.before + n.after + n.beyond for n in lines)]
    order = range(len(lines)) if not layer.whole("storage_order") else range(len(lines))[::-1]
    steps, step = [0] * len(lines), 1
    for axis in [*order][::-1]:
        steps[axis], step = step, step * lines[axis].length
    best: Operand | None = None
    place: Operand = np.array(0, np.int64)
    budget.current().compute(10 * budget.CALL * prod(line.taps for line in lines), "places in windows")
    for taps in product(*(range(line.taps) for line in lines)):
        one = _tap(x, padded, {a: (lines[a - 2], t) for a, t in enumerate(taps, 2)})
        at = sum(t * line.dilation * s for t, line, s in zip(taps, lines, steps, strict=True))
        if best is not None:
            more = Converted(Greater(), (one, best))
            place = Converted(Select(), (more, np.array(at, np.int64), place))
        best = one if best is None else Converted(Maximum(), (one, best))
    return Converted(Add(), (_first_places(layer, lines, steps), place), ("places",))


def _first_places(layer: OnnxLayer, lines: Sequence[AxisWindow], steps: Sequence[int]) -> Array:
    # Index of the first tap of each window.
    images = prod(layer.x.shape[:2])
    ask_for_room((images, *(n.outputs for n in lines)))
    total = np.arange(images, dtype=np.int64).reshape(layer.x.shape[:2]) * prod(n.length for n in lines)
    total = total.reshape(*total.shape, *(1,) * len(lines))
    for axis, (line, step) in enumerate(zip(lines, steps, strict=True), 2):
        along = (np.arange(line.outputs) * line.stride - line.before) * step
        total = total + along.reshape([-1 if a == axis else 1 for a in range(layer.rank)])
    return total


def _average_pool(layer: OnnxLayer) -> Converted:
    return _averaged(layer, layer.x, bool(layer.whole("count_include_pad")))


def _averaged(layer: OnnxLayer, x: Operand, counts: bool) -> Converted:
    # The mean of each window; ``counts``: with the zeros around the image.
    lines = lines_of(layer, ())
    if not _is_plain(layer, lines):
        total = _slid(_padded(layer, x, lines, 0.0), layer, lines, Add())
        return Converted(Mul(), (total, _shares(lines, counts)), ("shares",))
    window = window_of(layer, ())
    p, (n, c, h, w) = window.padding, window.image
    if not counts or p == Padding():
        return _pooled(layer, window, AveragePool2d(window.taps, window.stride, window.around), x)
    x = x if layer.rank == 4 else reshaped(x, window.image)
    padded = Converted(Pad((0, 0, p.top, p.left), (0, 0, p.bottom, p.right)), (x,))
    image = (n, c, h + p.top + p.bottom, w + p.left + p.right)
    op = AveragePool2d(window.taps, window.stride, window.beyond)
    made = Converted(op, (to_last(padded, image, 4),))
    return to_first(made, (n, c, *op.padding.output_size(image[2:], op.window, op.stride)), layer.rank)


def _shares(lines: Sequence[AxisWindow], counts: bool) -> Array:
    # One by the number of elements that count, for each place of the window.
    total = np.ones((), np.float64)
    for line in lines:
        ask_for_room((line.length + line.before + line.after + line.beyond,))
        ask_for_room((2 * total.size, line.outputs))
        budget.current().compute(line.taps * (budget.CALL + 8 * line.outputs), "windows of an average")
        inside = np.zeros(line.length + line.before + line.after + line.beyond)
        first, last = (0, line.before + line.after) if counts else (line.before, line.before)
        inside[first : last + line.length] = 1
        starts = np.arange(line.outputs) * line.stride
        seen = sum(inside[starts + tap * line.dilation] for tap in range(line.taps))
        total = total[..., None] * seen
    shares: Array = (1 / total).astype(np.float32)
    same = len(set(shares.reshape(-1).tolist())) == 1
    return shares.reshape(-1)[:1].reshape(()) if same else shares


def _lp_pool(layer: OnnxLayer) -> Converted:
    # The p-th root of the sum of the p-th powers.
    p = layer.whole("p", 2)
    if p < 1:
        raise ValueError(f"p {p}")
    inner = power(layer.x if p % 2 == 0 else Converted(Abs(), (layer.x,)), p)
    lines = lines_of(layer, ())
    if _is_plain(layer, lines) and not layer.whole("ceil_mode"):
        count = float(prod(line.taps for line in lines))
        total = Converted(Mul(), (_averaged(layer, inner, True), number(count)), ("count",))
    else:
        total = _slid(_padded(layer, inner, lines, 0.0), layer, lines, Add())
    root = power(total, 1 / p)
    return root if isinstance(root, Converted) else total


_TYPES = frozenset({DType.FLOAT32, DType.INT8, DType.UINT8})

CONVERTERS: Mapping[str, OnnxConverter] = {
    "AveragePool": OnnxConverter(_average_pool, ("average_pool",)),
    "LpPool": OnnxConverter(_lp_pool, ("lp_pool",)),
    "MaxPool": OnnxConverter(_max_pool, ("max_pool",), _TYPES),
}
