"""Control flow: operators that run graphs, once or as long as a condition holds."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crtgen.base import budget
from crtgen.network.ir import Array, DType, Graph, Op, Signature, Value, shape_text
from crtgen.network.ops.attrs import require
from crtgen.network.ops.cost import cost_of

__all__ = ["ControlFlow", "If", "While"]


class ControlFlow(Op):
    """An operator that contains graphs. It is planned and generated together with them, and has no kernel."""

    __slots__ = ()

    @property
    @abstractmethod
    def graphs(self) -> tuple[Graph, ...]: ...

    @abstractmethod
    def with_graphs(self, graphs: Sequence[Graph]) -> "ControlFlow": ...

    def attributes(self) -> str:
        return " ".join(f"{graph.name}={len(graph.nodes)} nodes" for graph in self.graphs)


@dataclass(frozen=True, slots=True, eq=False)
class If(ControlFlow):
    """``condition, inputs... -> outputs...``: runs one graph if the condition holds, otherwise the other."""

    name: ClassVar[str] = "if"

    then: Graph
    otherwise: Graph

    @property
    def graphs(self) -> tuple[Graph, ...]:
        return self.then, self.otherwise

    def with_graphs(self, graphs: Sequence[Graph]) -> "If":
        then, otherwise = graphs
        return If(then, otherwise)

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require(len(inputs) > 0, "it has no condition")
        _require_condition(inputs[0])
        for graph in self.graphs:
            _require_types(graph, graph.inputs, inputs[1:], "is given")
        then, otherwise = (_types(graph, graph.outputs) for graph in self.graphs)
        require(then == otherwise, "its graphs have outputs of different types")
        return then

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        chosen = self.then if bool(arrays[0].reshape(-1)[0]) else self.otherwise
        return _run(chosen, arrays[1:])

    def macs(self, sig: Signature) -> int:
        return max(graph.macs for graph in self.graphs)


@dataclass(frozen=True, slots=True, eq=False)
class While(ControlFlow):
    """``inputs... -> outputs...``: runs ``body`` on the inputs, then on its own outputs, while ``condition``
    holds.

    Both graphs get all inputs. The first inputs, as many as there are outputs, are carried to the next
    iteration; the rest are the same in every iteration.
    """

    name: ClassVar[str] = "while"

    condition: Graph
    body: Graph

    @property
    def graphs(self) -> tuple[Graph, ...]:
        return self.condition, self.body

    def with_graphs(self, graphs: Sequence[Graph]) -> "While":
        condition, body = graphs
        return While(condition, body)

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        for graph in self.graphs:
            _require_types(graph, graph.inputs, inputs, "is given")
        require(len(self.condition.outputs) == 1, "its condition has not one output")
        _require_condition(self.condition.values[self.condition.outputs[0]])
        carried = inputs[: len(self.body.outputs)]
        _require_types(self.body, self.body.outputs, carried, "starts with")
        return _types(self.body, self.body.outputs)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        count = len(self.body.outputs)
        carried, fixed = tuple(arrays[:count]), tuple(arrays[count:])
        spending, round_ = budget.current(), cost_of(self.condition) + cost_of(self.body)
        spending.compute(round_, "a loop of constants")
        while bool(_run(self.condition, (*carried, *fixed))[0].reshape(-1)[0]):
            spending.compute(round_, "a loop of constants")
            carried = _run(self.body, (*carried, *fixed))
        return carried

    def macs(self, sig: Signature) -> int:
        """Return the multiplications of one iteration; the number of iterations is only known at run time."""
        return self.body.macs + self.condition.macs


def _run(graph: Graph, arrays: Sequence[Array]) -> tuple[Array, ...]:
    values = graph.evaluate(dict(zip(graph.inputs, arrays, strict=True)))
    return tuple(np.asarray(values[name]) for name in graph.outputs)


def _types(graph: Graph, names: Sequence[str]) -> tuple[tuple[tuple[int, ...], DType], ...]:
    return tuple((graph.values[name].shape, graph.values[name].dtype) for name in names)


def _require_condition(value: Value) -> None:
    fits = value.dtype is DType.BOOL and value.elements == 1
    require(fits, f"its condition is {shape_text(value.shape)} {value.dtype.value}, not one bool")


def _require_types(graph: Graph, names: Sequence[str], values: Sequence[Value], verb: str) -> None:
    given = tuple((value.shape, value.dtype) for value in values)
    fits = _types(graph, names) == given
    require(fits, f"{graph.name} does not take what it {verb}")
