"""Operators, nodes and graphs, and the check that must hold after every pass."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from types import MappingProxyType
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from crtgen.base.errors import CorruptModelError
from crtgen.network.ir.types import Array, DType, Value, shape_text

__all__ = ["AxisMap", "Graph", "Index", "Node", "Op", "Signature"]

Index: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Signature:
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]

    @property
    def x(self) -> Value:
        return self.inputs[0]

    @property
    def y(self) -> Value:
        return self.outputs[0]


@dataclass(frozen=True, slots=True)
class AxisMap:
    """Access pattern of an operator along one axis, the same at every position.

    Position ``o`` of the output's ``axis`` depends on ``extent`` positions of the inputs, from ``o * stride -
    before`` on. ``before`` is the padding before the inputs.
    """

    axis: int
    stride: int = 1
    before: int = 0
    extent: int = 1


class Op(ABC):
    """An operator with its attributes: the base of one frozen dataclass per operator.

    The subclass declares its attributes as dataclass fields, and is the only place that defines the
    operator's meaning.
    """

    name: ClassVar[str]

    monotonic: ClassVar[bool] = False
    """True if every element of an int8 output is non-decreasing in every input element."""

    states: ClassVar[tuple[tuple[int, int], ...]] = ()
    """Positions of inputs that are states, each with the position of the output that is its next value."""

    @abstractmethod
    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        """Return shape and type of each output; raises ``ValueError`` with the reason if the inputs do not
        match.
        """

    @abstractmethod
    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """Return the definition, in numpy: ``arrays`` has one array per input, constants included."""

    unscaled: ClassVar[bool] = False
    """True if the operator ignores its inputs' quantisation; its output then has the same one."""

    def macs(self, sig: Signature) -> int:
        """Return the number of multiplications of an input with a weight; 0 for an operator without
        weights.
        """
        return 0

    def work(self, sig: Signature) -> int:
        """Return the cost of the reference, in multiplications that would take equally long."""
        return self.macs(sig)

    def working_elements(self, sig: Signature) -> int:
        """Return the approximate number of elements that the reference holds at once."""
        return sum(value.elements for value in (*sig.inputs, *sig.outputs))

    def is_identity(self, sig: Signature) -> bool:
        """Return True if it copies its input, given equal shape, type and quantisation."""
        return False

    def resized(self, sig: Signature) -> "Op":
        """Return the operator for values whose last axes have different lengths."""
        return self

    def axis_map(self, sig: Signature, axes: Sequence[int | None]) -> AxisMap | None:
        """Return the access pattern along an axis, which ``axes`` names for each input that has it.

        None if it mixes positions, treats them differently, or the pattern is unknown.
        """
        return None

    def lengthened(self, axis: int, length: int) -> "Op":
        return self

    def channel_groups(self, sig: Signature) -> tuple[Index | None, ...] | None:
        """Return the channel groups along the last axis, for each input and then each output.

        Channels with the same number can only be removed together; a value without numbers keeps all
        channels. None for an operator that mixes channels, or if it is unknown.
        """
        return None

    def bounds(
        self, sig: Signature, low: Sequence[Array], high: Sequence[Array]
    ) -> tuple[Array, Array] | None:
        """Return the smallest and largest output for inputs between ``low`` and ``high``; None if unknown."""
        if not self.monotonic:
            return None
        return self.reference(sig, low)[0], self.reference(sig, high)[0]

    def attributes(self) -> str:
        """Return the attributes as readable text: ``stride=(2, 2) padding=same``."""
        if not hasattr(self, "__dataclass_fields__"):
            return ""
        pairs = ((f.name, getattr(self, f.name)) for f in fields(self))  # type: ignore[arg-type]
        return " ".join(f"{k}={v.name.lower() if isinstance(v, Enum) else v}" for k, v in pairs)


@dataclass(frozen=True, slots=True)
class Node:
    """An operator applied to named values. The node's name is unique in its graph."""

    name: str
    op: Op
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A network: nodes in executable order, and every value that they name.

    ``inputs`` and ``outputs`` name values in the order of the model's interface. ``states`` are values that
    persist between runs; each has its name and the name of its next value. ``notes`` tell the user how a file
    was interpreted.
    """

    name: str
    values: Mapping[str, Value]
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    states: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    _producers: Mapping[str, Node] = field(init=False, repr=False)
    _consumers: Mapping[str, tuple[Node, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        readers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.inputs):
                readers.setdefault(value, []).append(node)
        producers = {value: node for node in reversed(self.nodes) for value in node.outputs}
        object.__setattr__(self, "_producers", producers)
        object.__setattr__(self, "_consumers", {value: tuple(found) for value, found in readers.items()})

    @classmethod
    def build(
        cls,
        name: str,
        values: Sequence[Value],
        nodes: Sequence[Node],
        inputs: Sequence[str],
        outputs: Sequence[str],
        states: Sequence[tuple[str, str]] = (),
    ) -> "Graph":
        """Return a verified graph, without values that are not used."""
        table = {v.name: v for v in values}
        if len(table) != len(values):
            twice, _ = Counter(v.name for v in values).most_common(1)[0]
            raise CorruptModelError(f"two values are called {twice}", where=name)
        used = {*inputs, *outputs, *(n for pair in states for n in pair)}
        used |= {*(n for node in nodes for n in (*node.inputs, *node.outputs))}
        kept = {k: v for k, v in table.items() if k in used}
        graph = cls(name, MappingProxyType(kept), tuple(nodes), tuple(inputs), tuple(outputs), tuple(states))
        graph.verify()
        return graph

    @property
    def lasting(self) -> tuple[str, ...]:
        """Names of the values that must still exist when a run ends: outputs, and the next values of
        states.
        """
        return (*self.outputs, *(after for _, after in self.states))

    @property
    def macs(self) -> int:
        return sum(node.op.macs(self.signature(node)) for node in self.nodes)

    def signature(self, node: Node) -> Signature:
        return Signature(
            tuple(self.values[n] for n in node.inputs), tuple(self.values[n] for n in node.outputs)
        )

    def producer(self, value: str) -> Node | None:
        return self._producers.get(value)

    def consumers(self, value: str) -> tuple[Node, ...]:
        return self._consumers.get(value, ())

    def evaluate(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return every value of the network by name, computed by the operators' numpy references.

        States have their initial values, unless ``inputs`` contains them, too.
        """
        env: dict[str, Array] = {n: v.data for n, v in self.values.items() if v.data is not None}
        env.update(inputs)
        for node in self.nodes:
            results = node.op.reference(self.signature(node), [env[i] for i in node.inputs])
            env.update(zip(node.outputs, results, strict=True))
        return env

    def run(self, steps: Iterable[Sequence[Array]]) -> Iterator[tuple[Array, ...]]:
        """Yield the outputs of one run after another, starting from the initial states.

        ``steps`` has, for each run, an array for each input.
        """
        states: dict[str, Array] = {}
        for inputs in steps:
            values = self.evaluate({**states, **dict(zip(self.inputs, inputs, strict=True))})
            states = {before: values[after] for before, after in self.states}
            yield tuple(values[name] for name in self.outputs)

    def verify(self) -> None:
        """Raise ``CorruptModelError`` unless the graph is well formed.

        Names exist, every value is defined once and before it is used, node names are unique, and each node's
        outputs have the shape and type that its operator infers.
        """
        self._verify_interface()
        defined = {*self.inputs, *(n for n, v in self.values.items() if v.data is not None)}
        names: set[str] = set()
        for node in self.nodes:
            where = f"{self.name}: {node.name} ({node.op.name})"
            if node.name in names:
                raise CorruptModelError("two nodes have this name", where=where)
            names.add(node.name)
            self._verify_node(node, defined, where)
            defined.update(node.outputs)
        for name in self.outputs:
            if name not in defined:
                raise CorruptModelError(f"nothing computes the output {name}", where=self.name)
        self._verify_states(defined)

    def _verify_states(self, defined: set[str]) -> None:
        named = [before for before, _ in self.states]
        lacking = [name for name, value in self.values.items() if value.is_state and name not in named]
        if lacking or len(set(named)) < len(named):
            what = f"does not update the state {lacking[0]}" if lacking else "updates a state twice"
            raise CorruptModelError(f"the graph {what}", where=self.name)
        for before, after in self.states:
            if before not in self.values or not self.values[before].is_state:
                raise CorruptModelError(
                    f"the states of the graph name {before}, which is not a value", where=self.name
                )
            if after not in defined:
                raise CorruptModelError(f"nothing computes {after}, which {before} becomes", where=self.name)
            old, new = self.values[before], self.values[after]
            if new.is_state and after != before:
                raise CorruptModelError(f"the state {before} becomes another state, {after}", where=self.name)
            if (old.shape, old.dtype) != (new.shape, new.dtype):
                raise CorruptModelError(f"the state {before} becomes another type, {after}", where=self.name)

    def _verify_interface(self) -> None:
        if not self.outputs:
            raise CorruptModelError("the graph has no outputs", where=self.name)
        for kind, listed in (("input", self.inputs), ("output", self.outputs)):
            for name in {n for n in listed if listed.count(n) > 1}:
                raise CorruptModelError(
                    f"the {kind}s of the graph name {name} more than once", where=self.name
                )
        for name in (*self.inputs, *self.outputs):
            if name not in self.values:
                raise CorruptModelError(
                    f"the interface of the graph names {name}, which is not a value", where=self.name
                )
        for value in self.values.values():
            if any(d <= 0 for d in value.shape):
                raise CorruptModelError(f"{value.name} has shape {shape_text(value.shape)}", where=self.name)
        for name in self.inputs:
            if self.values[name].is_constant:
                raise CorruptModelError(f"the input {name} is a constant", where=self.name)

    def _verify_node(self, node: Node, defined: set[str], where: str) -> None:
        for name in (*node.inputs, *node.outputs):
            if name not in self.values:
                raise CorruptModelError(f"the node names {name}, which is not a value", where=where)
        for name in node.inputs:
            if name not in defined:
                raise CorruptModelError(f"the node reads {name} before anything computes it", where=where)
        for name in node.outputs:
            if name in defined:
                raise CorruptModelError(f"the node computes {name} a second time", where=where)
        sig = self.signature(node)
        try:
            inferred = node.op.infer(sig.inputs)
        except ValueError as error:
            raise CorruptModelError(str(error), where=where) from error
        actual = tuple((v.shape, v.dtype) for v in sig.outputs)
        if actual != inferred:
            raise CorruptModelError(
                f"the outputs of the node are {_types(actual)}, but the operator gives {_types(inferred)}",
                where=where,
            )

    def __str__(self) -> str:
        """Return the readable dump: one line per input, node and output."""
        lines = [f"graph {self.name}"]
        lines += [f"  input  {self.values[n]}" for n in self.inputs]
        lines += [f"  state  {self.values[n]}" for n, _ in self.states]
        for node in self.nodes:
            outs = ", ".join(str(self.values[n]) for n in node.outputs)
            args = ", ".join(_argument(self.values[n]) for n in node.inputs)
            attributes = node.op.attributes()
            lines.append(f"  {outs}\n      = {node.op.name}({args}){' ' + attributes if attributes else ''}")
        lines += [f"  output %{n}" for n in self.outputs]
        lines += [f"  state  %{before} = %{after}" for before, after in self.states]
        return "\n".join(lines) + "\n"


def _argument(value: Value) -> str:
    if not value.is_constant:
        return f"%{value.name}"
    return f"const {shape_text(value.shape)} {value.dtype.value}"


def _types(types: Sequence[tuple[tuple[int, ...], DType]]) -> str:
    return ", ".join(f"{shape_text(s)} {d.value}" for s, d in types)
