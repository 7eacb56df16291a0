"""The plan of a graph: when each layer runs, with which kernel, and where its data is in the arena.

A ``Call`` computes one operator. A ``RowLoop`` computes several operators a few rows at a time, so the
tensors between them never exist as a whole. A ``RowStream`` is such a loop of any length, whose image may
arrive by rows from outside. A ``Branch`` runs one of two schedules; a ``WhileLoop`` repeats one as long as
another one returns true.

A ``Plan`` is the product: the schedule with a kernel and a place in the arena for each item. Control flow
contains plans of its own, so both are defined together.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from crtgen.compiler.kernels import RowStage
from crtgen.compiler.kernels.engine.kernel import Kernel
from crtgen.compiler.plan.slot import ArenaPart, ArenaSlot
from crtgen.network.ir import Graph, Node, Signature, Value
from crtgen.network.ops import Concat

__all__ = [
    "Branch",
    "Call",
    "Item",
    "Outside",
    "Plan",
    "RowLoop",
    "RowStream",
    "Stage",
    "Step",
    "WhileLoop",
    "macs_of",
    "signature_of",
]


@dataclass(frozen=True, slots=True)
class Stage:
    """An operator within a row loop.

    ``image`` is the input that comes from the previous stage. ``layer`` is a node that computes the other
    operand of an addition, for the same rows. ``since`` is the index of the stage whose output is that
    operand; a ``RowStream`` keeps rows of it until then.
    """

    node: Node
    image: str
    layer: Node | None = None
    since: int | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (self.node,) if self.layer is None else (self.layer, self.node)

    @property
    def others(self) -> tuple[str, ...]:
        """Inputs apart from the image that the loop does not compute itself."""
        if self.since is not None:
            return ()
        inputs = list(self.node.inputs)
        inputs.remove(self.image)
        if self.layer is None:
            return tuple(inputs)
        return (*(name for name in inputs if name not in self.layer.outputs), *self.layer.inputs)

    def described(self, graph: Graph) -> RowStage:
        inputs = list(self.node.inputs)
        inputs.remove(self.image)
        values = tuple(graph.values[name] for name in (self.image, *inputs))
        shortcut = None if self.layer is None else (self.layer.op, graph.signature(self.layer))
        sig = Signature(values, graph.signature(self.node).outputs)
        turned = isinstance(self.node.op, Concat) and self.image != self.node.inputs[0]
        return RowStage(self.node.op, sig, shortcut, self.since, turned)


@dataclass(frozen=True)
class Call:
    node: Node

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def operator(self) -> str:
        return self.node.op.name

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (self.node,)

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.node.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.node.outputs


@dataclass(frozen=True)
class RowLoop:
    stages: tuple[Stage, ...]
    rows: int

    @cached_property
    def name(self) -> str:
        return "+".join(node.name for node in self.nodes)

    @property
    def operator(self) -> str:
        return "row_loop"

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(node for stage in self.stages for node in stage.nodes)

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Inputs: the first stage's image, then the other inputs of each stage."""
        return (self.stages[0].image, *(name for stage in self.stages for name in stage.others))

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.stages[-1].node.outputs

    @property
    def inner(self) -> tuple[str, ...]:
        """Values that are never in memory as a whole."""
        between = [stage.image for stage in self.stages[1:]]
        return (*between, *(stage.layer.outputs[0] for stage in self.stages if stage.layer is not None))


@dataclass(frozen=True)
class RowStream(RowLoop):
    """Stages that take the rows of their image one after another.

    If it is ``fed``, the image is the model's input, which arrives a few rows at a time and is never stored
    as a whole. The last stage may add up all rows; then ``rows`` are those of the previous stage.
    """

    fed: bool

    @property
    def operator(self) -> str:
        return "row_stream"


@dataclass(frozen=True)
class Branch(Call):
    """A choice between two schedules, whose plans are within the scratch memory of the item."""

    then: "Plan"
    otherwise: "Plan"

    @property
    def plans(self) -> "tuple[Plan, ...]":
        return self.then, self.otherwise


@dataclass(frozen=True)
class WhileLoop(Call):
    """A schedule that repeats as long as another schedule returns true."""

    condition: "Plan"
    body: "Plan"

    @property
    def plans(self) -> "tuple[Plan, ...]":
        return self.condition, self.body


Item: TypeAlias = Call | RowLoop
"""A ``Branch`` and a ``WhileLoop`` are calls of their nodes' operators."""


@dataclass(frozen=True, slots=True)
class Outside:
    """Values of a graph outside of its arena.

    ``values`` exist when the graph starts, each in a home with its own name. ``pairs`` lists homes with the
    value that each holds at the end of a run; a home that is not the name of a value holds nothing before. If
    the graph ``is_inner``, all its outputs are among these, or are read in place.
    """

    values: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    is_inner: bool = False

    @classmethod
    def of(cls, graph: Graph) -> "Outside":
        return cls(tuple(before for before, _ in graph.states), graph.states)


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One item of the schedule at its position in the order.

    ``scratch`` is the place of its working memory, if it needs any, and ``apart`` the place of its working
    memory in the NPU's part. ``waits`` are the modelled cycles in which the core waits for values and
    scratch.
    """

    item: Item
    kernel: Kernel
    scratch: ArenaSlot | None = None
    apart: ArenaSlot | None = None
    waits: float = 0.0

    @property
    def name(self) -> str:
        return self.item.name

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.item.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.item.outputs


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A graph with its schedule and its memory layout.

    ``slots`` maps every input, output and intermediate value to its place in the arena; constants and values
    within loops have none. ``arena`` is its size in bytes, ``lower_bound`` a size below which no layout of
    this order exists, ``optimal`` is true if ``arena`` is proven to be the smallest for this order.
    ``kept_inputs``: the inputs still hold their data after a run. ``needs`` are the bytes that each step
    alone needs. ``outside`` are values outside of the arena, and ``homes`` maps values to their homes.
    ``states`` are the homes of values that persist between runs, in separate memory of the model.

    ``parts`` are pieces of the arena in other memories, by name: a memory of the board, or ``NPU_PART``. Then
    ``arena``, ``lower_bound`` and ``optimal`` refer to the rest.
    """

    graph: Graph
    steps: tuple[Step, ...]
    slots: Mapping[str, ArenaSlot]
    arena: int
    lower_bound: int
    optimal: bool
    kept_inputs: bool = False
    align: int = 16
    needs: tuple[int, ...] = ()
    states: Mapping[str, ArenaSlot] = field(default_factory=dict)
    outside: Outside = field(default_factory=Outside)
    homes: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, ArenaPart] = field(default_factory=dict)

    @property
    def fed(self) -> tuple[str, ...]:
        return self.graph.inputs if self.steps and self.steps[0].kernel.fed else ()

    @property
    def copied(self) -> tuple[tuple[str, str], ...]:
        """Homes, and the values that are copied there at the end of a run."""
        return tuple((home, name) for home, name in self.outside.pairs if self.homes.get(name) != home)

    @property
    def state_bytes(self) -> int:
        return max((slot.offset + slot.size for slot in self.states.values()), default=0)

    def all_steps(self) -> Iterator[Step]:
        """Yield the steps, each followed by those of the subgraphs that it runs."""
        for step in self.steps:
            yield step
            for plan in step.item.plans if isinstance(step.item, Branch | WhileLoop) else ():
                yield from plan.all_steps()

    def signature(self, step: Step) -> Signature:
        return signature_of(step.item, self.graph)

    def macs(self, step: Step) -> int:
        return macs_of(step.item, self.graph)


def signature_of(item: Item, graph: Graph) -> Signature:
    return Signature(_values(graph, item.inputs), _values(graph, item.outputs))


def macs_of(item: Item, graph: Graph) -> int:
    return sum(node.op.macs(graph.signature(node)) for node in item.nodes)


def _values(graph: Graph, names: Sequence[str]) -> tuple[Value, ...]:
    return tuple(graph.values[name] for name in names)
