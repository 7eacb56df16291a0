"""Float32 features computed in float64 instead, to measure the effect of rounding."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crtgen.network.features.at_once import ArraySteps
from crtgen.network.features.steps import Bins, Handle, around
from crtgen.network.ir import Array, DType, Op, Quant, Value
from crtgen.network.ops import (
    Add,
    Div,
    Frame,
    LogFloor,
    Maximum,
    Minimum,
    Mul,
    Power,
    Rfft,
    ScaledExp,
    ScaledLog,
    Sqrt,
    Sub,
)

__all__ = ["ExactSteps"]

Doubles = npt.NDArray[np.float64]

_ARITHMETIC: Mapping[type[Op], Callable[..., Doubles]] = {
    Add: np.add,
    Sub: np.subtract,
    Mul: np.multiply,
    Div: np.divide,
    Maximum: np.maximum,
    Minimum: np.minimum,
    Sqrt: np.sqrt,
}


@dataclass(slots=True)
class ExactSteps(ArraySteps):
    """Computes all frames at once in float64, by numpy's own functions; windows are rounded to float32 as in
    the C code.

    For features before they are rounded to steps or integers.
    """

    def _keep(self, rows: Array, quant: Quant | None = None) -> Handle:
        name = f"v{len(self._arrays)}"
        self._arrays[name] = rows.astype(np.float64)
        return Value(name, rows.shape[1:], DType.FLOAT32, quant)

    def frame(self, weights: Array, preemphasis: float, over: str) -> Handle:
        now, before = (a.astype(np.float64) for a in self._samples(len(weights), over))
        return self._keep(weights.astype(np.float64) * (now - preemphasis * before))

    def powers(
        self, weights: Array, preemphasis: float, over: str, length: int, bins: Bins, *, centred: bool
    ) -> Handle:
        frame = self.frame(weights, preemphasis, over)
        if centred:
            frame = self.one(Frame(0, preemphasis), self.centred(len(weights)), self.constant("w", weights))
        return self.part(self.one(Power(), self.one(Rfft(length), frame)), *bins)

    def doubles(self, handle: Handle) -> Doubles:
        return (handle.array() if handle.is_constant else self.array(handle)).astype(np.float64)

    def centred(self, size: int) -> Handle:
        x = self.signal[self.starts[:, None] + np.arange(size)].astype(np.float64)
        return self._keep(x - x.mean(axis=1, keepdims=True))

    def bands(self, name: str, x: Handle, matrix: Doubles) -> Handle:
        return self._keep(self.doubles(x) @ matrix)

    def summed(self, value: Handle, weights: Doubles, ends: str) -> Handle:
        rows = self.doubles(value)
        return self._keep(around(len(rows), weights, ends).T @ rows)

    def apply(self, op: Op, *inputs: Handle, quant: Quant | None = None) -> tuple[Handle, ...]:
        made = _applied(op, [self.doubles(value) for value in inputs])
        return (self.number(float(made)),) if made.ndim == 0 else (self._keep(made),)


def _applied(op: Op, arrays: list[Doubles]) -> Doubles:
    x = arrays[0]
    match op:
        case Rfft():
            spectrum = np.fft.rfft(x, op.length)
            return np.stack([spectrum.real, spectrum.imag], axis=-1).reshape(len(x), -1)
        case Power():
            power = np.square(x[:, ::2]) + np.square(x[:, 1::2])
            return np.sqrt(power) if op.root else power
        case Frame():
            before = np.hstack([x[:, :1], x[:, :-1]])
            return np.asarray(arrays[1] * (x - op.preemphasis * before))
        case ScaledLog():
            return op.scale * np.log(_floored(x, op)) + op.offset
        case ScaledExp():
            return op.scale * np.exp(x) + op.offset
        case _:
            return _ARITHMETIC[type(op)](*arrays)


def _floored(x: Doubles, op: ScaledLog) -> Doubles:
    if op.kind is LogFloor.ADD:
        return x + op.floor
    return np.maximum(x, op.floor) if op.kind is LogFloor.MAX else np.where(x == 0, op.floor, x)
