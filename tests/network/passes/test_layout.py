"""Transposes that move behind what follows them, and are gone where another one undoes them."""

import numpy as np
import pytest

from crtgen.network.ir import Graph, Op, Quant, Value
from crtgen.network.ops import (
    Add,
    Concat,
    Conv2d,
    FullyConnected,
    Mean,
    Pad,
    Relu,
    Reshape,
    Softmax,
    Transpose,
)
from crtgen.network.ops.arithmetic import Div
from crtgen.network.ops.function import Abs
from crtgen.network.ops.matmul import BatchMatMul
from crtgen.network.ops.reduce import ArgMax, ReduceMax, Sum
from crtgen.network.ops.shape import StridedSlice
from crtgen.network.passes import DEFAULT_PASSES, MoveTransposes, RemoveDead, RemoveIdentities, TurnOperands
from tests.network.passes.networks import Network, assert_same_results

LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def transposes(graph: Graph) -> list[tuple[int, ...]]:
    return [node.op.perm for node in graph.nodes if isinstance(node.op, Transpose)]


def between(*ops: Op, real: bool = True) -> Graph:
    """Operators of channels first between two convolutions of channels last."""
    net = Network(real)
    x = net.input("x", 1, 6, 5, 4)
    y = net.layer("conv1", Conv2d(), x, (8, 1, 1, 4))
    y = net.node("first", Transpose(FIRST), y)
    for number, op in enumerate(ops):
        y = net.node(f"op{number}", op, y)
    y = net.node("last", Transpose(LAST), y)
    depth = net.values[y].shape[3]
    return net.graph(net.layer("conv2", Conv2d(), y, (3, 1, 1, depth)))


@pytest.mark.parametrize("real", [True, False])
@pytest.mark.parametrize(
    "op",
    [
        Relu(),
        Pad((0, 0, 1, 2), (0, 0, 3, 0)),
        StridedSlice((0, 2, 1, 0), (1, 8, 6, 5), (1, 2, 1, 3)),
        Mean((2, 3), True),
        Concat(1),
    ],
    ids=lambda op: op.name,
)
def test_a_transpose_meets_its_inverse_behind_an_operator(op: Op, real: bool) -> None:
    graph, rewrites = assert_same_results(between(op, real=real), (MoveTransposes(), RemoveIdentities()))
    assert transposes(graph) == []
    assert [rewrite.node for rewrite in rewrites if rewrite.rule == "move transposes"] == ["op0", "last"]


def test_several_operators_are_passed_in_one_go() -> None:
    ops = (Relu(), Abs(), Pad((0, 0, 1, 1), (0, 0, 1, 1)), Relu())
    graph, _ = assert_same_results(between(*ops), (MoveTransposes(), RemoveIdentities()))
    assert transposes(graph) == []


def test_both_ways_of_a_sum_and_constants_turn_with_it() -> None:
    net = Network(real=True)
    x = net.input("x", 1, 6, 5, 4)
    a, b = (net.node(n, Transpose(FIRST), net.layer(f"c{n}", Conv2d(), x, (4, 1, 1, 4))) for n in "ab")
    total = net.node("sum", Add(), a, b)
    scale = net.add_value(Value.constant("c", np.arange(4, dtype=np.float32).reshape(4, 1, 1)))
    y = net.node("last", Transpose(LAST), net.node("plus", Add(), total, scale))
    graph, _ = assert_same_results(
        net.graph(net.node("end", Abs(), y)), (MoveTransposes(), RemoveIdentities())
    )
    assert transposes(graph) == []
    assert graph.values["c_moved"].shape == (1, 1, 1, 4)


def test_weights_behind_a_flattened_image_change_their_order() -> None:
    net = Network(real=True)
    x = net.input("x", 2, 3, 5, 4)
    y = net.node("first", Transpose(FIRST), net.layer("conv", Conv2d(), x, (4, 1, 1, 4)))
    rows = net.node("rows", Reshape((2, 60)), net.node("relu", Relu(), y))
    graph, _ = assert_same_results(
        net.graph(net.layer("dense", FullyConnected(), rows, (7, 60))), DEFAULT_PASSES
    )
    assert transposes(graph) == []


def test_reductions_that_drop_axes_leave_the_rest_in_order() -> None:
    net = Network(real=True)
    y = net.node("first", Transpose((2, 0, 3, 1)), net.input("x", 2, 3, 5, 4))
    graph, _ = assert_same_results(net.graph(net.node("sum", Sum((0, 2)), y)), (MoveTransposes(),))
    assert [node.op for node in graph.nodes] == [Sum((2, 3))]


def test_a_transposed_value_and_a_number_that_was_made_of_it() -> None:
    net = Network(real=True)
    y = net.node("first", Transpose(FIRST), net.input("x", 1, 3, 5, 4))
    most = net.node("most", ReduceMax((0, 1, 2, 3)), y)
    shares = net.node("div", Div(), y, most)
    graph, _ = assert_same_results(net.graph(net.node("back", Transpose(LAST), shares)), DEFAULT_PASSES)
    assert [type(node.op) for node in graph.nodes] == [ReduceMax, Reshape, Div]


def test_the_place_of_the_greatest() -> None:
    net = Network(real=True)
    y = net.node("first", Transpose(FIRST), net.input("x", 1, 3, 5, 4))
    graph, _ = assert_same_results(net.graph(net.node("arg", ArgMax(1), y)), DEFAULT_PASSES)
    assert [node.op for node in graph.nodes] == [ArgMax(3)]


def test_what_cannot_be_passed_keeps_the_transpose() -> None:
    net = Network(real=True)
    y = net.node("first", Transpose(FIRST), net.input("x", 1, 3, 5, 4))
    graph = net.graph(net.node("softmax", Softmax(), y))
    after, rewrites = assert_same_results(graph, (MoveTransposes(), RemoveDead()))
    assert (after, rewrites) == (graph, ())


def test_an_operand_that_is_not_transposed_keeps_the_transpose() -> None:
    net = Network(real=True)
    y = net.node("first", Transpose(FIRST), net.input("x", 1, 3, 5, 4))
    graph = net.graph(net.node("sum", Add(), y, net.input("z", 1, 4, 3, 5)))
    after, rewrites = assert_same_results(graph, (MoveTransposes(),))
    assert (after, rewrites) == (graph, ())


def test_a_network_stays_where_nothing_is_gained() -> None:
    net = Network(real=True)
    y = net.node("first", Transpose(FIRST), net.input("x", 1, 3, 5, 4))
    graph = net.graph(net.node("relu", Relu(), y), net.node("flat", Reshape((60,)), y))
    after, rewrites = assert_same_results(graph, (MoveTransposes(),))
    assert (after, rewrites) == (graph, ())


@pytest.mark.parametrize("real", [True, False])
def test_transposes_move_behind_reshapes_that_add_and_remove_axes_of_one(real: bool) -> None:
    """One-dimensional convolutions of PyTorch: channels first, without the axis that a picture has."""
    net = Network(real)
    y = net.layer("conv1", Conv2d(), net.input("x", 1, 1, 9, 4), (6, 1, 1, 4))
    y = net.node("squeeze", Reshape((1, 6, 9)), net.node("first", Transpose(FIRST), y))
    y = net.node("pad", Pad((0, 0, 2), (0, 0, 0)), y)
    y = net.node("last", Transpose(LAST), net.node("unsqueeze", Reshape((1, 6, 1, 11)), y))
    graph, _ = assert_same_results(
        net.graph(net.layer("conv2", Conv2d(), y, (3, 1, 3, 6))), (MoveTransposes(), RemoveIdentities())
    )
    signatures = [(n.op, graph.signature(n)) for n in graph.nodes if isinstance(n.op, Transpose)]
    assert all(op.is_identity(sig) for op, sig in signatures if isinstance(op, Transpose))


def test_transposes_stay_before_reshapes_that_merge_axes() -> None:
    net = Network(real=True)
    y = net.node(
        "first", Transpose(FIRST), net.layer("conv", Conv2d(), net.input("x", 1, 4, 5, 6), (3, 1, 1, 6))
    )
    y = net.node("merge", Reshape((1, 3, 20)), y)
    graph, _ = assert_same_results(net.graph(net.node("end", Abs(), y)), (MoveTransposes(),))
    assert transposes(graph) == [FIRST]


@pytest.mark.parametrize("real", [True, False])
@pytest.mark.parametrize(
    ("first", "second", "left", "adjoint"),
    [
        ((0, 2, 1, 3), (0, 2, 3, 1), [(0, 2, 1, 3), (0, 2, 1, 3)], (False, True)),  # keys of heads
        ((0, 1, 3, 2), (0, 1, 2, 3), [], (True, False)),
        ((0, 1, 2, 3), (0, 1, 3, 2), [], (False, True)),
        ((0, 2, 3, 1), (0, 1, 2, 3), [(0, 2, 3, 1)], (False, False)),
    ],
)
def test_products_of_matrices_exchange_axes_themselves(
    first: tuple[int, ...],
    second: tuple[int, ...],
    left: list[tuple[int, ...]],
    adjoint: tuple[bool, bool],
    real: bool,
) -> None:
    net, depth = Network(real), 5
    a, b = np.zeros((2, 3, 4, depth)).transpose(np.argsort(first)), np.zeros((2, 3, depth, 6))
    x = net.node("first", Transpose(first), net.input("a", *a.shape))
    y = net.node("second", Transpose(second), net.input("b", *b.transpose(np.argsort(second)).shape))
    product = net.graph(net.node("product", BatchMatMul(), x, y, quant=Quant.tensor(0.1, 2)))
    graph, _ = assert_same_results(product, (TurnOperands(), RemoveIdentities()))
    (op,) = (node.op for node in graph.nodes if isinstance(node.op, BatchMatMul))
    assert (transposes(graph), (op.adj_x, op.adj_y)) == (left, adjoint)


def test_a_transpose_that_others_read_stays() -> None:
    net = Network()
    x, y = net.input("a", 2, 4, 5), net.input("b", 2, 6, 5)
    turned = net.node("turned", Transpose((0, 2, 1)), y)
    product = net.node("product", BatchMatMul(), x, turned, quant=Quant.tensor(0.1, 2))
    graph = net.graph(product, net.node("other", Abs(), turned))
    assert TurnOperands().run(graph) is graph or transposes(TurnOperands().run(graph)) == [(0, 2, 1)]
