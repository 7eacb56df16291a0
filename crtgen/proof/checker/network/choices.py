"""Layers that choose: SELECT takes one of two tensors, ARG_MAX and ARG_MIN the place of an extreme."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tflite

from crtgen.proof.checker.algebra.value import Symbol
from crtgen.proof.checker.network.layer import Layer, Value
from crtgen.proof.checker.refusal import Refusal

__all__ = ["ChoiceLayer", "ExtremePlace"]


class ChoiceLayer(Layer):
    """SELECT and SELECT_V2: the second operand where the first is true, else the third.

    ``operands`` are the three operands of each output; ``choices`` are outputs by the symbols among these.
    """

    def data_inputs(self) -> Sequence[int]:
        return self.operator.inputs

    def prepare(self) -> list[Value]:
        f, (_, a, b), y = self.file, self.operator.inputs, self.operator.output
        kinds = {(f.kind(t), *((f.scale(t), f.zero_point(t)) if f.has_scale(t) else ())) for t in (a, b, y)}
        if len(kinds) > 1:
            raise Refusal("both tensors and the output must have the same type and scale")
        arrays = [np.broadcast_to(self.network.array(t), f.shape(y)).ravel() for t in self.operator.inputs]
        self.operands: list[tuple[Value, ...]] = list(zip(*arrays, strict=True))
        self.choices: dict[frozenset[Value], list[int]] = {}
        return [self._entered(i, *operands) for i, operands in enumerate(self.operands)]

    def _entered(self, i: int, taken: Value, a: Value, b: Value) -> Value:
        # The output's symbol, or the operand that it is a copy of.
        if isinstance(taken, int) or a is b:
            self.proven.add(i)
            return a if taken else b
        symbols = frozenset(v for v in (taken, a, b) if isinstance(v, Symbol))
        alike = self.choices.setdefault(symbols, [])
        alike.append(i)
        ends = [(v, v) if isinstance(v, int) else (v.low, v.high) for v in (a, b)]
        return self.symbol(i, min(e[0] for e in ends), max(e[1] for e in ends), (taken, a, b))

    def value(self, taken: Any, a: Any, b: Any) -> Any:
        return np.where(taken != 0, a, b)

    def needs(self, outputs: set[int]) -> set[Symbol]:
        return {v for i in outputs for v in self.operands[i] if isinstance(v, Symbol)}


class ExtremePlace(Layer):
    """ARG_MAX and ARG_MIN: the place of the first greatest, or least, element along an axis.

    ``rows`` are the elements that each output is about.
    """

    takes_least = False

    def prepare(self) -> list[Value]:
        f, (x, axis) = self.file, self.operator.inputs
        self.takes_least = self.operator.code == tflite.BuiltinOperator.ARG_MIN
        place = f.constant(axis)
        if place is None or place.size != 1:
            raise Refusal("the axis must be constant")
        self.kind, self.rows = f.kind(x), []
        array = np.moveaxis(self.network.array(x), int(place.ravel()[0]), -1)
        result: list[Value] = []
        self.of: dict[tuple[Value, ...], int] = {}
        for i, row in enumerate(array.reshape(-1, array.shape[-1]).tolist()):
            self.rows.append(tuple(row))
            first = self.of.setdefault(tuple(row), i)
            if first != i:
                self.same[i] = first
            result.append(self._entered(i, row) if first == i else result[first])
        return result

    def _entered(self, i: int, row: list[Value]) -> Value:
        if any(isinstance(v, Symbol) for v in row):
            return self.symbol(i, 0, len(row) - 1, tuple(row))
        self.proven.add(i)
        return int(self.reference(np.array(row, np.int64)))

    def reference(self, rows: Any) -> Any:
        return (np.argmin if self.takes_least else np.argmax)(rows, -1)

    def needs(self, outputs: set[int]) -> set[Symbol]:
        return {v for i in outputs for v in self.rows[i] if isinstance(v, Symbol)}
