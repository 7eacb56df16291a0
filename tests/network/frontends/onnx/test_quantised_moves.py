"""Every operator that moves values, or takes the greatest, between DequantizeLinear and QuantizeLinear, and
directly on integers: integers stay integers, and results are ONNX Runtime's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from crtgen.network.frontends import load_onnx
from crtgen.network.frontends.onnx_moved import MOVED
from crtgen.network.ir import Array, DType, Graph
from crtgen.network.passes import DEFAULT_PASSES, run_passes

_SHAPE = (1, 4, 6, 6)
_TWICE = np.array([1, 1, 2, 2], np.float32)
_FLAGS = np.array([True, False] * 3)


def _f(*values: float) -> Array:
    return np.array(values[0] if len(values) == 1 else values, np.float32)


def _i(*values: int) -> Array:
    return np.array(values, np.int64)


@dataclass(frozen=True)
class _Form:
    """An operator: names of tensors, constants, or None for what is left out."""

    code: str
    inputs: Sequence[str | Array | None] = ("x",)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 17


_PADS = _i(0, 0, 1, 1, 0, 0, 1, 1)
_FORMS = {
    "clip": _Form("Clip", ("x", _f(-0.5), _f(0.9))),
    "clip_above": _Form("Clip", ("x", _f(0.0))),
    "compress": _Form("Compress", ("x", np.array([1, 0, 1, 0], bool)), {"axis": 1}),
    "concat": _Form("Concat", ("x", "w"), {"axis": 1}),
    "depth_to_space": _Form("DepthToSpace", ("x",), {"blocksize": 2}),
    "expand": _Form("Expand", ("x", _i(2, 4, 6, 6))),
    "flatten": _Form("Flatten"),
    "gather": _Form("Gather", ("x", _i(2, 0)), {"axis": 1}),
    "gather_elements": _Form("GatherElements", ("x", np.ones((1, 4, 6, 2), np.int64)), {"axis": 3}),
    "gather_nd": _Form("GatherND", ("x", np.array([[0, 1], [0, 3]]))),
    "global_max_pool": _Form("GlobalMaxPool"),
    "identity": _Form("Identity"),
    "max_constant": _Form("Max", ("x", _f(0.1))),
    "max_channels": _Form("Max", ("x", np.linspace(-1, 1, 4).astype(np.float32).reshape(1, 4, 1, 1))),
    "max_pool": _Form("MaxPool", ("x",), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "max_two": _Form("Max", ("x", "w")),
    "min_three": _Form("Min", ("x", "w", _f(0.4))),
    "pad": _Form("Pad", ("x", _PADS)),
    "pad_edge": _Form("Pad", ("x", _PADS), {"mode": "edge"}),
    "pad_reflect": _Form("Pad", ("x", _PADS), {"mode": "reflect"}),
    "pad_value": _Form("Pad", ("x", _PADS, _f(0.3))),
    "reduce_max": _Form("ReduceMax", ("x", _i(1)), {"keepdims": 0}, 18),
    "reduce_max_13": _Form("ReduceMax", ("x",), {"axes": [2, 3]}),
    "reduce_min": _Form("ReduceMin", ("x",), {"axes": [1]}),
    "reshape": _Form("Reshape", ("x", _i(1, 4, 36))),
    "resize": _Form("Resize", ("x", None, _TWICE), {"mode": "nearest"}),
    "resize_sizes": _Form(
        "Resize",
        ("x", None, None, _i(1, 4, 9, 9)),
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    ),
    "reverse_sequence": _Form("ReverseSequence", ("x", _i(4)), {"batch_axis": 0, "time_axis": 1}),
    "scatter_elements": _Form(
        "ScatterElements", ("x", np.zeros((1, 1, 6, 6), np.int64), np.zeros((1, 1, 6, 6), np.float32))
    ),
    "scatter_nd": _Form("ScatterND", ("x", np.array([[0, 1]]), np.full((1, 6, 6), 0.2, np.float32))),
    "slice": _Form("Slice", ("x", _i(-1), _i(-7), _i(3), _i(-1))),
    "space_to_depth": _Form("SpaceToDepth", ("x",), {"blocksize": 2}),
    "split": _Form("Split", ("x",), {"axis": 1}),
    "squeeze": _Form("Squeeze", ("x", _i(0))),
    "tile": _Form("Tile", ("x", _i(1, 2, 1, 1))),
    "transpose": _Form("Transpose", ("x",), {"perm": [0, 2, 3, 1]}),
    "unsqueeze": _Form("Unsqueeze", ("x", _i(0))),
    "where": _Form("Where", (_FLAGS, "x", "w")),
    "where_constant": _Form("Where", (_FLAGS, "x", _f(0.25))),
}
_FUNCTIONS = {
    "leaky_relu": _Form("LeakyRelu", ("x",), {"alpha": 0.1}),
    "prelu": _Form("PRelu", ("x", np.array([0.1], np.float32))),
    "relu": _Form("Relu"),
}


class _Net:
    """A model under construction."""

    def __init__(self, kind: type[np.integer[Any]]) -> None:
        self.kind = kind
        self.nodes: list[Any] = []
        self.held: dict[str, Array] = {}
        self.inputs: list[str] = []

    def constant(self, name: str, array: Array) -> str:
        self.held[name] = array
        return name

    def pair(self, name: str, scale: float, zero: int, ends: tuple[bool, bool] = (True, True)) -> str:
        """QuantizeLinear and DequantizeLinear, or one of these; returns the name of the result."""
        held = [self.constant(f"{name}_s", _f(scale)), self.constant(f"{name}_z", np.array(zero, self.kind))]
        for code, wanted in zip(("QuantizeLinear", "DequantizeLinear"), ends, strict=True):
            if wanted:
                self.nodes.append(helper.make_node(code, [name, *held], [f"{name}_{code[0]}"]))
                name = f"{name}_{code[0]}"
        return name

    def operator(self, form: _Form, zero: int, whole: bool) -> None:
        """Adds the operator: on float32, or on integers if they are ``whole``."""
        names = []
        for place, given in enumerate(form.inputs):
            if isinstance(given, str):
                self.inputs.append(given)
                names.append(self.pair(given, 0.01, zero, (True, not whole)))
            elif given is None:
                names.append("")
            else:
                is_real = whole and given.dtype == np.float32 and form.code != "Resize"
                array = np.rint(given * 100 + zero).astype(self.kind) if is_real else given
                names.append(self.constant(f"c{place}", array))
        outputs = ["t", "rest"] if form.code == "Split" else ["t"]
        self.nodes.append(helper.make_node(form.code, names, outputs, **form.attributes))

    def done(self, opset: int) -> bytes:
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, _SHAPE) for name in self.inputs]
        result = helper.make_tensor_value_info(self.nodes[-1].output[0], TensorProto.FLOAT, None)
        kept = [numpy_helper.from_array(array, name) for name, array in self.held.items()]
        graph = helper.make_graph(self.nodes, "net", ends, [result], kept)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
        return bytes(onnx.shape_inference.infer_shapes(model).SerializeToString())


def _assert_whole(model: bytes) -> None:
    """All layers but the first and the last ones are of integers, and the result is ONNX Runtime's."""
    graph: Graph = run_passes(load_onnx(model), DEFAULT_PASSES)[0]
    for node in graph.nodes:
        sig = graph.signature(node)
        if node.op.name not in ("quantize", "dequantize"):
            kinds = {value.dtype for value in (*sig.inputs, *sig.outputs) if not value.is_constant}
            assert kinds <= {DType.INT8, DType.BOOL}, node.op.name
    random = np.random.default_rng(1)
    given = {name: random.uniform(-1.4, 1.4, _SHAPE).astype(np.float32) for name in graph.inputs}
    onnxruntime.set_default_logger_severity(3)
    (wanted,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, given)
    np.testing.assert_array_equal(graph.evaluate(given)[graph.outputs[0]], wanted)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("scale", [0.01, 0.013])
@pytest.mark.parametrize("name", [*_FORMS, *_FUNCTIONS])
def test_between_dequantize_and_quantize(name: str, scale: float, kind: type[np.integer[Any]]) -> None:
    if name == "identity" and scale != 0.01:
        pytest.skip("ONNX Runtime leaves both out, and the second scale with them")
    form, net = (_FORMS | _FUNCTIONS)[name], _Net(kind)
    zero = 3 if kind is np.int8 else 131
    net.operator(form, zero, whole=False)
    net.pair("t", scale, zero if scale == 0.01 else zero - 10)
    _assert_whole(net.done(form.opset))


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("name", [*(name for name in _FORMS if name != "global_max_pool"), "relu"])
def test_on_integers(name: str, kind: type[np.integer[Any]]) -> None:
    form, net = (_FORMS | _FUNCTIONS)[name], _Net(kind)
    if name == "relu" and kind is np.uint8:
        pytest.skip("ONNX has no Relu of uint8")
    net.operator(form, 3 if kind is np.int8 else 131, whole=True)
    net.pair("t", 0.01, 3 if kind is np.int8 else 131, (False, True))
    _assert_whole(net.done(form.opset))


def test_every_move_is_here() -> None:
    assert set(MOVED) <= {form.code for form in _FORMS.values()}
