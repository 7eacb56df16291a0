"""Operators that split, join and rearrange tensors: pack, split, gather, space-to-depth and so on."""

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from crtgen.network.frontends.builder import Converted, NamedTensor, RefusedOperator
from crtgen.network.frontends.tflite_convert.layer import PLAIN, TfliteConverter, TfliteLayer, pairs
from crtgen.network.ir import DType, Quant, Value, shape_text
from crtgen.network.ops import Concat, Dequantize, Mul, Pad, Reshape, StridedSlice, Transpose
from crtgen.network.ops.gather import Gather, GatherNd

__all__ = ["CONVERTERS"]


def _pack(layer: TfliteLayer) -> Converted:
    # Tensors one after another along a new axis.
    shape = list(layer.x.shape)
    axis = layer.axis(int(layer.option("Axis")), len(shape) + 1)
    for tensor in layer.operands:
        if tensor.shape != layer.x.shape:
            raise ValueError(f"{shape_text(tensor.shape)} beside {shape_text(layer.x.shape)}")
    shape.insert(axis, 1)
    parts = tuple(Converted(Reshape(tuple(shape)), (tensor,)) for tensor in layer.operands)
    return Converted(Concat(axis), parts)


def _part(x: NamedTensor, axis: int, first: int, last: int, shrink: bool = False) -> Converted:
    # The elements from ``first`` to before ``last`` along an axis.
    begin = tuple(first if a == axis else 0 for a in range(len(x.shape)))
    end = tuple(last if a == axis else d for a, d in enumerate(x.shape))
    stride = (1,) * len(x.shape)
    return Converted(StridedSlice(begin, end, stride, (axis,) if shrink else ()), (x,))


def _unpack(layer: TfliteLayer) -> tuple[Converted, ...]:
    axis = layer.axis(int(layer.option("Axis")), len(layer.x.shape))
    return tuple(_part(layer.x, axis, i, i + 1, True) for i in range(layer.x.shape[axis]))


def _parts(x: NamedTensor, axis: int, lengths: Sequence[int]) -> tuple[Converted, ...]:
    if sum(lengths) != x.shape[axis] or min(lengths) < 1:
        raise ValueError(f"parts of {list(lengths)} out of {x.shape[axis]}")
    ends = [sum(lengths[: i + 1]) for i in range(len(lengths))]
    return tuple(_part(x, axis, end - n, end) for n, end in zip(lengths, ends, strict=True))


def _split(layer: TfliteLayer) -> tuple[Converted, ...]:
    (number,), x = layer.integers(0, "axes"), layer.tensor(1)
    axis, count = layer.axis(number, len(x.shape)), len(layer.outputs)
    return _parts(x, axis, [x.shape[axis] // count] * count)


def _split_v(layer: TfliteLayer) -> tuple[Converted, ...]:
    (number,), x = layer.integers(2, "axes"), layer.x
    axis, lengths = layer.axis(number, len(x.shape)), layer.integers(1, "lengths")
    rest = x.shape[axis] - sum(n for n in lengths if n != -1)
    return _parts(x, axis, [rest if n == -1 else n for n in lengths])


def _gather(layer: TfliteLayer) -> Converted:
    x, indices = layer.tensor(0), layer.tensor(1)
    batch = int(layer.option("BatchDims"))
    axis = layer.axis(int(layer.option("Axis")), len(x.shape))
    op = Gather(axis, batch + len(indices.shape) if batch < 0 else batch)
    return Converted(op, (x, indices), ("indices",))


def _gather_nd(layer: TfliteLayer) -> Converted:
    return Converted(GatherNd(), (layer.tensor(0), layer.tensor(1)), ("indices",))


def _embedding_lookup(layer: TfliteLayer) -> Converted:
    # Rows of a table, as they are or dequantised, also with a scale of each row's own.
    table, places = layer.tensor(1), layer.tensor(0)
    if table.quant is not None and table.quant.axis is not None and layer.y.dtype is DType.FLOAT32:
        numbers = layer.constant(1, "rows")
        if table.quant.axis != 0 or any(table.quant.zero_points):
            raise RefusedOperator("scales along another axis, or zero points; supported: a scale of each row")
        plain = Value.constant("table", numbers, Quant.tensor(1.0))
        rows = Converted(Dequantize(), (Converted(Gather(0), (plain, places), ("indices",)),))
        scales = np.array(table.quant.scales, np.float32).reshape(-1, *(1,) * (numbers.ndim - 1))
        return Converted(Mul(), (rows, Converted(Gather(0), (scales, places), ("indices",))), ("scales",))
    rows = Converted(Gather(0), (table, places), ("indices",))
    if layer.y.dtype is table.dtype:
        return rows
    return Converted(Dequantize(), (rows,))


def _image(layer: TfliteLayer) -> tuple[int, int, int, int, int]:
    # Lengths of the input, and the size of a block.
    block, shape = int(layer.option("BlockSize")), layer.x.shape
    if len(shape) != 4 or block < 1:
        raise ValueError(f"blocks of {block} of {shape_text(shape)}")
    return (*shape, block)


def _space_to_depth(layer: TfliteLayer) -> Converted:
    n, h, w, c, b = _image(layer)
    if h % b or w % b:
        raise ValueError(f"blocks of {b} of {shape_text(layer.x.shape)}")
    blocks = Converted(Reshape((n, h // b, b, w // b, b, c)), (layer.x,))
    moved = Converted(Transpose((0, 1, 3, 2, 4, 5)), (blocks,))
    return Converted(Reshape((n, h // b, w // b, b * b * c)), (moved,))


def _depth_to_space(layer: TfliteLayer) -> Converted:
    n, h, w, c, b = _image(layer)
    if c % (b * b):
        raise ValueError(f"blocks of {b} of {shape_text(layer.x.shape)}")
    blocks = Converted(Reshape((n, h, w, b, b, c // (b * b))), (layer.x,))
    moved = Converted(Transpose((0, 1, 3, 2, 4, 5)), (blocks,))
    return Converted(Reshape((n, h * b, w * b, c // (b * b))), (moved,))


def _blocks(layer: TfliteLayer) -> tuple[list[int], list[int], list[int]]:
    # Lengths of blocks, and for each of their axes what is before and after.
    blocks, around = layer.integers(1, "lengths"), layer.integers(2, "amounts")
    axes = len(blocks)
    if min(blocks) < 1 or len(around) != 2 * axes or len(layer.x.shape) < axes + 1:
        raise ValueError(f"blocks of {blocks} with {around} of {shape_text(layer.x.shape)}")
    return blocks, around[::2], around[1::2]


def _space_to_batch(layer: TfliteLayer) -> Converted:
    blocks, before, after = _blocks(layer)
    batch, *shape = layer.x.shape
    axes, rest = len(blocks), shape[len(blocks) :]
    more = (0,) * len(rest)
    padded = Converted(Pad((0, *before, *more), (0, *after, *more)), (layer.x,))
    sizes = [d + b + a for d, b, a in zip(shape, before, after, strict=False)]
    if any(d % b for d, b in zip(sizes, blocks, strict=True)):
        raise ValueError(f"blocks of {blocks} of {shape_text(sizes)}")
    split = [n for d, b in zip(sizes, blocks, strict=True) for n in (d // b, b)]
    apart = Converted(Reshape((batch, *split, *rest)), (padded,))
    inner, outer = range(2, 2 * axes + 1, 2), range(1, 2 * axes, 2)
    order = (*inner, 0, *outer, *range(2 * axes + 1, 2 * axes + 1 + len(rest)))
    moved = Converted(Transpose(order), (apart,))
    result = (batch * prod(blocks), *(d // b for d, b in zip(sizes, blocks, strict=True)), *rest)
    return Converted(Reshape(result), (moved,))


def _batch_to_space(layer: TfliteLayer) -> Converted:
    blocks, before, after = _blocks(layer)
    batch, *shape = layer.x.shape
    axes, rest = len(blocks), shape[len(blocks) :]
    if batch % prod(blocks):
        raise ValueError(f"blocks of {blocks} of {shape_text(layer.x.shape)}")
    batch //= prod(blocks)
    apart = Converted(Reshape((*blocks, batch, *shape)), (layer.x,))
    pairs_ = [n for i in range(axes) for n in (axes + 1 + i, i)]
    order = (axes, *pairs_, *range(2 * axes + 1, 2 * axes + 1 + len(rest)))
    moved = Converted(Transpose(order), (apart,))
    sizes = [d * b for d, b in zip(shape, blocks, strict=False)]
    whole = Converted(Reshape((batch, *sizes, *rest)), (moved,))
    ends = (batch, *(d - a for d, a in zip(sizes, after, strict=True)), *rest)
    begins = (0, *before, *(0 for _ in rest))
    return Converted(StridedSlice(begins, ends, (1,) * len(ends)), (whole,))


_ROWS = pairs((DType.INT32,), (DType.FLOAT32, DType.INT8))
_BLOCK = ("BlockSize",)

CONVERTERS: Mapping[str, TfliteConverter] = {
    "BATCH_TO_SPACE_ND": TfliteConverter(_batch_to_space, ("batch_to_space",), types=PLAIN),
    "DEPTH_TO_SPACE": TfliteConverter(
        _depth_to_space, ("depth_to_space",), "DepthToSpaceOptions", _BLOCK, PLAIN
    ),
    "EMBEDDING_LOOKUP": TfliteConverter(_embedding_lookup, ("embedding_lookup",), types=_ROWS),
    "GATHER": TfliteConverter(_gather, ("gather",), "GatherOptions", ("Axis", "BatchDims"), PLAIN),
    "GATHER_ND": TfliteConverter(_gather_nd, ("gather_nd",), types=PLAIN),
    "PACK": TfliteConverter(_pack, ("pack", "stack"), "PackOptions", ("Axis",), PLAIN),
    "SPACE_TO_BATCH_ND": TfliteConverter(_space_to_batch, ("space_to_batch",), types=PLAIN),
    "SPACE_TO_DEPTH": TfliteConverter(
        _space_to_depth, ("space_to_depth",), "SpaceToDepthOptions", _BLOCK, PLAIN
    ),
    "SPLIT": TfliteConverter(_split, ("split",), types=pairs((DType.INT32,), DType)),
    "SPLIT_V": TfliteConverter(_split_v, ("split",), types=PLAIN),
    "UNPACK": TfliteConverter(_unpack, ("unpack", "unstack"), "UnpackOptions", ("Axis",), PLAIN),
}
