"""Sparse constants: pruned weights, of which the file has only the blocks with a number other than 0.

A tensor of rank r with b axes in blocks is stored as one of r + b axes, in ``traversal_order``. Axis r + i is
the place within a block along axis ``block_map[i]``. Each of these axes is a level of a tree; its leaves are
the numbers: a dense level has a child for each index; of a compressed one (CSR), node n has the children
``segments[n]`` to ``segments[n + 1]``, and ``indices`` has the index of each.

Source: ``SparsityParameters`` in TensorFlow Lite's schema.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tflite

from crtgen.network.ir import Array, shape_text
from crtgen.network.ops.fixedpoint import Int64

__all__ = ["dense"]

_MOST_LEVELS = 16


@dataclass(frozen=True, slots=True)
class _Level:
    # A dense level has no segments.
    size: int
    segments: Int64 | None
    indices: Int64 | None


def dense(stored: Array, shape: tuple[int, ...], sparsity: Any) -> Array:
    """Return the whole tensor, of ``shape``, with 0 where no number is ``stored``.

    ``sparsity`` is the table of the flatbuffer. Raises ``ValueError`` where it does not fit.
    """
    order = _numbers(sparsity, "TraversalOrder")
    blocks = _numbers(sparsity, "BlockMap")
    rank, count = len(shape), sparsity.DimMetadataLength()
    if not (sorted(order) == list(range(count)) and count == rank + len(blocks) <= _MOST_LEVELS):
        raise ValueError(
            f"a sparse tensor of {rank} axes has {count} levels and {len(blocks)} axes of blocks"
        )
    levels = [_level(sparsity.DimMetadata(i)) for i in range(count)]
    if any(not 0 <= axis < rank for axis in blocks):
        raise ValueError(f"blocks along the axes {blocks} of {shape_text(shape)}")
    places = dict(zip(order, _leaves(levels, prod(shape)), strict=True))
    whole = [places[axis] for axis in range(rank)]
    sizes = {axis: levels[place].size for place, axis in enumerate(order)}
    for number, axis in enumerate(blocks, rank):
        whole[axis] = whole[axis] * sizes[number] + places[number]
    if any(len(at) and int(at.max()) >= length for at, length in zip(whole, shape, strict=True)):
        raise ValueError(f"a number beyond {shape_text(shape)}")
    if len(stored) != len(whole[0]):
        raise ValueError(f"{len(stored)} numbers of a sparse tensor instead of {len(whole[0])}")
    made: Array = np.zeros(shape, stored.dtype)
    made[tuple(whole)] = stored
    return made


def _leaves(levels: Sequence[_Level], most: int) -> list[Int64]:
    # The index of each leaf at each level, in the order in which they are stored.
    paths, nodes = list[Int64](), np.zeros(1, np.int64)
    for level in levels:
        if level.segments is None:
            if len(nodes) * level.size > most:
                raise ValueError(f"a level of {len(nodes) * level.size} nodes in a tensor of {most} numbers")
            parents = np.repeat(np.arange(len(nodes)), level.size)
            found = np.tile(np.arange(level.size, dtype=np.int64), len(nodes))
            nodes = nodes[parents] * level.size + found
        else:
            parents, nodes = _children(level.segments, nodes, most)
            assert level.indices is not None
            if len(nodes) and int(nodes.max()) >= len(level.indices):
                raise ValueError("a segment ends beyond the indices")
            found = level.indices[nodes]
        paths = [*(path[parents] for path in paths), found]
    return paths


def _children(segments: Int64, nodes: Int64, most: int) -> tuple[Int64, Int64]:
    # For each child of the nodes: which of them it belongs to, and its own number.
    if len(nodes) and int(nodes.max()) + 1 >= len(segments):
        raise ValueError(f"{len(segments)} ends of segments for {int(nodes.max()) + 1} nodes")
    begins, counts = segments[nodes], segments[nodes + 1] - segments[nodes]
    if len(counts) and (int(counts.min()) < 0 or int(begins.min()) < 0 or int(counts.sum()) > most):
        raise ValueError("segments that do not rise, or are too long")
    parents = np.repeat(np.arange(len(nodes)), counts)
    within = np.arange(len(parents)) - np.repeat(np.cumsum(counts) - counts, counts)
    return parents, begins[parents] + within


def _level(metadata: Any) -> _Level:
    if metadata.Format() == tflite.DimensionType.DENSE:
        size = int(metadata.DenseSize())
        if size < 1:
            raise ValueError(f"a dense level of {size}")
        return _Level(size, None, None)
    found = []
    for name in ("ArraySegments", "ArrayIndices"):
        kind, table = getattr(metadata, f"{name}Type")(), getattr(metadata, name)()
        if kind not in _VECTORS or table is None:
            raise ValueError(f"a compressed level without {name}")
        vector = _VECTORS[kind]()
        vector.Init(table.Bytes, table.Pos)
        found.append(np.array(_numbers(vector, "Values"), np.int64))
    segments, indices = found
    if len(indices) and int(indices.min()) < 0:
        raise ValueError("an index below 0")
    return _Level(0, segments, indices)


_VECTORS = {
    tflite.SparseIndexVector.Int32Vector: tflite.Int32Vector,
    tflite.SparseIndexVector.Uint16Vector: tflite.Uint16Vector,
    tflite.SparseIndexVector.Uint8Vector: tflite.Uint8Vector,
}


def _numbers(table: Any, name: str) -> list[int]:
    # A vector of numbers; ``[]`` where the file has none.
    if not getattr(table, f"{name}Length")():
        return []
    found: list[int] = getattr(table, f"{name}AsNumpy")().tolist()
    return found
