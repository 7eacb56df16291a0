"""What planning takes, in calls: seconds depend on the machine."""

import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Target, select
from crtgen.compiler.plan import loop_over_rows, make_plan, order
from crtgen.network.ops import Add, Conv2d, DepthwiseConv2d, Padding
from crtgen.network.ops.conv import ConvParams
from tests.network.passes.networks import Network

SAME = DepthwiseConv2d((1, 1), Padding(1, 1, 1, 1))


def _count(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[str]:
    """Calls of a function from now on."""
    calls, function = list[str](), getattr(owner, name)

    def counted(*args: object, **kwargs: object) -> object:
        calls.append(name)
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, counted)
    return calls


def test_parameters_of_a_layer_are_found_for_selection_and_for_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve layers on images that loops over rows make smaller: many designs, many numbers of rows."""
    net, layers = Network(), 12
    x = net.input("x", 1, 16, 16, 16)
    for n in range(0, layers, 2):
        x = net.layer(f"l{n}", Conv2d(), x, (16, 1, 1, 16))
        x = net.layer(f"l{n + 1}", SAME, x, (1, 3, 3, 16), 3)
    graph, target = net.graph(x), Target(find_core("cortex-m4"))
    calls = _count(monkeypatch, ConvParams, "of")
    plan = make_plan(graph, select(graph, target))
    loop_over_rows(plan, target)
    assert layers <= len(calls) <= 2 * layers


def test_an_order_asks_once_what_a_layer_may_write_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen branches: hundreds of sets of nodes may have run, and each may go on in many ways."""
    net = Network()
    x = net.input("x", 1, 8, 8, 8)
    first, *others = [net.layer(f"b{n}", Conv2d(), x, (8, 1, 1, 8)) for n in range(16)]
    for n, other in enumerate(others):
        first = net.node(f"sum{n}", Add(), first, other)
    graph = net.graph(first)
    kernels = select(graph, Target())
    calls = _count(monkeypatch, order, "overlap")
    make_plan(graph, kernels)
    assert len(calls) <= 2 * len(graph.nodes)
