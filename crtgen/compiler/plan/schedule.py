"""The schedule: a tree of operators, loops over rows of images, and control flow.

A ``Call`` computes one operator. A ``RowLoop`` computes several operators a few rows at a time, so the
tensors between them never exist as a whole. A ``RowStream`` is such a loop of any length, whose image may
come by rows from outside. A ``Branch`` runs one of two schedules; a ``WhileLoop`` repeats one as long as
another one returns true.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from crtgen.compiler.kernels import RowStage
from crtgen.network.ir import Graph, Node, Signature, Value

if TYPE_CHECKING:
    from crtgen.compiler.plan.plan import Plan

__all__ = ["Branch", "Call", "Item", "RowLoop", "RowStream", "Stage", "WhileLoop", "macs_of", "signature_of"]


@dataclass(frozen=True, slots=True)
class Stage:
    """An operator within a loop over rows.

    ``image`` is the input that comes from the stage before. ``layer`` is the node that makes the other
    operand of an addition: it is computed beside it, for the same rows. ``since`` is the number of the stage
    whose output that operand is, of which a ``RowStream`` keeps rows until then.
    """

    node: Node
    image: str
    layer: Node | None = None
    since: int | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """In the order in which they are computed."""
        return (self.node,) if self.layer is None else (self.layer, self.node)

    @property
    def others(self) -> tuple[str, ...]:
        """Inputs beside the image that the loop does not compute itself."""
        if self.since is not None:
            return ()
        inputs = list(self.node.inputs)
        inputs.remove(self.image)
        if self.layer is None:
            return tuple(inputs)
        return (*(name for name in inputs if name not in self.layer.outputs), *self.layer.inputs)

    def described(self, graph: Graph) -> RowStage:
        """The operator and what it is applied to, the image first."""
        inputs = list(self.node.inputs)
        inputs.remove(self.image)
        values = tuple(graph.values[name] for name in (self.image, *inputs))
        shortcut = None if self.layer is None else (self.layer.op, graph.signature(self.layer))
        sig = Signature(values, graph.signature(self.node).outputs)
        return RowStage(self.node.op, sig, shortcut, self.since)


@dataclass(frozen=True)
class Call:
    """One operator."""

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
        """The values that it reads, constants included."""
        return self.node.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.node.outputs


@dataclass(frozen=True)
class RowLoop:
    """Stages one after the other, of which the last makes ``rows`` rows of its output at a time."""

    stages: tuple[Stage, ...]
    rows: int

    @cached_property
    def name(self) -> str:
        """The names of its operators."""
        return "+".join(node.name for node in self.nodes)

    @property
    def operator(self) -> str:
        return "row_loop"

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """In the order in which the first rows are computed."""
        return tuple(node for stage in self.stages for node in stage.nodes)

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The first stage's image, then what each stage reads beside its image."""
        return (self.stages[0].image, *(name for stage in self.stages for name in stage.others))

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.stages[-1].node.outputs

    @property
    def inner(self) -> tuple[str, ...]:
        """The values that never exist as a whole."""
        between = [stage.image for stage in self.stages[1:]]
        return (*between, *(stage.layer.outputs[0] for stage in self.stages if stage.layer is not None))


@dataclass(frozen=True)
class RowStream(RowLoop):
    """Stages that take rows of their image one after the other.

    If it is ``fed``, that is the model's input, which comes a few rows at a time and is never whole. The last
    stage may add up all rows; then ``rows`` are those of the stage before.
    """

    fed: bool

    @property
    def operator(self) -> str:
        return "row_stream"


@dataclass(frozen=True)
class Branch(Call):
    """A choice between two schedules, which are plans within the scratch memory of the item."""

    then: "Plan"
    otherwise: "Plan"

    @property
    def plans(self) -> "tuple[Plan, ...]":
        return self.then, self.otherwise


@dataclass(frozen=True)
class WhileLoop(Call):
    """A schedule that runs again and again, as long as what another one computes is true."""

    condition: "Plan"
    body: "Plan"

    @property
    def plans(self) -> "tuple[Plan, ...]":
        return self.condition, self.body


Item: TypeAlias = Call | RowLoop
"""A ``Branch`` and a ``WhileLoop`` are calls of their nodes' operators."""


def signature_of(item: Item, graph: Graph) -> Signature:
    """The values that an item reads and writes."""
    return Signature(_values(graph, item.inputs), _values(graph, item.outputs))


def macs_of(item: Item, graph: Graph) -> int:
    """Multiplications of inputs with weights."""
    return sum(node.op.macs(graph.signature(node)) for node in item.nodes)


def _values(graph: Graph, names: Sequence[str]) -> tuple[Value, ...]:
    return tuple(graph.values[name] for name in names)
