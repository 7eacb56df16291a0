"""Base class of all layers: the symbols of their outputs, and which of these are proven."""

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np

from crtgen.proof.checker.algebra.products import SymbolProducts
from crtgen.proof.checker.algebra.value import Symbol
from crtgen.proof.checker.network.file import ElementType, ModelFile, NetworkOperator

__all__ = ["Layer", "Tensors", "Value"]

Value: TypeAlias = int | Symbol
"""An element of a tensor: a symbol, or a number for an element that never varies."""


class Tensors(Protocol):
    file: ModelFile
    products: SymbolProducts

    def values(self, tensor: int) -> list[Value]: ...
    def array(self, tensor: int) -> "np.ndarray[Any, np.dtype[np.object_]]": ...
    def prepared(self, layer: "Layer") -> list[Value]: ...
    def keeps(self, tensor: int, source: int) -> None: ...
    def shared(self, layer: "Layer", output: int, function: Hashable, symbol: Symbol) -> Symbol: ...


class Layer:
    """An operator. ``values`` are its outputs once it is prepared.

    ``proven`` are outputs that were found in memory or are constant; ``trusted`` those that an NPU is assumed
    to compute. ``same`` maps an output to an earlier one that is the same function of the same symbols.
    ``reasons`` say why bytes were not recognised.
    """

    said = ""
    """Definition of its outputs where formats and runtimes leave it open; a part of the verdict."""
    is_move = False
    """True if its outputs are copies of input bytes, so that there is nothing to prove."""

    def __init__(self, network: Tensors, operator: NetworkOperator) -> None:
        self.network, self.operator = network, operator
        self.number, self.name = operator.number, operator.name
        self.size = sum(network.file.size(t) for t in operator.outputs)
        self.values: list[Value] | None = None
        self.proven: set[int] = set()
        self.trusted: set[int] = set()
        self.same: dict[int, int] = {}
        self.reasons: list[str] = []
        self.wrong: list[list[tuple[dict[Symbol, int], int]]] = []
        """Sums of symbols at bytes that differ from the network, and the value that all of them have."""
        self.evaluations = 0
        self.kept: list[object] = []
        """Expressions that verdicts name by their ``id``."""

    @property
    def file(self) -> ModelFile:
        return self.network.file

    @cached_property
    def type(self) -> ElementType:
        return self.file.kind(self.operator.output)

    @property
    def sizes(self) -> frozenset[int]:
        return frozenset((self.type.bits,))

    @property
    def stored_sizes(self) -> frozenset[int]:
        # Also of values within.
        return self.sizes

    def prepare(self) -> list[Value]:
        """Give each output its symbol. Raises ``Refusal`` for an operator that the checker does not
        follow.
        """
        raise NotImplementedError

    def data_inputs(self) -> Sequence[int]:
        return self.operator.inputs[:1]

    def symbols(self, low: int, high: int) -> list[Value]:
        return [self.symbol(i, low, high) for i in range(self.size)]

    def symbol(self, i: int, low: int, high: int, function: Hashable = None) -> Value:
        """Return a new symbol for an output, or an integer if it has only one possible value.

        If the previous window had the same ``function`` of the same symbols, its symbol is returned.
        """
        if low == high:
            self.proven.add(i)
            return low
        symbol = Symbol(self.operator.output, i, low, high, self.type.bits)
        return symbol if function is None else self.network.shared(self, i, function, symbol)

    def needs(self, outputs: set[int]) -> set[Symbol]:
        raise NotImplementedError

    def proven_outputs(self) -> set[int]:
        """Return the indices of outputs that are proven, or equal a proven output."""
        known = {id(self.values[i]) for i in self.proven} if self.values else set()
        alike = {i for i, v in enumerate(self.values or ()) if isinstance(v, Symbol) and id(v) in known}
        return self.proven | alike | {i for i, j in self.same.items() if j in self.proven}

    def found(self, output: int) -> Value:
        self.proven.add(output)
        assert self.values is not None  # it was prepared to be asked
        return self.values[output]

    def because(self, reason: str, *wrong: list[tuple[dict[Symbol, int], int]]) -> None:
        if len(self.reasons) < 3 and reason not in self.reasons:
            self.reasons.append(reason)
            self.wrong += wrong
