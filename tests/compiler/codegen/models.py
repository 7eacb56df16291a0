"""Small planned networks for the tests of code generation."""

import numpy as np

from crtgen.compiler.kernels import Target, select
from crtgen.compiler.plan import Plan, make_plan
from crtgen.network.ir import DType, Graph, Node, Quant, Value
from crtgen.network.ops import Activation, FullyConnected, Logistic, Reshape

X = Quant.tensor(0.05, 3)
H = Quant.tensor(0.1, -128)
Y = Quant.tensor(1 / 256, -128)


def two_layers(name: str = "net", layer: str = "dense", keep_inputs: bool = False) -> Plan:
    """2x3x2 int8 -> reshape -> 12 -> fully connected, relu -> 5 -> again -> 5 -> logistic."""
    return make_plan(
        two_layer_graph(name, layer), select(two_layer_graph(name, layer), Target()), keep_inputs=keep_inputs
    )


def two_layer_graph(name: str, layer: str) -> Graph:
    """The same, not yet planned."""
    random = np.random.default_rng(3)
    values = [Value("x", (1, 2, 3, 2), DType.INT8, X), Value("flat", (1, 12), DType.INT8, X)]
    values += [
        Value("h0", (1, 5), DType.INT8, H),
        Value("h1", (1, 5), DType.INT8, H),
        Value("y", (1, 5), DType.INT8, Y),
    ]
    nodes = [Node("reshape", Reshape((1, 12)), ("x",), ("flat",))]
    for i, (source, depth) in enumerate((("flat", 12), ("h0", 5))):
        weights = random.integers(-127, 128, (5, depth), np.int8)
        values += [
            Value.constant(f"w{i}", weights, Quant.tensor(0.02)),
            Value.constant(f"b{i}", np.arange(5, dtype=np.int32)),
        ]
        nodes += [
            Node(f"{layer}{i}", FullyConnected(Activation.RELU), (source, f"w{i}", f"b{i}"), (f"h{i}",))
        ]
    nodes += [Node("logistic", Logistic(), ("h1",), ("y",))]
    return Graph.build(name, values, nodes, ["x"], ["y"])
