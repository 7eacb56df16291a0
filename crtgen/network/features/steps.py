"""Builds the operators of features, either into a graph for a device or over all frames of a signal at
once.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from crtgen.base.errors import UsageError
from crtgen.network.features.framing import Stretch
from crtgen.network.ir import Array, DType, Graph, Node, Op, Quant, Value
from crtgen.network.ops import (
    Add,
    Bands,
    Before,
    BlockPower,
    Cast,
    Concat,
    Frame,
    MirrorPad,
    Mul,
    Pad,
    ReduceMax,
    RemoveMean,
    Reshape,
    StridedSlice,
    Transpose,
    Window,
)
from crtgen.network.ops.spectral import banded

__all__ = ["PARTS", "PREVIOUS", "Bins", "GraphSteps", "Handle", "Steps", "around"]

Handle: TypeAlias = Value
"""A value of the graph, or the rows of all frames if they are computed at once."""

Bins: TypeAlias = tuple[int, int]
"""Number of a spectrum's first bin, and of the bin after its last."""

PREVIOUS = {"stream": Before.EARLIER, "frame": Before.ITSELF, "window": Before.LAST}
"""Index of the sample before a frame's first one."""

PARTS = ("weights", "first", "widths")
"""Names of the tables of bands."""


def around(rows: int, weights: npt.NDArray[np.float64], ends: str) -> npt.NDArray[np.float64]:
    """Return a matrix that computes weighted sums over the rows around each row: ``[rows, rows]``.

    Beyond the first and the last row, ``nearest`` repeats that row and ``mirrored`` mirrors the rows. With
    ``interp``, rows too near to an end get the sum of the nearest one that is not.
    """
    reach = len(weights) // 2
    if ends == "interp" and rows < len(weights):
        raise UsageError(
            f"[features] delta_ends: {rows} rows are fewer than the {len(weights)} of a slope",
            hint='give more rows, or set delta_ends = "nearest"',
        )
    places = np.pad(np.arange(rows), reach, mode="symmetric" if ends == "mirrored" else "edge")
    matrix = np.zeros((rows, rows))
    for row in range(rows):
        at = min(max(row, reach), rows - 1 - reach) if ends == "interp" else row
        np.add.at(matrix[:, row], places[at : at + len(weights)], weights)
    return matrix


class Steps(ABC):
    """Operators on values that each hold one row of features."""

    @abstractmethod
    def rows(self, row: Callable[[], Handle]) -> Handle: ...

    @abstractmethod
    def frame(self, weights: Array, preemphasis: float, over: str) -> Handle:
        """Compute the samples of a frame in float32, with the operator ``Frame``.

        The sample before the first one is taken from the ``stream``, or is the first sample of the ``frame``
        itself, or the last sample of the ``window``.
        """

    @abstractmethod
    def powers(
        self, weights: Array, preemphasis: float, over: str, length: int, bins: Bins, *, centred: bool
    ) -> Handle:
        """Compute some powers of the frame's spectrum with the operator ``BlockPower``."""

    @abstractmethod
    def centred(self, size: int) -> Handle:
        """Return the samples of the frame minus their mean, in float32."""

    @abstractmethod
    def windowed(self, weights: Array, shift: int) -> Handle:
        """Return the samples of the frame in int16, multiplied by an integer window."""

    @abstractmethod
    def peak(self) -> Handle: ...

    @abstractmethod
    def greatest(self, value: Handle) -> Handle: ...

    @abstractmethod
    def summed(self, value: Handle, weights: npt.NDArray[np.float64], ends: str) -> Handle:
        """Compute a weighted sum of each row and its neighbours, for an odd number of weights; ``around``
        explains ``ends``.
        """

    @abstractmethod
    def smoothed(self, value: Handle, factor: float, initial: float) -> Handle:
        """Smooth over rows: ``factor`` times the new row, plus 1 - ``factor`` times the previous result."""

    @abstractmethod
    def part(self, value: Handle, first: int, end: int) -> Handle:
        """Return the elements of each row from ``first`` up to ``end`` (exclusive)."""

    @abstractmethod
    def beside(self, *values: Handle) -> Handle: ...

    @abstractmethod
    def apply(self, op: Op, *inputs: Handle, quant: Quant | None = None) -> tuple[Handle, ...]: ...

    @abstractmethod
    def constant(self, name: str, data: Array) -> Handle: ...

    @abstractmethod
    def state(self, key: str, initial: Array) -> Handle: ...

    @abstractmethod
    def become(self, key: str, value: Handle) -> None: ...

    def averaged(self, value: Handle, reach: int) -> Handle:
        """Return means over each row and the ``reach`` rows before and after it, mirrored at the ends."""
        count = 2 * reach + 1
        return self.summed(value, np.full(count, 1 / count), "mirrored")

    def one(self, op: Op, *inputs: Handle, quant: Quant | None = None) -> Handle:
        (made,) = self.apply(op, *inputs, quant=quant)
        return made

    def bands(self, name: str, x: Handle, matrix: npt.NDArray[np.float64]) -> Handle:
        """Multiply ``x`` by a matrix ``[elements, bands]``; the tables of the matrix are called ``name``."""
        tables = banded(matrix).arrays
        return self.one(
            Bands(), x, *(self.constant(f"{name}_{part}", a) for part, a in zip(PARTS, tables, strict=True))
        )

    def number(self, value: float) -> Handle:
        return self.constant("number", np.array(value, np.float32))


@dataclass(slots=True)
class GraphSteps(Steps):
    """Nodes of a graph. ``samples`` is its input, ``starts`` are the first indices of its frames.

    ``taken`` are the names used by parts that are appended later. ``stretches`` are the padded parts of the
    samples that frames read, one for each start; None for the samples themselves.
    """

    samples: Value
    starts: Sequence[int]
    taken: Collection[str] = ()
    stretches: Sequence[Stretch | None] = ()
    _nodes: list[Node] = field(default_factory=list)
    _start: int = 0
    _padded: Value | None = None
    _values: dict[str, Value] = field(default_factory=dict)
    _states: dict[str, tuple[Value, Value]] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def rows(self, row: Callable[[], Handle]) -> Handle:
        made = []
        padded = dict[Stretch, Value]()
        for start, stretch in zip_longest(self.starts, self.stretches):
            self._start = start
            if stretch is not None and stretch not in padded:
                padded[stretch] = self._stretched(stretch)
            self._padded = None if stretch is None else padded[stretch]
            value = row()
            made.append(self.one(Reshape((1, *value.shape)), value, quant=value.quant))
        return made[0] if len(made) == 1 else self.one(Concat(0), *made, quant=made[0].quant)

    def frame(self, weights: Array, preemphasis: float, over: str) -> Handle:
        op = Frame(self._start, preemphasis, PREVIOUS[over])
        if over == "window" and self._start:
            op = Frame(self._start, preemphasis)
        return self.one(op, self._source, self.constant("window", weights))

    def powers(
        self, weights: Array, preemphasis: float, over: str, length: int, bins: Bins, *, centred: bool
    ) -> Handle:
        before = Before.ITSELF if centred else PREVIOUS[over]
        if before is Before.LAST and self._start:
            before = Before.EARLIER
        op = BlockPower(self._start, preemphasis, before, length, bins, centred)
        return self.one(op, self._source, self.constant("window", weights))

    def centred(self, size: int) -> Handle:
        return self.one(RemoveMean(self._start, size), self._source)

    def windowed(self, weights: Array, shift: int) -> Handle:
        frame, size = self.samples, len(weights)
        if frame.elements != size:
            frame = self.one(StridedSlice((self._start,), (self._start + size,), (1,)), frame)
        return self.one(Window(shift), frame, self.constant("window", weights))

    @property
    def _source(self) -> Value:
        # The samples that the frame reads.
        return self.samples if self._padded is None else self._padded

    def _stretched(self, part: Stretch) -> Value:
        made = self.one(StridedSlice((part.first,), (part.end,), (1,)), self.samples)
        if part.mirrored:
            made = self.one(MirrorPad((part.before,), (part.after,), False), made)
            return self.one(Pad((0,), (part.zeros,)), made) if part.zeros else made
        return self.one(Pad((part.before,), (part.after + part.zeros,)), made)

    def peak(self) -> Handle:
        made = self._values.get("peak")
        if made is None:
            greatest = self.one(ReduceMax((0,)), self.samples)
            made = self.one(Cast(DType.FLOAT32), greatest)
            self._values["peak"] = made
        return made

    def greatest(self, value: Handle) -> Handle:
        return self.one(ReduceMax(tuple(range(len(value.shape)))), value)

    def summed(self, value: Handle, weights: npt.NDArray[np.float64], ends: str) -> Handle:
        matrix = around(value.shape[0], weights, ends)
        if not matrix.any():
            return self.one(Mul(), value, self.number(0.0))
        turned = self.one(Transpose((1, 0)), value)
        return self.one(Transpose((1, 0)), self.bands("around", turned, matrix))

    def smoothed(self, value: Handle, factor: float, initial: float) -> Handle:
        before = self.state("energy", np.full(value.shape, initial, np.float32))
        old = self.one(Mul(), before, self.number(1 - factor))
        made = self.one(Add(), old, self.one(Mul(), value, self.number(factor)))
        self.become("energy", made)
        return made

    def part(self, value: Handle, first: int, end: int) -> Handle:
        return self.one(StridedSlice((first,), (end,), (1,)), value)

    def beside(self, *values: Handle) -> Handle:
        return self.one(Concat(1), *values)

    def apply(self, op: Op, *inputs: Handle, quant: Quant | None = None) -> tuple[Handle, ...]:
        node = self._unique(op.name)
        made = []
        for shape, dtype in op.infer(inputs):
            made.append(Value(self._unique(f"{node}_out"), shape, dtype, quant))
        self._values |= {v.name: v for v in (*inputs, *made)}
        self._nodes.append(Node(node, op, tuple(v.name for v in inputs), tuple(v.name for v in made)))
        return tuple(made)

    def append(
        self, values: Sequence[Value], nodes: Sequence[Node], states: Sequence[tuple[Value, Value]]
    ) -> None:
        """Append values, nodes and states of another graph, whose names are in ``taken``."""
        self._values |= {v.name: v for v in values}
        self._nodes += nodes
        self._states |= {before.name: (before, after) for before, after in states}

    def _unique(self, name: str) -> str:
        while True:
            count = self._counts[name] = self._counts.get(name, 0) + 1
            made = f"{name}_{count - 1}" if count > 1 else name
            if made not in self.taken:
                return made

    def constant(self, name: str, data: Array) -> Handle:
        for value in self._values.values():
            if value.is_constant and value.dtype.numpy == data.dtype and np.array_equal(value.array(), data):
                return value
        made = Value.constant(self._unique(name), data)
        self._values[made.name] = made
        return made

    def state(self, key: str, initial: Array, quant: Quant | None = None) -> Handle:
        if key not in self._states:
            made = Value.state(self._unique(key), initial, quant)
            self._values[made.name] = made
            self._states[key] = made, made
        return self._states[key][1]

    def become(self, key: str, value: Handle) -> None:
        self._states[key] = self._states[key][0], value

    def graph(self, name: str, output: Handle) -> Graph:
        states = [(before.name, after.name) for before, after in self._states.values()]
        values = {v.name: v for v in (self.samples, *self._values.values())}
        return Graph.build(
            name, list(values.values()), self._nodes, [self.samples.name], [output.name], states
        )
