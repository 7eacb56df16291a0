"""BATCH_MATMUL: products of matrices that are both computed, or of which one is constant."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tflite

from crtgen.proof.checker.algebra.products import SymbolProducts
from crtgen.proof.checker.algebra.value import Symbol
from crtgen.proof.checker.network.arithmetic import Ints, quantized_multiplier, requantize, requantize_long
from crtgen.proof.checker.network.layer import Value
from crtgen.proof.checker.network.sums import Channel, SumLayer, Summed, bounds_of
from crtgen.proof.checker.refusal import Refusal

__all__ = ["MatrixProducts"]


class MatrixProducts(SumLayer):
    """Each output is a function of a sum of products. ``products`` are the symbols that stand for these."""

    @property
    def products(self) -> SymbolProducts:
        return self.network.products

    def data_inputs(self) -> Sequence[int]:
        return self.operator.inputs

    def sums(self) -> Iterator[Summed]:
        f, (x, w), y = self.file, self.operator.inputs, self.operator.output
        if f.kind(x) != self.type or f.kind(w) != self.type:
            raise Refusal("both tensors and the output must have the same type")
        o = self.operator.options(tflite.BatchMatMulOptions)
        self.limits, self.zero = f.limits(y, 0), f.zero_point(y)
        self.zeros = f.zero_point(x), f.zero_point(w)
        self.factor = quantized_multiplier(f.scale(x) * f.scale(w) / f.scale(y))
        yield from self.of_rows(o.AdjX(), o.AdjY())

    def of_rows(self, turns_first: bool, turns_second: bool) -> Iterator[Summed]:
        # Set ``ranges`` and yield the sums of products of rows with columns.
        arrays = [self.network.array(t) for t in self.operator.inputs]
        a = np.swapaxes(arrays[0], -1, -2) if turns_first else arrays[0]
        b = np.swapaxes(arrays[1], -1, -2) if not turns_second else arrays[1]
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        first = np.broadcast_to(a, batch + a.shape[-2:]).reshape(-1, *a.shape[-2:])
        second = np.broadcast_to(b, batch + b.shape[-2:]).reshape(-1, *b.shape[-2:])
        self.ranges = {0: self._range(arrays, a.shape[-1])}
        if self.type.bits == 16:
            symbols = (v for array in arrays for v in array.ravel() if isinstance(v, Symbol))
            self.products.tensors.update(v.tensor for v in symbols)
        i = 0
        for rows, columns in zip(first, second, strict=True):
            for row in rows.tolist():
                for column in columns.tolist():
                    yield i, 0, *self._total(row, column)
                    i += 1

    def _range(self, arrays: Sequence[Any], depth: int) -> tuple[int, int]:
        ends = [bounds_of(a.ravel()) for a in arrays]
        spans = [
            (int(low.min()) - z, int(high.max()) - z) for (low, high), z in zip(ends, self.zeros, strict=True)
        ]
        corners = [p * q for p in spans[0] for q in spans[1]]
        return depth * min(corners), depth * max(corners)

    def _total(self, row: Sequence[Value], column: Sequence[Value]) -> tuple[int, dict[Symbol, int]]:
        base, terms = 0, dict[Symbol, int]()
        for pair in zip(row, column, strict=True):
            forms = [
                ({v: 1}, -z) if isinstance(v, Symbol) else ({}, v - z)
                for v, z in zip(pair, self.zeros, strict=True)
            ]
            constant, more = self.products.multiplied(*forms[0], *forms[1])
            base += constant
            for symbol, k in more.items():
                terms[symbol] = terms.get(symbol, 0) + k
        return base, terms

    def function(self, channel: Channel, acc: Ints) -> Any:
        scaled = (requantize_long if self.type.bits == 16 else requantize)(acc, *self.factor)
        return np.clip(scaled + self.zero, *self.limits)

    def needs(self, outputs: set[int]) -> set[Symbol]:
        return {f for s in super().needs(outputs) for f in self.products.factors.get(s, (s,))}

    def because(self, reason: str, *wrong: list[tuple[dict[Symbol, int], int]]) -> None:
        super().because(reason)  # inputs that give a sum of products are not looked for
