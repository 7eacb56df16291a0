"""Constants, identities, reshapes and dead nodes."""

import numpy as np
import pytest

from crtgen.network.ir import Graph, Quant, Value
from crtgen.network.ops import (
    Case,
    Concat,
    Conv2d,
    Dequantize,
    Pad,
    Quantize,
    Relu,
    Reshape,
    Transpose,
    all_cases,
)
from crtgen.network.ops.binary import Add
from crtgen.network.ops.shape import StridedSlice
from crtgen.network.passes import (
    DEFAULT_PASSES,
    FoldConstants,
    MergeReshapes,
    RemoveDead,
    RemoveIdentities,
    ReshapeTransposes,
)
from tests.network.passes.networks import Network, assert_same_results, constants_of


def names(graph: Graph) -> list[str]:
    return [node.name for node in graph.nodes]


@pytest.mark.parametrize("case", list(all_cases()), ids=lambda case: case.name)
def test_no_pass_changes_the_result_of_an_operator(case: Case) -> None:
    assert_same_results(case.graph(), DEFAULT_PASSES)


@pytest.mark.parametrize("real", [False, True])
def test_constants_are_folded_through_several_nodes(real: bool) -> None:
    net = Network(real)
    x = net.input("x", 1, 6)
    data = np.arange(6, dtype=np.float32 if real else np.int8)
    c = net.add_value(Value.constant("c", data, None if real else Quant.tensor(0.1, 4)))
    r = net.node("r", Reshape((1, 6)), c)
    t = net.node("t", Relu(), r)
    y = net.node("add", Add(), x, t, quant=Quant.tensor(0.3, 1))
    graph, rewrites = assert_same_results(net.graph(y), (FoldConstants(),))
    assert names(graph) == ["add"]
    assert constants_of(graph) == ["t_out"]
    assert [(h.rule, h.node) for h in rewrites] == [("fold constants", "r"), ("fold constants", "t")]


def test_a_dequantised_constant() -> None:
    net = Network(real=True)
    x = net.input("x", 4)
    data = np.array([-128, 0, 5, 127], np.int8)
    c = net.add_value(Value.constant("c", data, Quant.tensor(0.5, -3)))
    d = net.node("dequantize", Dequantize(), c)
    graph, _ = assert_same_results(net.graph(net.node("add", Add(), x, d)), (FoldConstants(),))
    assert graph.values["dequantize_out"].array().tolist() == [-62.5, 1.5, 4.0, 65.0]


def test_a_constant_that_is_an_output_stays_computed() -> None:
    net = Network(real=True)
    x = net.input("x", 4)
    c = net.add_value(Value.constant("c", np.ones(4, np.float32)))
    graph = net.graph(net.node("relu", Relu(), c), net.node("other", Relu(), x))
    after, rewrites = assert_same_results(graph, (FoldConstants(),))
    assert (names(after), rewrites) == (["relu", "other"], ())


def test_dead_nodes_go_back_to_front() -> None:
    net = Network()
    x = net.input("x", 2, 3)
    y = net.node("live", Relu(), x)
    net.node("dead2", Reshape((6,)), net.node("dead1", Relu(), x))
    graph, rewrites = assert_same_results(net.graph(y), (RemoveDead(),))
    assert names(graph) == ["live"]
    assert [h.node for h in rewrites] == ["dead2", "dead1"]


SAME = (
    ("reshape", Reshape((1, 4, 3, 2))),
    ("transpose", Transpose((0, 1, 2, 3))),
    ("pad", Pad((0,) * 4, (0,) * 4)),
    ("quantize", Quantize()),
    ("slice", StridedSlice((0,) * 4, (1, 4, 3, 2), (1,) * 4)),
    ("concat", Concat(1)),
)


@pytest.mark.parametrize(("name", "op"), SAME)
def test_identities_in_the_middle_and_at_the_end(name: str, op: Reshape) -> None:
    net = Network()
    x = net.input("x", 1, 4, 3, 2)
    first = net.node("first", Relu(), x)
    graph, rewrites = assert_same_results(
        net.graph(net.node("last", Relu(), net.node(name, op, first))), (RemoveIdentities(),)
    )
    assert names(graph) == ["first", "last"]
    assert [str(h) for h in rewrites] == [f"remove identities: {name}: {op.name} changes nothing"]
    net.nodes.pop()
    graph, _ = assert_same_results(net.graph(f"{name}_out"), (RemoveIdentities(),))
    assert names(graph) == ["first"]
    assert graph.nodes[0].outputs == (f"{name}_out",)


def test_an_identity_between_input_and_output_stays() -> None:
    net = Network()
    graph, rewrites = assert_same_results(
        net.graph(net.node("reshape", Reshape((6,)), net.input("x", 6))), (RemoveIdentities(),)
    )
    assert (names(graph), rewrites) == (["reshape"], ())


def test_an_identity_between_two_outputs_stays() -> None:
    net = Network()
    first = net.node("first", Relu(), net.input("x", 6))
    graph, _ = assert_same_results(
        net.graph(first, net.node("reshape", Reshape((6,)), first)), (RemoveIdentities(),)
    )
    assert names(graph) == ["first", "reshape"]


@pytest.mark.parametrize(
    ("op", "quant"),
    [
        (Quantize(), Quant.tensor(0.05, -6)),
        (Quantize(), Quant.tensor(0.051, -7)),
        (StridedSlice((0, 3, 0, 0), (1, -1, 3, 2), (1, -1, 1, 1)), None),
        (Transpose((0, 1, 3, 2)), None),
    ],
)
def test_what_is_no_identity_stays(op: Quantize, quant: Quant | None) -> None:
    net = Network()
    x = net.input("x", 1, 4, 2, 2) if isinstance(op, Transpose) else net.input("x", 1, 4, 3, 2)
    graph, rewrites = assert_same_results(
        net.graph(net.node("op", op, net.node("first", Relu(), x), quant=quant)), DEFAULT_PASSES
    )
    assert (names(graph), rewrites) == (["first", "op"], ())


@pytest.mark.parametrize(
    ("shape", "perm", "expected"),
    [
        ((1, 4, 1, 3), (0, 2, 1, 3), "reshape"),
        ((1, 4, 1, 3), (1, 3, 0, 2), "reshape"),
        ((1, 1, 1, 1), (3, 2, 1, 0), "reshape"),
        ((1, 4, 1, 3), (0, 3, 2, 1), "transpose"),
    ],
)
def test_transposes_that_move_nothing(shape: tuple[int, ...], perm: tuple[int, ...], expected: str) -> None:
    net = Network()
    graph, _ = assert_same_results(
        net.graph(net.node("t", Transpose(perm), net.input("x", *shape))), (ReshapeTransposes(),)
    )
    assert [node.op.name for node in graph.nodes] == [expected]


def test_reshapes_are_merged() -> None:
    net = Network()
    x = net.node("first", Relu(), net.input("x", 2, 6))
    a = net.node("a", Reshape((12,)), x)
    b = net.node("b", Reshape((3, 4)), a)
    y = net.node("c", Reshape((4, 3)), b)
    graph, rewrites = assert_same_results(net.graph(y), (MergeReshapes(), RemoveDead()))
    assert names(graph) == ["first", "c"]
    assert graph.nodes[1].inputs == ("first_out",)
    assert [str(h) for h in rewrites[:2]] == [
        "merge reshapes: b: it reads past the reshape to 12",
        "merge reshapes: c: it reads past the reshape to 3x4",
    ]


def test_a_reshape_that_is_read_elsewhere_stays() -> None:
    net = Network()
    a = net.node("a", Reshape((12,)), net.input("x", 2, 6))
    graph, _ = assert_same_results(
        net.graph(net.node("relu", Relu(), a), net.node("b", Reshape((3, 4)), a)),
        (MergeReshapes(), RemoveDead()),
    )
    assert names(graph) == ["a", "relu", "b"]
    assert graph.nodes[2].inputs == ("x",)


def test_there_and_back_is_nothing() -> None:
    net = Network()
    x = net.node("first", Relu(), net.input("x", 1, 4, 1, 3))
    back = net.node("back", Transpose((0, 2, 1, 3)), net.node("there", Transpose((0, 2, 1, 3)), x))
    y = net.layer("conv", Conv2d(), back, (2, 2, 1, 3))
    graph, _ = assert_same_results(net.graph(y), DEFAULT_PASSES)
    assert names(graph) == ["first", "conv"]
