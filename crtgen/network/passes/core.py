"""The interface of passes: a frozen dataclass of options maps a graph to a graph, with a note for every
rewrite.

A ``Rule`` looks at one node and its neighbours. Rebuilding the graph for each match would take time quadratic
in the number of layers. So a rule works on a draft, in which a change only costs the nodes that it touches:

1. All nodes are in a queue, in the order of the graph.
2. The first node is taken out. If the rule matches there, the draft is changed, and the nodes that make or
   read a changed value go back into the queue.
3. Once the queue is empty, every node is looked at again, in case a rule sees further than its neighbours. If
   there is a match, the queue starts with those nodes.

The graph is built and verified once, at the end.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import ClassVar, Protocol

from crtgen.base import budget
from crtgen.network.ir import Graph, Node, Signature, Value
from crtgen.network.ops.control import ControlFlow

__all__ = ["Change", "GraphLike", "Pass", "Rewrite", "Rule", "bypass", "run_passes"]


class GraphLike(Protocol):
    @property
    def lasting(self) -> tuple[str, ...]: ...

    def signature(self, node: Node) -> Signature: ...

    def producer(self, value: str) -> Node | None: ...

    def consumers(self, value: str) -> tuple[Node, ...]: ...


@dataclass(frozen=True, slots=True)
class Rewrite:
    rule: str
    node: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.node}: {self.text}"


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A rewrite of one place in a graph.

    ``nodes`` maps a node's name to its replacement, or to None if it is removed. ``rename`` is then applied
    to all names that the remaining nodes use. ``values`` are new, or replace those of the same name.
    """

    text: str
    nodes: Mapping[str, Node | None] = field(default_factory=dict)
    rename: Mapping[str, str] = field(default_factory=dict)
    values: tuple[Value, ...] = ()


class _Draft:
    """A graph in the course of a rule's changes. Each node keeps its place in the order."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._values = dict(graph.values)
        self._states = list(graph.states)
        self.nodes: list[Node | None] = list(graph.nodes)
        self._places = {node.name: place for place, node in enumerate(graph.nodes)}
        self._makers: dict[str, int] = {}
        self._readers: dict[str, set[int]] = {}
        for place, node in enumerate(graph.nodes):
            self._attach(place, node)

    @property
    def lasting(self) -> tuple[str, ...]:
        return (*self._graph.outputs, *(after for _, after in self._states))

    def signature(self, node: Node) -> Signature:
        values = self._values
        return Signature(tuple(values[n] for n in node.inputs), tuple(values[n] for n in node.outputs))

    def producer(self, value: str) -> Node | None:
        return self.nodes[self._makers[value]] if value in self._makers else None

    def consumers(self, value: str) -> tuple[Node, ...]:
        found = (self.nodes[place] for place in sorted(self._readers.get(value, ())))
        return tuple(node for node in found if node is not None)

    def apply(self, change: Change) -> set[int]:
        touched = {*change.rename, *change.rename.values(), *(value.name for value in change.values)}
        self._values.update({value.name: value for value in change.values})
        for name, node in change.nodes.items():
            place = self._places.get(name)
            if place is not None:
                touched |= self._put(place, node)
        for place in {p for name in change.rename for p in self._users(name)}:
            node = self.nodes[place]
            if node is not None:
                touched |= self._put(place, _renamed(node, change.rename))
        self._states = [(before, change.rename.get(after, after)) for before, after in self._states]
        kept = {*self._graph.inputs, *self.lasting, *(before for before, _ in self._states)}
        for name in touched:
            if name not in kept and not self._users(name):
                self._values.pop(name, None)
        return {place for name in touched for place in self._users(name)}

    def graph(self) -> Graph:
        nodes = [node for node in self.nodes if node is not None]
        old = self._graph
        return Graph.build(
            old.name, list(self._values.values()), nodes, old.inputs, old.outputs, self._states
        )

    def _put(self, place: int, node: Node | None) -> set[str]:
        # Replace a node. Returns the names that the old or the new one uses.
        old = self.nodes[place]
        assert old is not None
        del self._places[old.name]
        for name in old.inputs:
            self._readers[name].discard(place)
        for name in old.outputs:
            if self._makers.get(name) == place:  # not if the change gave the value to another node
                del self._makers[name]
        self.nodes[place] = node
        names = {*old.inputs, *old.outputs}
        if node is not None:
            self._places[node.name] = place
            self._attach(place, node)
            names |= {*node.inputs, *node.outputs}
        return names

    def _attach(self, place: int, node: Node) -> None:
        for name in node.inputs:
            self._readers.setdefault(name, set()).add(place)
        for name in node.outputs:
            self._makers[name] = place

    def _users(self, name: str) -> set[int]:
        made = {self._makers[name]} if name in self._makers else set()
        return made | self._readers.get(name, set())


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    inputs = tuple(names.get(name, name) for name in node.inputs)
    outputs = tuple(names.get(name, name) for name in node.outputs)
    return replace(node, inputs=inputs, outputs=outputs)


class Pass(ABC):
    """A pass: takes a graph and returns an equivalent one. Subclasses are frozen dataclasses, whose fields
    are options.
    """

    __slots__ = ()

    name: ClassVar[str]

    @abstractmethod
    def rewrite(self, graph: Graph) -> tuple[Graph, tuple[Rewrite, ...]]: ...

    def run(self, graph: Graph) -> Graph:
        return self.rewrite(graph)[0]


class Rule(Pass):
    """A pass that is applied wherever it matches, until it no longer matches anywhere."""

    __slots__ = ()

    @abstractmethod
    def match(self, graph: GraphLike, node: Node) -> Change | None: ...

    def rewrite(self, graph: Graph) -> tuple[Graph, tuple[Rewrite, ...]]:
        draft, rewrites = _Draft(graph), list[Rewrite]()
        queue = list(range(len(draft.nodes)))
        while queue:
            waiting = set(queue)
            while queue:
                place = heappop(queue)
                waiting.discard(place)
                node = draft.nodes[place]
                change = None if node is None else self.match(draft, node)
                if node is None or change is None:
                    continue
                budget.current().check()
                rewrites.append(Rewrite(self.name, node.name, change.text))
                for again in draft.apply(change) - waiting:
                    heappush(queue, again)
                    waiting.add(again)
            queue = [p for p, n in enumerate(draft.nodes) if n is not None and self.match(draft, n)]
            heapify(queue)
        return (draft.graph(), tuple(rewrites)) if rewrites else (graph, ())


def run_passes(graph: Graph, passes: Iterable[Pass]) -> tuple[Graph, tuple[Rewrite, ...]]:
    """Run passes one after another, first in subgraphs; each pass verifies its graph."""
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


def bypass(graph: GraphLike, node: Node, text: str) -> Change | None:
    """Remove a node whose output equals its first input.

    Interface names are kept: an output passes its name to the node's input. If that input belongs to the
    interface, too, the node is kept.
    """
    before, after = node.inputs[0], node.outputs[0]
    if after not in graph.lasting:
        return Change(text, {node.name: None}, {after: before})
    if graph.producer(before) is None or before in graph.lasting:
        return None
    return Change(text, {node.name: None}, {before: after})
