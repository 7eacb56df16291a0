"""Where the operators of features go: into a graph for a device, or at once over all frames of a signal."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from crtgen.ir import Array, DType, Graph, Node, Op, Quant, Signature, Value
from crtgen.ops import (
    Add,
    Bands,
    Before,
    BlockPower,
    Cast,
    Concat,
    FftAutoScale,
    FilterBank,
    FilterBankSquareRoot,
    Frame,
    Mul,
    ReduceMax,
    RemoveMean,
    Reshape,
    SpectralSubtraction,
    SpectrumEnergy,
    StridedSlice,
    Transpose,
    Window,
)
from crtgen.ops.block_power import powers_of
from crtgen.ops.spectral import banded

__all__ = ["ArraySteps", "GraphSteps", "Handle", "Steps"]

Handle: TypeAlias = Value
"""A value of the graph; or, where all frames are computed at once, what stands for a row of each."""

_ALONE = (FftAutoScale, FilterBank, FilterBankSquareRoot, Frame, SpectralSubtraction, SpectrumEnergy)
"""Operators that see the whole of their input: they are applied to one row after the other."""

_PREVIOUS = {"stream": Before.EARLIER, "frame": Before.ITSELF, "window": Before.LAST}


_PARTS = ("weights", "first", "widths")
"""The tables of bands."""


def _around(rows: int, weights: npt.NDArray[np.float64], mirrored: bool) -> npt.NDArray[np.float64]:
    """The matrix of weighted sums over rows around each one: ``[rows, rows]``.

    Before the first row and after the last one there are those rows again, or all of them, mirrored.
    """
    reach = len(weights) // 2
    places = np.pad(np.arange(rows), reach, mode="symmetric" if mirrored else "edge")
    matrix = np.zeros((rows, rows))
    for row in range(rows):
        np.add.at(matrix[:, row], places[row : row + len(weights)], weights)
    return matrix


class Steps(ABC):
    """Operators applied to values, one row of features each."""

    @abstractmethod
    def rows(self, row: Callable[[], Handle]) -> Handle:
        """What ``row`` makes of each frame."""

    @abstractmethod
    def frame(self, weights: Array, preemphasis: float, over: str) -> Handle:
        """The samples of the frame in float32, as the operator ``Frame`` computes them.

        What is before the first one is a sample of the ``stream``, of the ``frame`` itself, or the last one
        of the ``window``.
        """

    @abstractmethod
    def powers(self, weights: Array, preemphasis: float, over: str, length: int, *, centred: bool) -> Handle:
        """The powers of the frame's spectrum, as the operator ``BlockPower`` computes them."""

    @abstractmethod
    def centred(self, size: int) -> Handle:
        """The samples of the frame without their mean, in float32."""

    @abstractmethod
    def windowed(self, weights: Array, shift: int) -> Handle:
        """The samples of the frame in int16, with a window of integers."""

    @abstractmethod
    def peak(self) -> Handle:
        """The greatest sample of the window, in float32."""

    @abstractmethod
    def greatest(self, value: Handle) -> Handle:
        """The greatest number of all rows."""

    @abstractmethod
    def summed(self, value: Handle, weights: npt.NDArray[np.float64], mirrored: bool) -> Handle:
        """Each row with those around it, an odd number, times weights.

        At the ends the first and the last row are there again, or the rows are ``mirrored``.
        """

    @abstractmethod
    def smoothed(self, value: Handle, factor: float, initial: float) -> Handle:
        """What follows a row: from row to row ``factor`` of it, and the rest of what was before."""

    @abstractmethod
    def first(self, value: Handle, count: int) -> Handle:
        """The first numbers of each row."""

    @abstractmethod
    def beside(self, *values: Handle) -> Handle:
        """Rows whose numbers follow each other."""

    @abstractmethod
    def apply(self, op: Op, *inputs: Handle, quant: Quant | None = None) -> tuple[Handle, ...]:
        """The outputs of an operator."""

    @abstractmethod
    def constant(self, name: str, data: Array) -> Handle:
        """A constant."""

    @abstractmethod
    def state(self, key: str, initial: Array) -> Handle:
        """What lives from row to row, and what it is at first."""

    @abstractmethod
    def become(self, key: str, value: Handle) -> None:
        """What the state is for the next row."""

    def averaged(self, value: Handle, reach: int) -> Handle:
        """Means over each row with ``reach`` rows before and after it; the ends are mirrored."""
        count = 2 * reach + 1
        return self.summed(value, np.full(count, 1 / count), True)

    def one(self, op: Op, *inputs: Handle, quant: Quant | None = None) -> Handle:
        """The only output of an operator."""
        (made,) = self.apply(op, *inputs, quant=quant)
        return made

    def bands(self, name: str, x: Handle, matrix: npt.NDArray[np.float64]) -> Handle:
        """``x`` times a matrix ``[numbers, bands]``, whose tables are called ``name``."""
        tables = banded(matrix).arrays
        return self.one(
            Bands(), x, *(self.constant(f"{name}_{part}", a) for part, a in zip(_PARTS, tables, strict=True))
        )

    def number(self, value: float) -> Handle:
        """A constant of one float32."""
        return self.constant("number", np.array(value, np.float32))


@dataclass(slots=True)
class GraphSteps(Steps):
    """Nodes of a graph. ``samples`` is its input, ``starts`` are where frames begin in it.

    ``taken`` are names of what is appended later.
    """

    samples: Value
    starts: Sequence[int]
    taken: Collection[str] = ()
    _nodes: list[Node] = field(default_factory=list)
    _start: int = 0
    _values: dict[str, Value] = field(default_factory=dict)
    _states: dict[str, tuple[Value, Value]] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def rows(self, row: Callable[[], Handle]) -> Handle:
        made = []
        for start in self.starts:
            self._start = start
            value = row()
            made.append(self.one(Reshape((1, *value.shape)), value, quant=value.quant))
        return made[0] if len(made) == 1 else self.one(Concat(0), *made, quant=made[0].quant)

    def frame(self, weights: Array, preemphasis: float, over: str) -> Handle:
        op = Frame(self._start, preemphasis, _PREVIOUS[over])
        if over == "window" and self._start:
            op = Frame(self._start, preemphasis)
        return self.one(op, self.samples, self.constant("window", weights))

    def powers(self, weights: Array, preemphasis: float, over: str, length: int, *, centred: bool) -> Handle:
        before = Before.ITSELF if centred else _PREVIOUS[over]
        if before is Before.LAST and self._start:
            before = Before.EARLIER
        op = BlockPower(self._start, preemphasis, before, length, centred)
        return self.one(op, self.samples, self.constant("window", weights))

    def centred(self, size: int) -> Handle:
        return self.one(RemoveMean(self._start, size), self.samples)

    def windowed(self, weights: Array, shift: int) -> Handle:
        frame, size = self.samples, len(weights)
        if frame.elements != size:
            frame = self.one(StridedSlice((self._start,), (self._start + size,), (1,)), frame)
        return self.one(Window(shift), frame, self.constant("window", weights))

    def peak(self) -> Handle:
        made = self._values.get("peak")
        if made is None:
            greatest = self.one(ReduceMax((0,)), self.samples)
            made = self.one(Cast(DType.FLOAT32), greatest)
            self._values["peak"] = made
        return made

    def greatest(self, value: Handle) -> Handle:
        return self.one(ReduceMax(tuple(range(len(value.shape)))), value)

    def summed(self, value: Handle, weights: npt.NDArray[np.float64], mirrored: bool) -> Handle:
        matrix = _around(value.shape[0], weights, mirrored)
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

    def first(self, value: Handle, count: int) -> Handle:
        return self.one(StridedSlice((0,), (count,), (1,)), value)

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
        """Values, nodes and states of another graph, whose names are ``taken``."""
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
        """The graph of all that was applied."""
        states = [(before.name, after.name) for before, after in self._states.values()]
        values = {v.name: v for v in (self.samples, *self._values.values())}
        return Graph.build(
            name, list(values.values()), self._nodes, [self.samples.name], [output.name], states
        )


@dataclass(slots=True)
class ArraySteps(Steps):
    """All frames at once, by the numpy references of the operators.

    ``signal`` are the samples, ``starts`` where each frame begins; what is before the first sample is 0. From
    ``end`` on there is padding, which is behind the pre-emphasis.
    """

    signal: npt.NDArray[np.int16]
    starts: npt.NDArray[np.int64]
    end: int
    _arrays: dict[str, Array] = field(default_factory=dict)
    _states: dict[str, Array] = field(default_factory=dict)

    def array(self, handle: Handle) -> Array:
        """The rows that a handle stands for: ``[rows, width]``."""
        return self._arrays[handle.name]

    def rows(self, row: Callable[[], Handle]) -> Handle:
        return row()

    def frame(self, weights: Array, preemphasis: float, over: str) -> Handle:
        factors = weights.astype(np.float32)
        now, before = (a.astype(np.float32) for a in self._samples(len(factors), over))
        if not preemphasis:
            return self._keep(factors * now)
        return self._keep(factors * (now - np.float32(preemphasis) * before))

    def powers(self, weights: Array, preemphasis: float, over: str, length: int, *, centred: bool) -> Handle:
        op = BlockPower(0, preemphasis, Before.ITSELF if centred else _PREVIOUS[over], length, centred)
        factors = weights.astype(np.float32)
        now, before = (a.astype(np.int64) for a in self._samples(len(factors), "frame" if centred else over))
        return self._keep(powers_of(now, before, factors, op))

    def _samples(self, size: int, over: str) -> tuple[Array, Array]:
        """The samples of each frame, and those before them."""
        places = self.starts[:, None] + np.arange(size)
        now, before = self.signal[places], self.signal[places - 1]
        if over == "frame":
            before[:, 0] = now[:, 0]
        elif over == "stream":
            before[(places == 0) | (places >= self.end)] = 0
        return now, before

    def centred(self, size: int) -> Handle:
        x = self.signal[self.starts[:, None] + np.arange(size)]
        means = x.astype(np.int64).sum(axis=1).astype(np.float32) / np.float32(size)
        return self._keep(x.astype(np.float32) - means[:, None])

    def windowed(self, weights: Array, shift: int) -> Handle:
        frames = self._keep(self.signal[self.starts[:, None] + np.arange(len(weights))])
        return self.one(Window(shift), frames, self.constant("window", weights))

    def peak(self) -> Handle:
        return self.number(float(self.signal.max()))

    def greatest(self, value: Handle) -> Handle:
        return self.number(float(self.array(value).max()))

    def summed(self, value: Handle, weights: npt.NDArray[np.float64], mirrored: bool) -> Handle:
        rows = self.array(value)
        matrix = _around(len(rows), weights, mirrored)
        if not matrix.any():
            return self.one(Mul(), value, self.number(0.0))
        tables = banded(matrix).arrays
        x = Value("x", rows.T.shape, DType.FLOAT32)
        operands = [Value.constant(n, a) for n, a in zip(_PARTS, tables, strict=True)]
        ((shape, dtype),) = Bands().infer([x, *operands])
        sig = Signature((x, *operands), (Value("y", shape, dtype),))
        (made,) = Bands().reference(sig, [rows.T, *tables])
        return self._keep(np.ascontiguousarray(made.T))

    def smoothed(self, value: Handle, factor: float, initial: float) -> Handle:
        rows = self.array(value)
        made, before = np.empty_like(rows), np.full(rows.shape[1:], initial, np.float32)
        for i, row in enumerate(rows):
            before = before * np.float32(1 - factor) + row * np.float32(factor)
            made[i] = before
        return self._keep(made)

    def first(self, value: Handle, count: int) -> Handle:
        return self._keep(np.ascontiguousarray(self.array(value)[:, :count]))

    def beside(self, *values: Handle) -> Handle:
        return self._keep(np.hstack([self.array(value) for value in values]))

    def constant(self, name: str, data: Array) -> Handle:
        return Value.constant(name, data)

    def state(self, key: str, initial: Array) -> Handle:
        return Value.state(key, self._states.setdefault(key, initial))

    def become(self, key: str, value: Handle) -> None:
        """Nothing: an operator with a state has changed it row by row."""

    def apply(self, op: Op, *inputs: Handle, quant: Quant | None = None) -> tuple[Handle, ...]:
        if all(v.is_constant for v in inputs):
            return self._constants(op, inputs)
        alone = isinstance(op, _ALONE)
        results = self._one_by_one(op, inputs, quant) if alone else self._at_once(op, inputs, quant)
        return tuple(self._keep(rows, quant) for rows in results)

    def _constants(self, op: Op, inputs: Sequence[Handle]) -> tuple[Handle, ...]:
        made = tuple(Value("y", shape, dtype) for shape, dtype in op.infer(inputs))
        arrays = op.reference(Signature(tuple(inputs), made), [v.array() for v in inputs])
        return tuple(self.constant("y", array) for array in arrays)

    def _keep(self, rows: Array, quant: Quant | None = None) -> Handle:
        name = f"v{len(self._arrays)}"
        self._arrays[name] = rows
        return Value(name, rows.shape[1:], DType(rows.dtype.name), quant)

    def _at_once(self, op: Op, inputs: Sequence[Handle], quant: Quant | None) -> tuple[Array, ...]:
        count = len(self.starts)
        arrays = [v.array() if v.is_constant else self.array(v) for v in inputs]
        given = [v if v.is_constant else Value(v.name, (count, *v.shape), v.dtype, v.quant) for v in inputs]
        made = [Value("y", shape, dtype, quant) for shape, dtype in op.infer(given)]
        return op.reference(Signature(tuple(given), tuple(made)), arrays)

    def _one_by_one(self, op: Op, inputs: Sequence[Handle], quant: Quant | None) -> list[Array]:
        made = tuple(Value("y", shape, dtype, quant) for shape, dtype in op.infer(inputs))
        results = []
        for row in range(len(self.starts)):
            results.append(op.reference(Signature(tuple(inputs), made), [self._row(v, row) for v in inputs]))
            for before, after in op.states:
                self._states[inputs[before].name] = results[-1][after]
        return [np.stack(column) for column in zip(*results, strict=True)]

    def _row(self, value: Value, row: int) -> Array:
        if value.is_state:
            return self._states[value.name]
        return value.array() if value.is_constant else self.array(value)[row]
