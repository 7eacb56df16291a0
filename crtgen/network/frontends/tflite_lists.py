"""Lists that a loop fills, as TensorFlow's converter writes them: turned into one update instead of three
copies.

Keras implements ``return_sequences=True`` as a WHILE whose iteration i sets row i of a list. TensorFlow Lite
has no lists, so the converter makes the list a tensor ``x[n, ...]`` and writes the new row as::

    before = SLICE(x, begin=[0, 0, ...], size=[i, -1, ...])
    after  = SLICE(x, begin=[i + 1, 0, ...], size=[-1, -1, ...])
    x      = CONCATENATION(before, row, after), axis 0

The shapes of ``before`` and ``after`` depend on i, so no static memory plan can hold them. Their
concatenation has the shape of ``x``, though: everything but row i is copied to the same position. That is
``DYNAMIC_UPDATE_SLICE(x, row, [i, 0, ...])``, which the plan computes in place, so an iteration costs one row
instead of two copies of the list.

The rewrite requires all of the pattern: the same ``x`` and ``i`` on both sides, a constant 1 between them,
and a row of length 1. It only differs if i is outside of the list, which is an error in TensorFlow Lite.
"""

from dataclasses import dataclass, replace

import numpy as np

from crtgen.network.frontends.tflite_file import FileOperator, TfliteFileGraph
from crtgen.network.ir import Array

__all__ = ["with_updates"]

_RESHAPES = ("RESHAPE", "EXPAND_DIMS")


def with_updates(graph: TfliteFileGraph) -> TfliteFileGraph:
    """Return the graph with an update for each row that is set; the same graph if there is none."""
    found = _ListRows(graph)
    rows = {op.index: row for op in graph.operators if (row := found.of(op)) is not None}
    if not rows:
        return graph
    tensors, operators = list(graph.tensors), list[FileOperator]()
    for op in graph.operators:
        row = rows.get(op.index)
        if row is None:
            operators.append(op)
            continue
        begin = len(tensors)
        sizes = graph.tensors[row.sizes]
        tensors.append(replace(sizes, key=f"{sizes.key}.begin", name=f"{sizes.name}.begin", data=None))
        operators.append(replace(op, inputs=(row.place, row.zeros), outputs=(begin,)))
        inputs = (row.list, row.row, begin)
        operators.append(FileOperator(op.index, "DYNAMIC_UPDATE_SLICE", inputs, op.outputs, "NONE", {}))
    return replace(graph, tensors=tuple(tensors), operators=tuple(operators))


@dataclass(frozen=True, slots=True)
class _Row:
    # Tensors of an update: the list, its new row, [i], the zeros that follow i, and sizes that begin with
    # i.

    list: int
    row: int
    place: int
    zeros: int
    sizes: int


class _ListRows:
    # Finds the pattern in a graph; anything that differs from it is left unchanged.

    def __init__(self, graph: TfliteFileGraph) -> None:
        self._tensors = graph.tensors
        self._makers = {output: op for op in graph.operators for output in op.outputs}

    def of(self, op: FileOperator) -> _Row | None:
        parts = self._joined(op, 3)
        if parts is None:
            return None
        before, row, after = parts
        first, last = self._slice(before), self._slice(after)
        if first is None or last is None or first[0] != last[0] or self._tensors[row].shape[:1] != (1,):
            return None
        size, begin = self._vector(first[2], -1), self._vector(last[1], 0)
        starts, ends = self._data(first[1]), self._data(last[2])
        if size is None or begin is None or starts is None or ends is None:
            return None
        if starts.any() or (ends != -1).any() or not self._follows(begin[0], size[0]):
            return None
        return _Row(first[0], row, size[0], begin[1], first[2])

    def _joined(self, op: FileOperator | None, count: int) -> tuple[int, ...] | None:
        # Inputs of a concatenation along the first axis.
        if op is None or op.code != "CONCATENATION" or len(op.inputs) != count:
            return None
        given = [i for i in op.inputs if i is not None]
        plain = not op.options.get("FusedActivationFunction", 0) and op.options.get("Axis", 0) == 0
        return tuple(given) if plain and len(given) == count else None

    def _slice(self, index: int) -> tuple[int, int, int] | None:
        op = self._makers.get(index)
        if op is None or op.code != "SLICE" or len(op.inputs) != 3 or None in op.inputs:
            return None
        x, begin, size = (i for i in op.inputs if i is not None)
        return x, begin, size

    def _vector(self, index: int, rest: int) -> tuple[int, int] | None:
        # A vector that begins with [i]: the tensor of [i], and of the numbers after it, which all are
        # ``rest``.
        parts = self._joined(self._makers.get(index), 2)
        if parts is None:
            return None
        numbers = self._data(parts[1])
        same = numbers is not None and numbers.size > 0 and bool((numbers == rest).all())
        return (parts[0], parts[1]) if same and self._elements(parts[0]) == 1 else None

    def _follows(self, after: int, place: int) -> bool:
        # True if ``after`` is ``place`` and 1.
        op = self._makers.get(self._scalar(after))
        if op is None or op.code != "ADD" or op.options.get("FusedActivationFunction", 0):
            return False
        given = [i for i in op.inputs if i is not None]
        ones = [i for i in given if self._is_one(i)]
        others = [self._scalar(i) for i in given if i not in ones]
        return len(ones) == 1 and others == [self._scalar(place)]

    def _scalar(self, index: int) -> int:
        # The tensor itself, before it became a vector of one element.
        op = self._makers.get(index)
        while op is not None and op.code in _RESHAPES and op.inputs and op.inputs[0] is not None:
            index = op.inputs[0]
            op = self._makers.get(index)
        return index

    def _is_one(self, index: int) -> bool:
        data = self._data(index)
        return data is not None and data.size == 1 and bool((data == 1).all())

    def _data(self, index: int) -> Array | None:
        return self._tensors[index].data

    def _elements(self, index: int) -> int:
        return int(np.prod(self._tensors[index].shape))
