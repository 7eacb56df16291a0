"""Transposed convolutions between DequantizeLinear and QuantizeLinear, which become layers of integers.

ONNX Runtime has no integer kernel for them and computes them in float32, so a sum near a half may be rounded
otherwise, by one step.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from crtgen.boards.core import find_core
from crtgen.network.frontends import load_onnx
from crtgen.network.ir import Array, DType, Graph
from tests.compiler.kernels.program import Run, check_outputs, run_on_host, run_on_qemu
from tests.support import nightly

_STEP = 0.05


@dataclass(frozen=True)
class Layer:
    """A transposed convolution of ``[1, channels, *image]`` to ``groups * each`` channels, quantised."""

    image: tuple[int, ...] = (4, 5)
    taps: tuple[int, ...] = (3, 2)
    channels: int = 4
    each: int = 3
    options: tuple[tuple[str, Any], ...] = ()
    activations: Any = np.int8
    middle: int = 0
    per_channel: bool = True
    behind: str = ""
    bias: str = "real"

    @property
    def groups(self) -> int:
        return int(dict(self.options).get("group", 1))


LAYERS = {
    "plain": Layer(),
    "strides": Layer(options=(("strides", [2, 3]), ("pads", [1, 0, 0, 1])), behind="Relu"),
    "groups": Layer(options=(("group", 2), ("strides", [2, 2])), bias="integers"),
    "depthwise": Layer(each=1, options=(("group", 4), ("strides", [2, 1])), activations=np.uint8),
    "dilations": Layer(options=(("dilations", [2, 1]), ("output_padding", [1, 0]), ("strides", [2, 1]))),
    "line": Layer((9,), (4,), options=(("strides", [2]), ("pads", [1, 1])), bias=""),
    "tensor": Layer(per_channel=False, middle=128, activations=np.uint8, behind="Clip"),
    "int16": Layer(activations=np.int16, options=(("strides", [2, 2]),)),
    "int16_groups": Layer(activations=np.int16, options=(("group", 2),), behind="Relu", bias=""),
}


def file_of(layer: Layer) -> tuple[bytes, tuple[int, ...]]:
    random, node = np.random.default_rng(7), helper.make_node
    shape, outputs = (1, layer.channels, *layer.image), layer.groups * layer.each
    step = np.float32(_STEP / (256 if layer.activations is np.int16 else 1))
    weights = np.uint8 if layer.middle else np.int8
    low = -layer.middle if layer.middle else -127
    numbers = random.integers(low, low + 255, (layer.channels, layer.each, *layer.taps)) + layer.middle
    scales = random.uniform(0.004, 0.02, layer.each if layer.per_channel else 1).astype(np.float32)
    own = np.tile(scales, layer.groups) if layer.per_channel else np.repeat(scales, outputs)
    bias = random.normal(0, 0.5, outputs)
    constants: dict[str, Array] = {
        "xs": np.array(step),
        "xz": np.array(9 if layer.activations is np.uint8 else 0, layer.activations),
        "ys": np.array(np.float32(1.6) * step),
        "yz": np.array(100 if layer.activations is np.uint8 else 0, layer.activations),
        "w": numbers.astype(weights),
        "ws": scales if layer.per_channel else scales.reshape(()),
        "wz": np.full(scales.size if layer.per_channel else (), layer.middle, weights),
        "b": bias.astype(np.float32),
        "bq": np.rint(bias / (own * step)).astype(np.int32),
        "bs": (own * step).astype(np.float32),
        "low": np.array(-1, np.float32),
        "high": np.array(3, np.float32),
    }
    added = {"real": ["b"], "integers": ["bd"], "": []}[layer.bias]
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        node("DequantizeLinear", ["q", "xs", "xz"], ["d"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=1),
        node("DequantizeLinear", ["bq", "bs"], ["bd"], axis=0),
        node("ConvTranspose", ["d", "wd", *added], ["c"], **dict(layer.options)),
    ]
    if layer.behind:
        nodes.append(node(layer.behind, ["c", *(["low", "high"] if layer.behind == "Clip" else [])], ["r"]))
    last = "r" if layer.behind else "c"
    nodes.append(node("QuantizeLinear", [last, "ys", "yz"], ["p"]))
    nodes.append(node("DequantizeLinear", ["p", "ys", "yz"], ["y"]))
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(shape)),
    ]
    kept = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], kept)
    opsets = [helper.make_opsetid("", 21)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()), shape


def _real_layers(graph: Graph) -> list[str]:
    layers = [node for node in graph.nodes if node.op.macs(graph.signature(node))]
    assert layers
    return [node.name for node in layers if graph.signature(node).x.dtype is DType.FLOAT32]


@pytest.mark.parametrize("name", LAYERS)
def test_computed_in_integers(name: str) -> None:
    model, shape = file_of(LAYERS[name])
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model, options)
    graph, steps = load_onnx(model), []
    assert _real_layers(graph) == []
    is_short = LAYERS[name].activations is np.int16
    for seed in range(4):
        x = np.random.default_rng(seed).normal(0, 2, shape).astype(np.float32)
        found, wanted = graph.evaluate({"x": x})[graph.outputs[0]], session.run(None, {"x": x})[0]
        assert found.shape == wanted.shape
        apart = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
        steps.append(apart / (1.6 * _STEP / (256 if is_short else 1)))
    assert np.max(steps) < 1.01
    assert np.mean(steps) < (0.25 if is_short else 0.01)  # a float32 bias is rounded to steps of the sums


@pytest.mark.parametrize("layer", [Layer((3, 3, 3), (2, 2, 2)), Layer(middle=100, per_channel=False)])
def test_others_stay_real(layer: Layer) -> None:
    """Three dimensions, and distances from the zero point that int8 does not hold."""
    model, shape = file_of(layer)
    graph = load_onnx(model)
    assert _real_layers(graph)
    x = np.random.default_rng(1).normal(0, 2, shape).astype(np.float32)
    wanted = ort.InferenceSession(model).run(None, {"x": x})[0]
    assert np.abs(graph.evaluate({"x": x})[graph.outputs[0]] - wanted).max() < 1.01 * 1.6 * _STEP


def _runs() -> list[Run]:
    runs = []
    for name, layer in LAYERS.items():
        model, shape = file_of(layer)
        x = np.random.default_rng(1).normal(0, 2, shape).astype(np.float32)
        runs.append(Run(name, load_onnx(model), {"x": x}))
    return runs


@pytest.mark.cc
def test_host(tmp_path: Path) -> None:
    runs = _runs()
    found = map(check_outputs, runs, run_on_host(tmp_path, runs))
    assert [text for text in found if text] == []


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("machine", "core"), [("mps2-an386", "cortex-m4"), nightly("mps3-an547", "cortex-m55")]
)
def test_qemu(tmp_path: Path, machine: str, core: str) -> None:
    runs = _runs()
    found = map(check_outputs, runs, run_on_qemu(tmp_path, runs, machine, find_core(core)))
    assert [text for text in found if text] == []
