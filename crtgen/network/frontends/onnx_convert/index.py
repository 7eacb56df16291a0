"""Operators that read or write elements at given indices."""

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from crtgen.network.frontends.builder import Converted, KnownOutput, RefusedOperator
from crtgen.network.frontends.onnx_convert.layer import (
    ANY,
    OnnxConverter,
    OnnxLayer,
    Operand,
    ask_for_room,
    cast,
    number,
    reshaped,
)
from crtgen.network.frontends.onnx_types import KINDS, kind_of, type_name
from crtgen.network.ir import DType, shape_text
from crtgen.network.ops import Add, Concat, Pad, Sub
from crtgen.network.ops.compare import Equal, Less, Select
from crtgen.network.ops.gather import Gather, GatherNd
from crtgen.network.ops.scatter import REDUCTIONS, ScatterElements, ScatterNd
from crtgen.network.ops.topk import TopK

__all__ = ["CONVERTERS", "whole_indices"]


def whole_indices(layer: OnnxLayer, position: int, lengths: Sequence[int]) -> Operand:
    """Return non-negative indices; ``lengths`` are those of the indexed axes."""
    tensor = layer.tensor(position)
    length = np.array(lengths if len(lengths) > 1 else lengths[0], np.int32)
    if tensor.data is not None:
        data = tensor.data.astype(np.int64)
        if np.any(data < -length) or np.any(data >= length):
            raise ValueError(f"indices from {data.min()} to {data.max()} of {list(lengths)}")
        return np.where(data < 0, data + length, data).astype(np.int32)
    indices = _narrow(layer, position)
    below = Converted(Less(), (indices, number(0, DType.INT32)), ("zero",))
    lifted = Converted(Add(), (indices, length), ("length",))
    return Converted(Select(), (below, lifted, indices))


def _narrow(layer: OnnxLayer, position: int) -> Operand:
    tensor = layer.tensor(position)
    return tensor if tensor.dtype is DType.INT32 else cast(tensor, DType.INT32)


def _gather(layer: OnnxLayer) -> Converted:
    axis = layer.own_axis(0)
    indices = whole_indices(layer, 1, (layer.x.shape[axis],))
    return Converted(Gather(axis), (layer.x, indices), ("indices",))


def _gather_nd(layer: OnnxLayer) -> Converted:
    # With the coordinates of the first ``batch_dims`` axes, which are those of the indices themselves.
    batch, shape = layer.whole("batch_dims"), layer.tensor(1).shape
    indices = whole_indices(layer, 1, layer.x.shape[batch : batch + shape[-1]])
    if batch:
        if shape[:batch] != layer.x.shape[:batch]:
            raise ValueError(f"{shape_text(layer.x.shape)} and {shape_text(shape)} begin differently")
        ask_for_room((len(shape), *shape[:-1]))
        grid = np.indices(shape[:-1], np.int32)[:batch]
        indices = _places([*grid, indices], shape[:-1])
    return Converted(GatherNd(), (layer.x, indices), ("indices",))


def _places(coordinates: Sequence[Operand], shape: Sequence[int]) -> Converted:
    # Coordinates ``[*shape]``, or several ``[*shape, n]``, put together along a last axis.
    parts: list[Operand] = []
    for c in coordinates:
        parts.append(c[..., None] if isinstance(c, np.ndarray) and c.ndim == len(shape) else c)
    return Converted(Concat(len(shape)), tuple(parts))


def _gather_elements(layer: OnnxLayer) -> Converted:
    # The element at each index along one axis, and at its own place along the others.
    axis, shape = layer.own_axis(0), layer.tensor(1).shape
    index = reshaped(whole_indices(layer, 1, (layer.x.shape[axis],)), (*shape, 1))
    ask_for_room((len(shape), *shape))
    grid = list(np.indices(shape, np.int32))
    places = _places([*grid[:axis], index, *grid[axis + 1 :]], shape)
    return Converted(GatherNd(), (layer.x, places), ("indices",))


def _reduction(layer: OnnxLayer) -> str:
    name = layer.text("reduction", "none")
    if name not in REDUCTIONS:
        raise RefusedOperator(f"reduction {name}; supported: {', '.join(REDUCTIONS)}")
    return name


def _scatter_nd(layer: OnnxLayer) -> Converted:
    depth = layer.tensor(1).shape[-1]
    indices = whole_indices(layer, 1, layer.x.shape[:depth])
    operands = (layer.x, indices, layer.tensor(2))
    return Converted(ScatterNd(_reduction(layer)), operands, ("indices", "updates"))


def _scatter_elements(layer: OnnxLayer) -> Converted:
    axis = layer.own_axis(0)
    indices = whole_indices(layer, 1, (layer.x.shape[axis],))
    operands = (layer.x, indices, layer.tensor(2))
    return Converted(ScatterElements(axis, _reduction(layer)), operands, ("indices", "updates"))


def _tensor_scatter(layer: OnnxLayer) -> Converted:
    # Slices along ``axis`` from a place on that each element of the batch has.
    shape, update = layer.x.shape, layer.tensor(1)
    axis = layer.own_axis(-2)
    if not 0 < axis < layer.rank:
        raise ValueError(f"axis {axis} of {shape_text(shape)}")
    ask_for_room((axis + 1, *update.shape[: axis + 1]))
    grid = np.indices(update.shape[: axis + 1], np.int32)
    place: Operand = grid[axis]
    if layer.has(2):
        first = reshaped(_narrow(layer, 2), (shape[0], *(1,) * axis))
        place = Converted(Add(), (place, first), ("first",))
    if layer.text("mode", "linear") == "circular":
        place = _modulo(place, shape[axis])
    places = _places([*grid[:axis], reshaped(place, (*grid[axis].shape, 1))], grid[axis].shape)
    return Converted(ScatterNd(), (layer.x, places, update), ("indices", "updates"))


def _modulo(place: Operand, length: int) -> Operand:
    # Less than twice ``length`` less ``length`` where it is not below it.
    below = Converted(Less(), (place, number(length, DType.INT32)), ("length",))
    lowered = Converted(Sub(), (place, number(length, DType.INT32)), ("length",))
    return Converted(Select(), (below, place, lowered))


def _top_k(layer: OnnxLayer) -> Converted:
    axis = layer.own_axis(-1)
    if layer.opset < 10:
        count = layer.whole("k")
    else:
        count = int(layer.constant(1, "numbers of elements").reshape(-1)[0].item())
    return Converted(TopK(count, axis, bool(layer.whole("largest", 1))), (layer.x,))


def _one_hot(layer: OnnxLayer) -> Converted:
    # ``values[1]`` where the place along the new axis is the index, elsewhere ``values[0]``.
    depth = int(layer.constant(1, "depths").reshape(-1)[0].item())
    values = layer.constant(2, "values").reshape(-1)
    axis = layer.axis(layer.whole("axis", -1), layer.rank + 1)
    ask_for_room((depth,))
    places = np.arange(depth, dtype=np.int32).reshape([-1 if a == axis else 1 for a in range(layer.rank + 1)])
    shape = (*layer.x.shape[:axis], 1, *layer.x.shape[axis:])
    x = _narrow(layer, 0)
    below = Converted(Less(), (x, number(0, DType.INT32)), ("zero",))
    lifted = Converted(Add(), (x, number(depth, DType.INT32)), ("depth",))
    index = reshaped(Converted(Select(), (below, lifted, x)), shape)
    hot = Converted(Equal(), (index, places), ("places",))
    return Converted(Select(), (hot, values[1:].reshape(()), values[:1].reshape(())), ("on", "off"))


def _compress(layer: OnnxLayer) -> Converted:
    # The slices, or elements, where a constant condition holds.
    chosen = np.flatnonzero(layer.constant(1, "conditions")).astype(np.int32)
    if not chosen.size:
        raise RefusedOperator("nothing that is chosen; supported: one slice or more")
    if layer.attribute("axis") is None:
        return Converted(Gather(0), (reshaped(layer.x, (prod(layer.x.shape),)), chosen), ("places",))
    return Converted(Gather(layer.own_axis(0)), (layer.x, chosen), ("places",))


def _eye_like(layer: OnnxLayer) -> KnownOutput:
    kind = layer.attribute("dtype")
    wanted = KINDS.get(layer.x.type_name) if kind is None else kind_of(int(kind))
    if wanted is None:
        raise RefusedOperator(f"a diagonal of {layer.x.type_name if kind is None else type_name(int(kind))}")
    if layer.rank != 2:
        raise ValueError(f"an input of {shape_text(layer.x.shape)} instead of two dimensions")
    rows, columns = layer.x.shape
    ask_for_room((2, rows, columns))
    return KnownOutput(np.eye(rows, columns, layer.whole("k")).astype(wanted.dtype.numpy))


def _reverse_sequence(layer: OnnxLayer) -> Converted:
    # The first elements along time backwards, as many as the sequence of the batch has.
    time, batch = layer.whole("time_axis"), layer.whole("batch_axis", 1)
    if {time, batch} != {0, 1} or layer.rank < 2:
        raise ValueError(f"axes {time} and {batch} of {shape_text(layer.x.shape)}")
    ask_for_room((4, *layer.x.shape[:2]))
    grid = np.indices(layer.x.shape[:2], np.int32)
    shape = [layer.x.shape[batch] if a == batch else 1 for a in range(2)]
    length = reshaped(_narrow(layer, 1), shape)
    within = Converted(Less(), (grid[time], length), ("length",))
    turned = Converted(Sub(), (length, grid[time] + 1), ("place",))
    place = reshaped(Converted(Select(), (within, turned, grid[time])), (*layer.x.shape[:2], 1))
    parts = [place if a == time else grid[a] for a in range(2)]
    return Converted(GatherNd(), (layer.x, _places(parts, layer.x.shape[:2])), ("indices",))


def _max_unpool(layer: OnnxLayer) -> Converted:
    # Numbers at the places that they were pooled from, zeros elsewhere.
    spatial = layer.rank - 2
    kernel = [int(k) for k in layer.attribute("kernel_shape")]
    strides = [int(s) for s in layer.attribute("strides") or [1] * spatial]
    pads = [int(p) for p in layer.attribute("pads") or [0] * (2 * spatial)]
    axes = zip(layer.x.shape[2:], strides, kernel, pads[:spatial], pads[spatial:], strict=True)
    size = tuple((d - 1) * s + k - a - b for d, s, k, a, b in axes)
    shape, count = (*layer.x.shape[:2], *size), prod(layer.x.shape)
    places = reshaped(_narrow(layer, 1), (count, 1))
    ask_for_room(shape)
    operands = (np.zeros(prod(shape), np.float32), places, reshaped(layer.x, (count,)))
    made = reshaped(Converted(ScatterNd(), operands, ("zeros",)), shape)
    if not layer.has(2):
        return made
    wanted = tuple(layer.integers(2, "lengths"))
    more = tuple(w - d for w, d in zip(wanted, shape, strict=True))
    if min(more) < 0:
        raise ValueError(f"an output of {shape_text(wanted)} from {shape_text(shape)}")
    return Converted(Pad((0,) * layer.rank, more), (made,)) if any(more) else made


_NUMBERS = frozenset(d for d in DType if d.is_integer) | {DType.FLOAT32}

CONVERTERS: Mapping[str, OnnxConverter] = {
    "Compress": OnnxConverter(_compress, ("compress",), ANY),
    "EyeLike": OnnxConverter(_eye_like, ("eye_like",), ANY),
    "Gather": OnnxConverter(_gather, ("gather",), ANY),
    "GatherElements": OnnxConverter(_gather_elements, ("gather_elements",), ANY),
    "GatherND": OnnxConverter(_gather_nd, ("gather_nd",), ANY),
    "MaxUnpool": OnnxConverter(_max_unpool, ("max_unpool",)),
    "OneHot": OnnxConverter(_one_hot, ("one_hot",), frozenset({DType.FLOAT32, DType.INT32, DType.INT64})),
    "ReverseSequence": OnnxConverter(_reverse_sequence, ("reverse_sequence",), ANY),
    "Scatter": OnnxConverter(_scatter_elements, ("scatter",), ANY),
    "ScatterElements": OnnxConverter(_scatter_elements, ("scatter_elements",), ANY),
    "ScatterND": OnnxConverter(_scatter_nd, ("scatter_nd",), ANY),
    "TensorScatter": OnnxConverter(_tensor_scatter, ("tensor_scatter",), ANY),
    "TopK": OnnxConverter(_top_k, ("top_k",), _NUMBERS, whole=2),
}
