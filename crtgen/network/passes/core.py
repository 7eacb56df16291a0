"""The interface of passes: options in, graph in, graph out, and a note for every rewrite."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from crtgen.base import budget
from crtgen.network.ir import Graph, Node, Value
from crtgen.network.ops.control import ControlFlow

__all__ = ["Change", "Pass", "Rewrite", "Rule", "bypass", "run_passes"]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A rewrite: its pass, its node, and what it did."""

    rule: str
    node: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.node}: {self.text}"


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A rewrite of one place of a graph.

    ``nodes`` maps a node's name to its replacement, or to None if it is removed. ``rename`` is then applied
    to all names that the remaining nodes use. ``values`` are new, or replace those of the same name.
    """

    text: str
    nodes: Mapping[str, Node | None] = field(default_factory=dict)
    rename: Mapping[str, str] = field(default_factory=dict)
    values: tuple[Value, ...] = ()

    def apply(self, graph: Graph) -> Graph:
        """Return the rewritten graph, verified."""
        nodes = [self.nodes.get(node.name, node) for node in graph.nodes]
        table = {**graph.values, **{value.name: value for value in self.values}}
        renamed = [self._renamed(node) for node in nodes if node is not None]
        states = [(before, self.rename.get(after, after)) for before, after in graph.states]
        return Graph.build(graph.name, list(table.values()), renamed, graph.inputs, graph.outputs, states)

    def _renamed(self, node: Node) -> Node:
        inputs = tuple(self.rename.get(name, name) for name in node.inputs)
        outputs = tuple(self.rename.get(name, name) for name in node.outputs)
        return replace(node, inputs=inputs, outputs=outputs)


class Pass(ABC):
    """Graph in, equal graph out. The subclass is a frozen dataclass: fields are options."""

    __slots__ = ()

    name: ClassVar[str]

    @abstractmethod
    def rewrite(self, graph: Graph) -> tuple[Graph, tuple[Rewrite, ...]]:
        """The rewritten graph, and a note for each rewrite."""

    def run(self, graph: Graph) -> Graph:
        return self.rewrite(graph)[0]


class Rule(Pass):
    """A pass that is applied wherever it matches, until it matches nowhere."""

    __slots__ = ()

    @abstractmethod
    def match(self, graph: Graph, node: Node) -> Change | None:
        """Return the rewrite at ``node``, or None."""

    def rewrite(self, graph: Graph) -> tuple[Graph, tuple[Rewrite, ...]]:
        """The graph without any place where the rule matches."""
        rewrites: list[Rewrite] = []
        while True:
            budget.current().check()
            found = ((node, self.match(graph, node)) for node in graph.nodes)
            node, change = next(((n, c) for n, c in found if c is not None), (None, None))
            if node is None or change is None:
                return graph, tuple(rewrites)
            graph = change.apply(graph)
            rewrites.append(Rewrite(self.name, node.name, change.text))


def run_passes(graph: Graph, passes: Iterable[Pass]) -> tuple[Graph, tuple[Rewrite, ...]]:
    """Run passes one after another, in subgraphs first; the graph is verified after every rewrite."""
    passes = tuple(passes)
    rewrites: list[Rewrite] = []
    if any(isinstance(node.op, ControlFlow) for node in graph.nodes):
        nodes = [_rewritten_inside(node, passes, rewrites) for node in graph.nodes]
        values = list(graph.values.values())
        graph = Graph.build(graph.name, values, nodes, graph.inputs, graph.outputs, graph.states)
    for rule in passes:
        graph, found = rule.rewrite(graph)
        rewrites.extend(found)
    return graph, tuple(rewrites)


def _rewritten_inside(node: Node, passes: Sequence[Pass], rewrites: list[Rewrite]) -> Node:
    # The node with its subgraphs rewritten.
    if not isinstance(node.op, ControlFlow):
        return node
    graphs = []
    for graph in node.op.graphs:
        inner, found = run_passes(graph, passes)
        graphs.append(inner)
        rewrites.extend(found)
    return replace(node, op=node.op.with_graphs(graphs))


def bypass(graph: Graph, node: Node, text: str) -> Change | None:
    """Remove a node whose output equals its first input.

    Names of the interface stay: an output passes its name to the node's input. If that input belongs to the
    interface, too, the node stays.
    """
    before, after = node.inputs[0], node.outputs[0]
    if after not in graph.lasting:
        return Change(text, {node.name: None}, {after: before})
    if graph.producer(before) is None or before in graph.lasting:
        return None
    return Change(text, {node.name: None}, {before: after})
