"""The product of planning: which layer runs when, with which kernel, and where everything lies."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from crtgen.compiler.kernels.engine.kernel import Kernel
from crtgen.compiler.plan.homes import Outside
from crtgen.compiler.plan.schedule import Branch, Item, WhileLoop, macs_of, signature_of
from crtgen.compiler.plan.slot import ArenaSlot
from crtgen.network.ir import Graph, Signature

__all__ = ["Plan", "Step"]


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One item of the schedule at its place in the order.

    ``scratch`` is where its working memory lies, if it needs any.
    """

    item: Item
    kernel: Kernel
    scratch: ArenaSlot | None = None

    @property
    def name(self) -> str:
        return self.item.name

    @property
    def inputs(self) -> tuple[str, ...]:
        """The values that it reads, constants included."""
        return self.item.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.item.outputs


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A graph with its schedule and its memory decided.

    ``slots`` gives every input, output and intermediate value its place in the arena; constants have none,
    nor have values within loops. ``arena`` is the arena's bytes, ``lower_bound`` the bytes below which no
    layout of this order can go, ``optimal`` whether ``arena`` is proven to be the least for this order.
    ``kept_inputs`` says that the inputs still hold their data after a run; otherwise a run may overwrite
    them. ``needs`` are the bytes that each step alone asks for. ``outside`` is what lies outside of the
    arena, and ``homes`` has the home there of each value that has one. ``states`` are the homes of what
    lives from run to run, in memory of the model's own.
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

    @property
    def fed(self) -> tuple[str, ...]:
        """The input that comes by rows, if it does."""
        return self.graph.inputs if self.steps and self.steps[0].kernel.fed else ()

    @property
    def copied(self) -> tuple[tuple[str, str], ...]:
        """Homes, and the values that are copied there when a run is over."""
        return tuple((home, name) for home, name in self.outside.pairs if self.homes.get(name) != home)

    @property
    def state_bytes(self) -> int:
        """Bytes of all states."""
        return max((slot.offset + slot.size for slot in self.states.values()), default=0)

    def all_steps(self) -> Iterator[Step]:
        """The steps, each followed by those of the subgraphs that it runs."""
        for step in self.steps:
            yield step
            for plan in step.item.plans if isinstance(step.item, Branch | WhileLoop) else ():
                yield from plan.all_steps()

    def signature(self, step: Step) -> Signature:
        """The values that a step reads and writes."""
        return signature_of(step.item, self.graph)

    def macs(self, step: Step) -> int:
        """Multiplications of inputs with weights."""
        return macs_of(step.item, self.graph)
