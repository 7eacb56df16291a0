"""Sorts the nodes of an `.onnx` file into executable order."""

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from crtgen.base.errors import CorruptModelError

__all__ = ["sort_nodes"]

# Nodes of a cycle.
_MOST_NAMED = 8


def sort_nodes(graph: Any, where: str) -> None:
    """Sort nodes so that each follows the nodes whose outputs it or its subgraphs read.

    Otherwise the file's order is kept. Nodes of subgraphs must already be in order, as ONNX Runtime requires.
    Raises ``CorruptModelError`` for a cycle.
    """
    given = _given(graph)
    makers = {
        name: i for i, node in enumerate(graph.node) for name in node.output if name and name not in given
    }
    needs = [{makers[name] for name in _reads(node) if name in makers} for node in graph.node]
    if all(max(before, default=-1) < i for i, before in enumerate(needs)):
        return
    order = _sorted(needs)
    if len(order) < len(needs):
        reason = f"its nodes are computed from one another: {_cycle(graph, needs, set(order))}"
        raise CorruptModelError(reason, where=where, hint="a network has no cycle: export it again")
    ordered = [graph.node[i] for i in order]
    graph.ClearField("node")
    graph.node.extend(ordered)


def _sorted(needs: Sequence[set[int]]) -> list[int]:
    # Kahn's algorithm: of all nodes that are ready, the first in the file comes next.
    users: Mapping[int, list[int]] = {i: [] for i in range(len(needs))}
    for i, before in enumerate(needs):
        for maker in before:
            users[maker].append(i)
    missing = list(map(len, needs))
    ready = [i for i, count in enumerate(missing) if not count]
    heapify(ready)
    order = []
    while ready:
        order.append(heappop(ready))
        for user in users[order[-1]]:
            missing[user] -= 1
            if not missing[user]:
                heappush(ready, user)
    return order


def _cycle(graph: Any, needs: Sequence[set[int]], done: set[int]) -> str:
    # Outputs of the nodes of a cycle: back from a node that cannot be computed until one is met again.
    path = [next(i for i in range(len(needs)) if i not in done)]
    while (before := min(needs[path[-1]] - done)) not in path:
        path.append(before)
    nodes = path[path.index(before) :][::-1]
    names = [repr(next(name for name in graph.node[i].output if name)) for i in nodes[:_MOST_NAMED]]
    return ", ".join((*names, "...") if len(nodes) > _MOST_NAMED else names)


def _graphs(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _given(graph: Any) -> set[Any]:
    # Names that exist before the first node.
    constants = (*(t.name for t in graph.initializer), *(t.values.name for t in graph.sparse_initializer))
    return {*(v.name for v in graph.input), *constants}


def _reads(node: Any) -> set[Any]:
    # The names that a node reads, those that its subgraphs take from around them included.
    names = set(node.input)
    for graph in _graphs(node):
        inside = {name for inner in graph.node for name in inner.output} | _given(graph)
        read = {v.name for v in graph.output}.union(*map(_reads, graph.node))
        names |= read - inside
    return names
