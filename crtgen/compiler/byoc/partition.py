"""Assigns nodes of a graph to external generators, and makes the graph with one node for each subgraph."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from crtgen.base.errors import UnsupportedError, UsageError
from crtgen.compiler.byoc.external import External
from crtgen.compiler.byoc.generator import Generator, Pattern
from crtgen.network.ir import Graph, Node, Value
from crtgen.network.passes import Rewrite

__all__ = ["partition"]


def partition(
    graph: Graph,
    generators: Sequence[Generator],
    *,
    fallback: bool = False,
    on_core: Collection[str] = (),
) -> tuple[Graph, tuple[Rewrite, ...]]:
    """Return the graph with an ``External`` node for each match; matches of the first generator take
    precedence.

    Nodes that are named in ``on_core`` are never matched.

    If no generator takes a node, ``UnsupportedError`` gives every generator's reason, unless ``fallback``
    leaves the node to crtgen's own kernels.
    """
    if not generators:
        return graph, ()
    names = [g.name for g in generators]
    if len(set(names)) != len(names):
        name = max(names, key=names.count)
        raise UsageError(f"the code generator {name} is named twice", hint=f"--codegen {name}:as=OTHER")
    regions = _Regions(graph, generators, on_core)
    for generator in generators:
        generator.prepare(graph)
        for pattern in generator.patterns:
            regions.match(generator, pattern)
        if generator.merges:
            regions.merge(generator)
        regions.release(generator)
    if not fallback:
        _refuse_rest(graph, regions, generators)
    return regions.rewritten()


def _refuse_rest(graph: Graph, regions: "_Regions", generators: Sequence[Generator]) -> None:
    rest = [node for node in graph.nodes if regions.of[node.name].generator is None]
    if rest:
        lines = [f"{node.name} ({node.op.name}): {_reasons(graph, node, generators)}" for node in rest]
        raise UnsupportedError(
            "\n".join(["the code generators do not do every operator", *lines]),
            where=graph.name,
            hint="--fallback leaves the rest to crtgen's own kernels",
        )


def _reasons(graph: Graph, node: Node, generators: Sequence[Generator]) -> str:
    return "; ".join(f"{generator.name}: {_reason(graph, node, generator)}" for generator in generators)


def _reason(graph: Graph, node: Node, generator: Generator) -> str:
    if not any(isinstance(node.op, kind) for pattern in generator.patterns for kind in pattern):
        return f"it has no pattern with {node.op.name}"
    return generator.reason(node.op, graph.signature(node)) or "its surroundings match no pattern"


@dataclass(slots=True, eq=False)
class _Region:
    """Nodes that a generator computes as one subgraph; without a generator, a single node that is kept."""

    generator: Generator | None
    nodes: tuple[Node, ...]


class _Regions:
    def __init__(self, graph: Graph, generators: Sequence[Generator], on_core: Collection[str]) -> None:
        self.graph = graph
        self.on_core = on_core
        self.generators = generators
        self.of = {node.name: _Region(None, (node,)) for node in graph.nodes}
        self.why = dict.fromkeys(on_core, "the tune file leaves it there")

    def match(self, generator: Generator, pattern: Pattern) -> None:
        # Claim every chain of the pattern.
        for node in self.graph.nodes:
            chain = self._chain(generator, pattern, node)
            if chain and not generator.reason_as_a_whole(self._subgraph(chain, generator.name)):
                self._unite(_Region(generator, chain))

    def _chain(self, generator: Generator, pattern: Pattern, node: Node) -> tuple[Node, ...]:
        # The nodes of the pattern from ``node`` on; empty where it does not match.
        chain: list[Node] = []
        for kind in pattern:
            if chain:
                readers = self.graph.consumers(chain[-1].outputs[0])
                if len(readers) != 1 or chain[-1].outputs[0] in self.graph.lasting:
                    return ()
                node = readers[0]
            free = self.of[node.name].generator is None
            if not free or node.name in self.on_core or not isinstance(node.op, kind):
                return ()
            if generator.reason(node.op, self.graph.signature(node)):
                return ()
            chain.append(node)
        return tuple(chain)

    def merge(self, generator: Generator) -> None:
        # Unite regions of the generator where one reads the other, as long as that is allowed.
        producers = {value: node.name for node in self.graph.nodes for value in node.outputs}
        edges = [(producers[v], n.name) for n in self.graph.nodes for v in n.inputs if v in producers]
        while any([self._merged(generator, self.of[a], self.of[b]) for a, b in edges]):
            pass

    def _merged(self, generator: Generator, first: _Region, second: _Region) -> bool:
        if first is second or first.generator is not generator or second.generator is not generator:
            return False
        names = {n.name for region in (first, second) for n in region.nodes}
        nodes = tuple(node for node in self.graph.nodes if node.name in names)
        if generator.reason_as_a_whole(self._subgraph(nodes, generator.name)):
            return False
        self._unite(_Region(generator, nodes))
        if self._order() is not None:
            return True
        for region in (first, second):
            self._unite(region)
        return False

    def release(self, generator: Generator) -> None:
        # Give back the regions that are not worth a call of the generator's code.
        mine = dict.fromkeys(region for region in self.of.values() if region.generator is generator)
        for region in mine:
            if reason := generator.not_worth(self._subgraph(region.nodes, generator.name)):
                for node in region.nodes:
                    self.of[node.name] = _Region(None, (node,))
                    self.why[node.name] = reason

    def _left(self, node: Node) -> list[Rewrite]:
        # Why a node stays with crtgen's own kernels, if a generator that claims layers by a tool says so.
        return [
            Rewrite("partition", node.name, f"{node.op.name} stays on the core: {reason}")
            for generator in self.generators
            if generator.explains
            and (reason := self.why.get(node.name) or _reason(self.graph, node, generator))
        ]

    def _unite(self, region: _Region) -> None:
        for node in region.nodes:
            self.of[node.name] = region

    def _order(self) -> list[_Region] | None:
        # The regions in an order in which they can run, the original one if possible; None in a circle.
        waiting = list(dict.fromkeys(self.of[node.name] for node in self.graph.nodes))
        values = self.graph.values
        defined = {*self.graph.inputs, *(n for n, v in values.items() if v.data is not None)}
        order: list[_Region] = []
        while waiting:
            ready = next((r for r in waiting if defined.issuperset(_read_from_outside(r.nodes))), None)
            if ready is None:
                return None
            waiting.remove(ready)
            order.append(ready)
            defined.update(value for node in ready.nodes for value in node.outputs)
        return order

    def _subgraph(self, nodes: Sequence[Node], name: str) -> Graph:
        values = self.graph.values
        read = _read_from_outside(nodes)
        inside = {node.name for node in nodes}
        made = [value for node in nodes for value in node.outputs]
        outside = {v for node in self.graph.nodes if node.name not in inside for v in node.inputs}
        outputs = [v for v in made if v in outside or v in self.graph.lasting]
        inputs = [v for v in read if not values[v].is_constant]
        inner = [_passing(values[v]) for v in (*read, *made)]
        return Graph.build(name, inner, nodes, inputs, outputs)

    def rewritten(self) -> tuple[Graph, tuple[Rewrite, ...]]:
        # The graph with a node for each region, and what was done.
        nodes: list[Node] = []
        rewrites: list[Rewrite] = []
        for region in self._order() or ():
            if region.generator is None:
                nodes.extend(region.nodes)
                rewrites.extend(self._left(region.nodes[0]))
                continue
            first, last = region.nodes[0].name, region.nodes[-1].name
            name = first if first == last else f"{first} to {last}"
            subgraph = self._subgraph(region.nodes, f"{self.graph.name}: {name}")
            op = External(region.generator, subgraph)
            nodes.append(Node(name, op, subgraph.inputs, subgraph.outputs))
            text = ", ".join(n.op.name for n in region.nodes)
            rewrites.append(Rewrite("partition", name, f"{region.generator.name} computes {text}"))
        graph = self.graph
        rewritten = Graph.build(
            graph.name, list(graph.values.values()), nodes, graph.inputs, graph.outputs, graph.states
        )
        return rewritten, tuple(rewrites)


def _passing(value: Value) -> Value:
    # A value as a subgraph sees it: a state comes in and goes out as any other value.
    return replace(value, is_state=False, data=None) if value.is_state else value


def _read_from_outside(nodes: Sequence[Node]) -> list[str]:
    # The values that the nodes read and do not compute, each once, in the order of reading.
    made = {value for node in nodes for value in node.outputs}
    return list(dict.fromkeys(v for node in nodes for v in node.inputs if v not in made))
