"""Whole networks of ONNX: what is left of their layout, and their outputs as generated C on the host."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.shape_inference
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from crtgen.network.frontends import load_onnx
from crtgen.network.ir import Graph
from crtgen.network.ops import Mul, Transpose
from crtgen.network.passes import DEFAULT_PASSES, run_passes
from tests.compiler.kernels.program import Run, run_on_host


class Net:
    """Adds node after node to a model of one input ``x``."""

    def __init__(self, *shape: int) -> None:
        self.random = np.random.default_rng(3)
        self.shape = shape
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.last = "x"

    def weights(self, *shape: int, low: float = -0.5, high: float = 0.5) -> str:
        name = f"w{len(self.constants)}"
        data = self.random.uniform(low, high, shape).astype(np.float32)
        self.constants.append(numpy_helper.from_array(data, name))
        return name

    def add(self, op: str, *others: str, x: str = "", **attributes: Any) -> str:
        output = f"{op.lower()}{len(self.nodes)}"
        node = helper.make_node(op, [x or self.last, *others], [output], name=output, **attributes)
        self.nodes.append(node)
        self.last = output
        return output

    def conv(self, outputs: int, inputs: int, size: int, **attributes: Any) -> str:
        weights = self.weights(outputs, inputs, size, size)
        return self.add("Conv", weights, self.weights(outputs), **attributes)

    def integers(self, *numbers: int) -> str:
        """A constant of whole numbers."""
        name = f"i{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(numbers, np.int64), name))
        return name

    def split(self, parts: int, axis: int) -> list[str]:
        """The last tensor in parts of equal lengths; the last of them is the last tensor then."""
        names = [f"part{len(self.nodes)}_{n}" for n in range(parts)]
        self.nodes.append(helper.make_node("Split", [self.last], names, name=names[0], axis=axis))
        self.last = names[-1]
        return names

    def norm(self, channels: int) -> str:
        positive = self.weights(channels, low=0.5, high=2.0)
        return self.add(
            "BatchNormalization",
            self.weights(channels),
            self.weights(channels),
            self.weights(channels),
            positive,
        )

    def model(self) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)
        y = helper.make_tensor_value_info(self.last, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "net", [x], [y], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        return onnx.shape_inference.infer_shapes(model)


def test_layers_have_the_names_of_their_nodes() -> None:
    """Of a node that is several operators the product or the window has it, with transposes around."""
    graph = load_onnx(branches().model().SerializeToString())
    weighted = ("conv2d", "max_pool2d", "average_pool2d", "fully_connected")
    assert [node.name for node in graph.nodes if node.op.name in weighted] == [
        "conv0",
        "maxpool1",
        "conv2",
        "conv3",
        "conv3_1",
        "averagepool6",
        "matmul8",
    ]
    assert {node.op.name for node in graph.nodes if node.name.startswith("conv0_")} == {"transpose"}
    assert graph.outputs == ("matmul8",)


def residual() -> Net:
    """A convolution, a residual block with depthwise layers, a global mean, and a dense layer."""
    net = Net(1, 3, 12, 10)
    net.conv(8, 3, 3, strides=[2, 2], pads=[1, 1, 1, 1])
    net.norm(8)
    start = net.add("Relu")
    net.conv(8, 1, 3, group=8, auto_pad="SAME_UPPER")
    net.add("HardSwish")
    net.conv(8, 8, 1)
    net.norm(8)
    net.add("Add", start)
    net.add("Relu")
    net.add("GlobalAveragePool")
    net.add("Flatten")
    net.add("Gemm", net.weights(5, 8), net.weights(5), transB=1)
    net.add("Softmax", axis=-1)
    return net


def branches() -> Net:
    """Poolings, branches that are put together, an image flattened before a dense layer."""
    net = Net(1, 2, 9, 9)
    net.conv(6, 2, 3)
    start = net.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    left = net.conv(4, 6, 3, pads=[1, 1, 1, 1], group=1)
    net.last = start
    net.conv(4, 3, 1, group=2)
    net.add("LeakyRelu", alpha=0.1)
    net.add("Concat", left, axis=1)
    net.add("AveragePool", kernel_shape=[2, 2], pads=[1, 0, 0, 1], count_include_pad=1)
    net.add("Flatten")
    net.add("MatMul", net.weights(8 * 4 * 4, 3))
    return net


def transposed() -> Net:
    """An image made larger in two ways."""
    net = Net(1, 3, 4, 5)
    net.add(
        "ConvTranspose", net.weights(3, 4, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 0]
    )
    net.norm(4)
    net.add("Tanh")
    net.add("ConvTranspose", net.weights(4, 2, 2, 3), net.weights(2), strides=[2, 1])
    return net


def transposes(graph: Graph) -> int:
    found = (n for n in graph.nodes if isinstance(n.op, Transpose))
    return sum(not n.op.is_identity(graph.signature(n)) for n in found)


@pytest.mark.cc
@pytest.mark.parametrize(("build", "left"), [(residual, 1), (branches, 1), (transposed, 4)])
def test_a_network_of_images(tmp_path: Path, build: Any, left: int) -> None:
    model = build().model()
    graph, _ = run_passes(load_onnx(model.SerializeToString()), DEFAULT_PASSES)
    assert transposes(graph) == left  # at both ends, and of pixels of blocks to their places
    shape = graph.values["x"].shape
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    (computed,) = iter(ReferenceEvaluator(model).run(None, {"x": x}))
    expected = np.asarray(computed, np.float32)
    (printed,) = run_on_host(tmp_path, [Run("net", graph, {"x": x})])
    assert not any(isinstance(node.op, Mul) for node in graph.nodes)  # normalisations are in weights
    got = np.frombuffer(printed, np.float32).reshape(expected.shape)
    assert np.abs(got - expected).max() <= 1e-5 * np.abs(expected).max()
