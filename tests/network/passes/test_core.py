"""Rules on a draft: in time that grows with the network, and with the result of a change at a time."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from crtgen.network.ir import Graph, Node
from crtgen.network.ops import Add, Relu, Reshape
from crtgen.network.passes.core import Change, GraphLike, Rule
from crtgen.network.passes.fuse import FuseActivations
from crtgen.network.passes.simplify import RemoveDead, RemoveIdentities
from tests.network.passes.networks import Network


def _at_a_time(rule: Rule, graph: Graph) -> Graph:
    """The definition: the first node that matches, again and again, on a graph that is built anew."""
    while True:
        found = ((node, rule.match(graph, node)) for node in graph.nodes)
        change = next((change for _, change in found if change is not None), None)
        if change is None:
            return graph
        nodes = [change.nodes.get(node.name, node) for node in graph.nodes]
        table = {**graph.values, **{value.name: value for value in change.values}}
        name = change.rename
        renamed = [
            replace(
                node,
                inputs=tuple(name.get(each, each) for each in node.inputs),
                outputs=tuple(name.get(each, each) for each in node.outputs),
            )
            for node in nodes
            if node is not None
        ]
        states = [(before, name.get(after, after)) for before, after in graph.states]
        values = list(table.values())
        graph = Graph.build(graph.name, values, renamed, graph.inputs, graph.outputs, states)


def _random(seed: int) -> Graph:
    """Copies, clamps and sums in any order, of which some are read by nothing."""
    random, net = np.random.default_rng(seed), Network(real=True)
    made = [net.input("x", 1, 4)]
    for number in range(40):
        one, other = (made[max(0, len(made) - 1 - int(n))] for n in random.integers(0, 5, 2))
        op = (Reshape((1, 4)), Relu(), Add())[int(random.integers(0, 3))]
        made.append(net.node(f"n{number}", op, *((one, other) if isinstance(op, Add) else (one,))))
    return net.graph(*made[-2:])


@pytest.mark.parametrize("rule", [RemoveIdentities(), RemoveDead(), FuseActivations()])
def test_a_draft_gives_what_a_change_at_a_time_gives(rule: Rule) -> None:
    changed = 0
    for seed in range(40):
        graph = _random(seed)
        made, rewrites = rule.rewrite(graph)
        changed += len(rewrites)
        assert str(made) == str(_at_a_time(rule, graph))
        assert list(made.values) == list(_at_a_time(rule, graph).values)
    assert changed > 20


class _Counting(RemoveDead):
    looks: ClassVar[int] = 0

    def match(self, graph: GraphLike, node: Node) -> Change | None:
        _Counting.looks += 1
        return super().match(graph, node)


def test_a_chain_is_looked_at_a_few_times() -> None:
    """Nodes that are dead one after the other, from the last on, once took as many looks as their square."""
    net = Network(real=True)
    x = dead = net.input("x", 1, 4)
    for number in range(500):
        dead = net.node(f"dead{number}", Relu(), dead)
    graph, rewrites = _Counting().rewrite(net.graph(net.node("y", Relu(), x)))
    assert (len(graph.nodes), len(rewrites)) == (1, 500)
    assert _Counting.looks < 4 * 501
