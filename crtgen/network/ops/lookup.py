"""Functions of one int8 value, given as their 256 results: ``lookup``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, DType, Quant, Signature, Value
from crtgen.network.ops.attrs import require, require_inputs
from crtgen.network.ops.case import Case, int8s, make
from crtgen.network.ops.scheme import INT8
from crtgen.network.ops.traits import Tabulated

__all__ = ["Lookup", "cases"]


@dataclass(frozen=True, slots=True)
class Lookup(Tabulated):
    """Table lookup: each int8 ``x`` becomes ``table[x + 128]``; ``label`` names the function."""

    name: ClassVar[str] = "lookup"

    table: tuple[int, ...]
    label: str = ""

    @classmethod
    def of(cls, results: Array, label: str) -> "Lookup":
        """Return a lookup from the results for all int8 values, in order."""
        return cls(tuple(int(n) for n in results), label)

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        require(inputs[0].dtype is INT8.activations, f"the input is {inputs[0].dtype.value}")
        whole = len(self.table) == 256 and all(INT8.low <= n <= INT8.high for n in self.table)
        require(whole, "the table has not 256 numbers of int8")
        return ((inputs[0].shape, INT8.activations),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        table = np.array(self.table, np.int8)
        return (table[arrays[0].astype(np.int64) - INT8.low],)


def cases() -> Iterator[Case]:
    squares = np.arange(-128, 128) ** 2 // 130 - 60
    x = int8s("x", (1, 7, 5), 0.05, 3)
    yield make("squares_onnx", Lookup.of(squares, "square"), [x], Quant.tensor(0.1, 7))
