"""Operators of features over all frames of a signal at once, by their numpy references."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from crtgen.network.features.steps import PARTS, PREVIOUS, Bins, Handle, Steps, around
from crtgen.network.ir import Array, DType, Op, Quant, Signature, Value
from crtgen.network.ops import (
    Bands,
    Before,
    BlockPower,
    FftAutoScale,
    FilterBank,
    FilterBankSquareRoot,
    Frame,
    Mul,
    ReduceMax,
    SpectralSubtraction,
    SpectrumEnergy,
    Window,
)
from crtgen.network.ops.block_power import powers_of
from crtgen.network.ops.spectral import banded

__all__ = ["ArraySteps"]

# Operators that see the whole of their input: they are applied to one row after the other.
_ALONE = (
    FftAutoScale,
    FilterBank,
    FilterBankSquareRoot,
    Frame,
    ReduceMax,
    SpectralSubtraction,
    SpectrumEnergy,
)


@dataclass(slots=True)
class ArraySteps(Steps):
    """Computes all frames at once, with the numpy references of the operators.

    ``signal`` holds the samples, ``starts`` the first index of each frame; samples before index 0 are 0. From
    ``end`` on and before ``first`` the signal is padding, to which pre-emphasis was not applied.
    """

    signal: npt.NDArray[np.int16]
    starts: npt.NDArray[np.int64]
    end: int
    first: int = 0
    _arrays: dict[str, Array] = field(default_factory=dict)
    _states: dict[str, Array] = field(default_factory=dict)

    def array(self, handle: Handle) -> Array:
        """Return the rows of a handle: ``[rows, width]``."""
        return self._arrays[handle.name]

    def rows(self, row: Callable[[], Handle]) -> Handle:
        return row()

    def frame(self, weights: Array, preemphasis: float, over: str) -> Handle:
        factors = weights.astype(np.float32)
        now, before = (a.astype(np.float32) for a in self._samples(len(factors), over))
        if not preemphasis:
            return self._keep(factors * now)
        return self._keep(factors * (now - np.float32(preemphasis) * before))

    def powers(
        self, weights: Array, preemphasis: float, over: str, length: int, bins: Bins, *, centred: bool
    ) -> Handle:
        before = Before.ITSELF if centred else PREVIOUS[over]
        op = BlockPower(0, preemphasis, before, length, bins, centred)
        factors = weights.astype(np.float32)
        now, earlier = (a.astype(np.int64) for a in self._samples(len(factors), "frame" if centred else over))
        return self._keep(powers_of(now, earlier, factors, op))

    def _samples(self, size: int, over: str) -> tuple[Array, Array]:
        # The samples of each frame, and those before them.
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
        return self.number(float(self.signal[self.first : self.end].max()))

    def greatest(self, value: Handle) -> Handle:
        return self.number(float(self.array(value).max()))

    def summed(self, value: Handle, weights: npt.NDArray[np.float64], ends: str) -> Handle:
        rows = self.array(value)
        matrix = around(len(rows), weights, ends)
        if not matrix.any():
            return self.one(Mul(), value, self.number(0.0))
        tables = banded(matrix).arrays
        x = Value("x", rows.T.shape, DType.FLOAT32)
        operands = [Value.constant(n, a) for n, a in zip(PARTS, tables, strict=True)]
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

    def part(self, value: Handle, first: int, end: int) -> Handle:
        return self._keep(np.ascontiguousarray(self.array(value)[:, first:end]))

    def beside(self, *values: Handle) -> Handle:
        return self._keep(np.hstack([self.array(value) for value in values]))

    def constant(self, name: str, data: Array) -> Handle:
        return Value.constant(name, data)

    def state(self, key: str, initial: Array) -> Handle:
        return Value.state(key, self._states.setdefault(key, initial))

    def become(self, key: str, value: Handle) -> None:
        """Do nothing: an operator with a state has already updated it row by row."""

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
