"""Values, quantisation, graphs: what is well formed, what is refused, and how it reads."""

from collections.abc import Sequence

import numpy as np
import pytest

from crtgen.base.errors import CorruptModelError
from crtgen.network.ir import DType, Graph, Node, Quant, Value
from crtgen.network.ops import Activation, Add, Relu, Reshape

X = Value("x", (1, 4), DType.FLOAT32)
W = Value.constant("w", np.array([[1, -2, 3, -4]], np.float32))
Y = Value("y", (1, 4), DType.FLOAT32)
Z = Value("z", (2, 2), DType.FLOAT32)

ADD = Node("add", Add(Activation.NONE), ("x", "w"), ("y",))
RESHAPE = Node("reshape", Reshape((2, 2)), ("y",), ("z",))


def graph(
    values: Sequence[Value] = (X, W, Y, Z),
    nodes: Sequence[Node] = (ADD, RESHAPE),
    inputs: Sequence[str] = ("x",),
    outputs: Sequence[str] = ("z",),
) -> Graph:
    return Graph.build("net", values, nodes, inputs, outputs)


def test_evaluate_gives_every_value() -> None:
    env = graph().evaluate({"x": np.array([[10, 20, 30, 40]], np.float32)})
    np.testing.assert_array_equal(env["y"], [[11, 18, 33, 36]])
    np.testing.assert_array_equal(env["z"], [[11, 18], [33, 36]])


def test_the_dump_reads() -> None:
    assert str(graph()).splitlines() == [
        "graph net",
        "  input  %x: 1x4 float32",
        "  %y: 1x4 float32",
        "      = add(%x, const 1x4 float32) activation=none",
        "  %z: 2x2 float32",
        "      = reshape(%y) shape=(2, 2)",
        "  output %z",
    ]


def test_neighbours() -> None:
    net = graph()
    assert net.producer("z") is RESHAPE
    assert net.producer("x") is None
    assert net.consumers("y") == (RESHAPE,)


def test_values_that_nothing_names_are_left_out() -> None:
    spare = Value("spare", (3,), DType.INT8)
    assert "spare" not in graph(values=(X, W, Y, Z, spare)).values


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": (X, X, W, Y, Z)}, "two values are called x"),
        ({"values": (X, W, Y)}, "z"),
        ({"values": (X, W, Y, Value("z", (4, 1), DType.FLOAT32))}, "4x1 float32, but the operator gives 2x2"),
        ({"values": (X, W, Y, Value("z", (2, 2), DType.INT8))}, "2x2 int8"),
        ({"values": (Value("x", (0, 4), DType.FLOAT32), W, Y, Z)}, "x has shape 0x4"),
        ({"nodes": (RESHAPE, ADD)}, "reads y before anything computes it"),
        ({"nodes": (ADD, Node("add", Relu(Activation.RELU), ("y",), ("z",)))}, "two nodes have this name"),
        ({"nodes": (ADD, Node("again", Add(Activation.NONE), ("x", "w"), ("y",)))}, "y a second time"),
        ({"nodes": (ADD,)}, "nothing computes the output z"),
        ({"inputs": ("x", "w")}, "the input w is a constant"),
        ({"inputs": ("x", "x")}, "the inputs of the graph name x more than once"),
        ({"outputs": ("z", "y", "z")}, "the outputs of the graph name z more than once"),
        ({"outputs": ()}, "the graph has no outputs"),
        ({"nodes": (ADD, Node("reshape", Reshape((3, 2)), ("y",), ("z",)))}, "reshape"),
    ],
)
def test_a_malformed_graph_is_refused(change: dict[str, Sequence[Value]], message: str) -> None:
    with pytest.raises(CorruptModelError, match=message):
        graph(**change)  # type: ignore[arg-type]


def test_quantisation_is_of_the_tensor_or_per_axis() -> None:
    tensor = Quant.tensor(0.1, -3)
    assert (tensor.scale, tensor.zero_point) == (float(np.float32(0.1)), -3)
    axis = Quant((0.5, 0.25), (0, 0), axis=3)
    with pytest.raises(ValueError, match="per axis"):
        _ = axis.scale
    with pytest.raises(ValueError, match="2 scales and 1 zero points"):
        Quant((0.5, 0.25), (0,), axis=0)
    with pytest.raises(ValueError, match="without an axis"):
        Quant((0.5, 0.25), (0, 0))


def test_a_constant_cannot_be_changed() -> None:
    value = Value.constant("c", np.arange(6, dtype=np.int16).reshape(2, 3))
    assert (value.shape, value.dtype, value.nbytes) == ((2, 3), DType.INT16, 12)
    with pytest.raises(ValueError, match="read-only"):
        value.array()[0, 0] = 9
    with pytest.raises(ValueError, match="x is not a constant"):
        X.array()
