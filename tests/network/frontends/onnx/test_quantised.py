"""Quantised networks of ONNX: equal to ONNX Runtime, by the references, on a host and on Cortex-M."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.shape_inference
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from crtgen.base.errors import CorruptModelError
from crtgen.boards.core import find_core
from crtgen.network.frontends import load_onnx
from crtgen.network.frontends.onnx_moved import MOVED
from crtgen.network.ir import Array, DType, Graph
from crtgen.network.passes import DEFAULT_PASSES, run_passes
from tests.compiler.kernels.program import Run, run_on_host, run_on_qemu
from tests.network.frontends.onnx.quantised import (
    FORMS,
    NETWORKS,
    SUMS,
    Whole,
    added,
    expected,
    inputs,
    pairs,
    quantised,
    summed,
)
from tests.support import exporter_file, nightly

# ONNX Runtime computes convolutions of int8 in float32 where their outputs are read twice: a sum near a half
# may be rounded otherwise, on another PC again otherwise.
_NEAR = {("residual", "qdq_int8"), ("functions", "qdq_int8")}
_WITH_REAL_NUMBERS = ("gru", "pieces")
_ALL = [(name, form) for name in NETWORKS for form in FORMS]
_EQUAL = [pair for pair in _ALL if pair not in _NEAR]


@cache
def _model(name: str, form: str) -> bytes:
    return quantised(name, FORMS[form])


def _graph(name: str, form: str) -> Graph:
    graph, _ = run_passes(load_onnx(_model(name, form), f"{name}_{form}"), DEFAULT_PASSES)
    return graph


@pytest.mark.parametrize(("name", "form"), _EQUAL)
def test_references_equal_onnx_runtime(name: str, form: str) -> None:
    graph = _graph(name, form)
    for x in inputs(name, 8):
        found = graph.evaluate({graph.inputs[0]: x})[graph.outputs[0]]
        assert np.array_equal(found, expected(_model(name, form), x))


@pytest.mark.parametrize(("name", "form"), sorted(_NEAR))
def test_references_are_near_what_is_computed_in_float32(name: str, form: str) -> None:
    graph, model = _graph(name, form), _model(name, form)
    xs = list(inputs(name, 8))
    found = [graph.evaluate({graph.inputs[0]: x})[graph.outputs[0]] for x in xs]
    wanted = [expected(model, x) for x in xs]
    different = sum(int((a != b).sum()) for a, b in zip(found, wanted, strict=True))
    assert different <= 0.05 * sum(a.size for a in found)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize(("scales", "zeros"), SUMS)
def test_sums_of_all_pairs(kind: Whole, scales: list[float], zeros: list[int]) -> None:
    data = added(kind, scales, zeros)
    x, w = pairs(scales, zeros)
    found = load_onnx(data).evaluate({"x": x, "w": w})["r_real"]
    np.testing.assert_array_equal(found, summed(data, scales, zeros))


@pytest.mark.parametrize(("name", "form"), _ALL)
def test_layers_are_of_integers(name: str, form: str) -> None:
    """Floats are at both ends only, or where the quantiser left a clamp between two quantisations."""
    graph = _graph(name, form)
    others = ("batch_matmul", "recurrent")
    weighted = [n for n in graph.nodes if n.op.macs(graph.signature(n)) and n.op.name not in others]
    assert weighted
    assert {graph.signature(n).x.dtype for n in weighted} == {DType.INT8}
    if form == "qdq_uint8" and name not in _WITH_REAL_NUMBERS:
        assert [n.op.name for n in graph.nodes if n.op.name in ("quantize", "dequantize")] == [
            "quantize",
            "dequantize",
        ]


def _runs(names: list[tuple[str, str]]) -> list[tuple[Run, np.ndarray]]:
    found = []
    for name, form in names:
        graph = _graph(name, form)
        (x,) = inputs(name, 1)
        found.append((Run(f"{name}_{form}", graph, {graph.inputs[0]: x}), expected(_model(name, form), x)))
    return found


def _check(runs: list[tuple[Run, np.ndarray]], printed: list[bytes]) -> None:
    wrong = [
        run.name
        for (run, wanted), data in zip(runs, printed, strict=True)
        if not np.array_equal(np.frombuffer(data, np.float32), wanted.reshape(-1))
    ]
    assert wrong == []


@pytest.mark.cc
def test_host(tmp_path: Path) -> None:
    runs = _runs([(name, "qdq_uint8") for name in NETWORKS] + [("functions", "qoperator_int8")])
    _check(runs, run_on_host(tmp_path, [run for run, _ in runs]))


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("machine", "core"), [nightly("mps2-an386", "cortex-m4"), ("mps3-an547", "cortex-m55")]
)
def test_qemu(tmp_path: Path, machine: str, core: str) -> None:
    runs = _runs([(name, "qdq_uint8") for name in NETWORKS] + [("separable", "qoperator_uint8")])
    _check(runs, run_on_qemu(tmp_path, [run for run, _ in runs], machine, find_core(core)))


def _small(**changed: object) -> bytes:
    """A convolution of one channel, with other constants."""
    constants = {
        "s": np.float32(0.1),
        "z": np.uint8(3),
        "w": np.arange(25, dtype=np.uint8).reshape(1, 1, 5, 5),
        "wz": np.uint8(7),
    } | changed
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="start"),
        helper.make_node("QLinearConv", ["q", "s", "z", "w", "s", "wz", "s", "z"], ["r"], name="first"),
        helper.make_node("DequantizeLinear", ["r", "s", "z"], ["y"]),
    ]
    x, y = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [1, 1, 8, 8]), ("y", None))
    )
    kept = [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()]
    graph = helper.make_graph(nodes, "net", [x], [y], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(onnx.shape_inference.infer_shapes(model).SerializeToString())


def test_weights_of_uint8() -> None:
    """They are numbers of int8 less their zero point."""
    graph = load_onnx(_small())
    x = np.random.default_rng(4).normal(size=(1, 1, 8, 8)).astype(np.float32)
    assert np.array_equal(graph.evaluate({"x": x})["y"], expected(_small(), x))


@pytest.mark.parametrize("zero", [0, 7, 255])
def test_weights_of_nine_bits(zero: int) -> None:
    """Distances from their zero point that int8 does not hold."""
    model = _small(w=np.arange(5, 255, 10, dtype=np.uint8).reshape(1, 1, 5, 5), wz=np.uint8(zero))
    graph = load_onnx(model)
    for seed in range(4):
        x = np.random.default_rng(seed).normal(size=(1, 1, 8, 8)).astype(np.float32)
        assert np.array_equal(graph.evaluate({"x": x})["y"], expected(model, x))


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_that_is_none(scale: float) -> None:
    with pytest.raises(CorruptModelError, match=f"start.*a scale of {scale}"):
        load_onnx(_small(s=np.float32(scale)))


def _trained(limit: int, way: str) -> bytes:
    """A convolution as training with quantisation exports it: ``way`` says what its weights are."""
    random = np.random.default_rng(3)
    real = (random.normal(size=(4, 3, 3, 3)) * 0.3).astype(np.float32)
    scales = (np.abs(real).reshape(4, -1).max(1) / limit).astype(np.float32)
    whole = np.clip(np.rint(real / scales[:, None, None, None]), -limit, limit).astype(np.int8)
    constants = {"s": np.float32(0.02), "z": np.int8(0), "ws": scales, "wz": np.zeros(4, np.int8)}
    constants |= {"ys": np.float32(0.05), "yz": np.int8(-3), "low": np.int8(-limit), "high": np.int8(limit)}
    constants |= {
        "b": (random.normal(size=4) * 0.1).astype(np.float32),
        "w": whole if way in ("int8", "clipped") else real,
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
    ]
    name = "w"
    if way == "turned":
        constants["w"] = np.ascontiguousarray(real.transpose(1, 2, 3, 0))
        nodes.append(helper.make_node("Transpose", [name], ["wt"], perm=[3, 0, 1, 2]))
        name = "wt"
    if way in ("float", "turned"):
        nodes.append(helper.make_node("QuantizeLinear", [name, "ws", "wz"], ["wq"], axis=0))
        name = "wq"
    if way != "int8":
        nodes.append(helper.make_node("Clip", [name, "low", "high"], ["wc"]))
        name = "wc"
    nodes += [
        helper.make_node("DequantizeLinear", [name, "ws", "wz"], ["wd"], axis=0),
        helper.make_node("Conv", ["d", "wd", "b"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "ys", "yz"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "ys", "yz"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(*end) for end in (("x", 1, [1, 3, 6, 6]), ("y", 1, [1, 4, 4, 4]))]
    held = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("way", ["float", "turned", "clipped", "int8"])
@pytest.mark.parametrize("limit", [127, 7])
def test_weights_that_training_left_as_floats_are_quantised(limit: int, way: str) -> None:
    """They become the integers that ONNX Runtime would compute at each run. Brevitas clips integers."""
    data = _trained(limit, way)
    graph = load_onnx(data)
    (layer,) = (node for node in graph.nodes if type(node.op).__name__ == "Conv2d")
    assert [v.dtype for v in graph.signature(layer).inputs] == [DType.INT8, DType.INT8, DType.INT32]
    assert graph.notes == ()
    x = np.random.default_rng(1).normal(size=(1, 3, 6, 6)).astype(np.float32)
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    ((found,),) = graph.run([[x]])
    np.testing.assert_array_equal(found, wanted)


def test_layers_that_stay_float_are_named() -> None:
    """A layer of real inputs has no integers to add up."""
    model = onnx.load_from_string(_trained(127, "int8"))
    del model.graph.node[:2]
    next(node for node in model.graph.node if node.op_type == "Conv").input[0] = "x"
    (note,) = load_onnx(model.SerializeToString()).notes
    assert note.startswith(
        "1 of 1 layers with weights are computed in float32 though the file is quantised: "
    )


def _assert_near(found: Array, wanted: Array) -> None:
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=1e-5, atol=1e-5)


def _real_end(code: str, kind: type, moved: bool, *, bias: str) -> bytes:
    """A layer of quantised operands whose result stays real, behind a move of its input if ``moved``."""
    random, is_conv = np.random.default_rng(5), code == "Conv"
    weights = random.integers(-127, 128, (4, 3, 3, 3) if is_conv else (4, 12)).astype(np.int8)
    scales = random.uniform(0.01, 0.03, 4).astype(np.float32)
    steps = random.integers(-3000, 3000, 4).astype(np.int32)
    constants = {"s": np.float32(0.02), "z": kind(100 if kind is np.uint8 else -9), "ws": scales}
    constants |= {"w": weights if code != "MatMul" else weights.T.copy(), "b": steps, "bs": scales * 0.02}
    constants |= {"wz": np.zeros(4, np.int8), "bz": np.zeros(4, np.int32)}
    constants |= {
        "shape": np.array([1, 3, 3, 3] if is_conv else [1, 12]),
        "real": (steps * 0.001).astype("f4"),
    }
    axis = 1 if code == "MatMul" else 0
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=axis),
    ]
    if bias == "quantised":
        nodes.append(helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bd"], axis=0))
    if moved:
        nodes.append(helper.make_node("Reshape", ["d", "shape"], ["m"]))
    given = [*(["m"] if moved else ["d"]), "wd", *({"quantised": ["bd"], "real": ["real"]}.get(bias, []))]
    layer = helper.make_node(code, given, ["y"], name="layer")
    layer.attribute.extend([helper.make_attribute("transB", 1)] if code == "Gemm" else [])
    nodes.append(layer)
    shape = ([1, 27] if is_conv else [1, 3, 2, 2]) if moved else ([1, 3, 5, 6] if is_conv else [1, 12])
    ends = [helper.make_tensor_value_info(*end) for end in (("x", 1, shape), ("y", 1, None))]
    held = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(onnx.shape_inference.infer_shapes(model).SerializeToString())


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize(
    ("code", "bias"), [("Conv", "quantised"), ("Gemm", "real"), ("Gemm", "quantised"), ("MatMul", "none")]
)
def test_a_layer_whose_result_stays_real_has_sums_of_integers(
    code: str, bias: str, kind: type, moved: bool
) -> None:
    data = _real_end(code, kind, moved, bias=bias)
    graph = load_onnx(data)
    assert graph.notes == ()
    layers = [node for node in graph.nodes if node.op.macs(graph.signature(node)) > 12]
    assert [graph.signature(node).x.dtype for node in layers] == [DType.INT8]
    x = np.random.default_rng(1).normal(size=graph.values[graph.inputs[0]].shape).astype(np.float32)
    _assert_near(graph.evaluate({graph.inputs[0]: x})["y"], expected(data, x))


_MOVES: dict[str, tuple[tuple[int, ...], dict[str, Any], Sequence[tuple[int, ...] | Array | None]]] = {
    "Compress": ((2, 3), {"axis": 1}, [np.array([True, False, True])]),
    "DepthToSpace": ((1, 8, 3, 2), {"blocksize": 2}, []),
    "Expand": ((1, 1, 3), {}, [(2, 4, 3)]),
    "Flatten": ((2, 3, 4), {"axis": 1}, []),
    "Gather": ((3, 5), {"axis": 1}, [(4, 0, 2)]),
    "GatherElements": ((3, 5), {"axis": 1}, [np.array([[4, 0], [1, 1], [2, 3]])]),
    "GatherND": ((3, 5), {}, [np.array([[2], [0]])]),
    "GlobalMaxPool": ((1, 2, 5, 6), {}, []),
    "Identity": ((3, 5), {}, []),
    "MaxPool": ((1, 2, 5, 6), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 1]}, []),
    "ReduceMax": ((2, 3, 4), {"axes": [1]}, []),
    "ReduceMin": ((2, 3, 4), {"axes": [1]}, []),
    "Reshape": ((2, 3, 4), {}, [(4, 6)]),
    "Resize": ((1, 2, 3, 4), {"mode": "nearest"}, [None, None, (1, 2, 6, 7)]),
    "ReverseSequence": ((3, 2, 4), {}, [(3, 2)]),
    "Slice": ((4, 6), {}, [(1, 5), (3, 0), (0, 1), (1, -2)]),
    "SpaceToDepth": ((1, 2, 4, 6), {"blocksize": 2}, []),
    "Squeeze": ((2, 1, 6), {}, [(1,)]),
    "Tile": ((2, 3), {}, [(2, 3)]),
    "Transpose": ((2, 3, 4), {"perm": [2, 0, 1]}, []),
    "Unsqueeze": ((2, 6), {}, [(0,)]),
}
"""The shape of an input, attributes, and constants of moves."""


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("code", MOVED)
def test_moves_before_a_layer_move_integers(code: str, kind: type) -> None:
    shape, attributes, constants = _MOVES[code]
    given = {f"c{n}": numbers for n, numbers in enumerate(constants)}
    held: dict[str, Array] = {name: np.array(c) for name, c in given.items() if c is not None}
    move = helper.make_node(code, ["d", *(n if n in held else "" for n in given)], ["m"], **attributes)
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    depth = _moved_shape(move, shape, held)[-1]
    weights = np.random.default_rng(2).integers(-127, 128, (depth, 4)).astype(np.int8)
    held |= {"s": np.array(0.03, np.float32), "z": np.array(7, kind), "w": weights}
    held |= {"ws": np.array(0.01, np.float32), "wz": np.array(0, np.int8)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        move,
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"]),
        helper.make_node("MatMul", ["m", "wd"], ["y"], name="layer"),
    ]
    data = _of_nodes(nodes, shape, held)
    graph = load_onnx(data)
    assert graph.notes == ()
    _assert_near(graph.evaluate({"x": x})["y"], _as_written(data, x))


def test_names_that_are_taken_stay_other_tensors() -> None:
    model = onnx.load_from_string(_real_end("Gemm", np.int8, True, bias="quantised"))
    taken = ("y.sums", "y.weights", "y.factors", "y.start", "m.numbers")
    for name, next_name in zip(taken, (*taken[1:], "last"), strict=True):
        model.graph.node.append(helper.make_node("Neg", [name], [next_name]))
    model.graph.node.insert(0, helper.make_node("Abs", ["x"], ["y.sums"]))
    model.graph.output.append(helper.make_tensor_value_info("last", 1, None))
    data = onnx.shape_inference.infer_shapes(model).SerializeToString()
    x = np.random.default_rng(1).normal(size=(1, 3, 2, 2)).astype(np.float32)
    found = load_onnx(data).evaluate({"x": x})
    _assert_near(found["y"], expected(_real_end("Gemm", np.int8, True, bias="quantised"), x))
    np.testing.assert_array_equal(found["last"], -np.abs(x))


def _as_written(data: bytes, x: Array) -> Array:
    # Without optimisation: of some of these, ONNX Runtime makes a MatMulNBits that quantises its input anew.
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    (y,) = onnxruntime.InferenceSession(data, options).run(None, {"x": x})
    return np.asarray(y)


def _of_nodes(nodes: list[Any], shape: tuple[int, ...], held: Mapping[str, Array]) -> bytes:
    ends = [helper.make_tensor_value_info(*end) for end in (("x", 1, shape), (nodes[-1].output[0], 1, None))]
    constants = [numpy_helper.from_array(v, n) for n, v in held.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(onnx.shape_inference.infer_shapes(model, data_prop=True).SerializeToString())


def _moved_shape(move: Any, shape: tuple[int, ...], held: Mapping[str, Array]) -> tuple[int, ...]:
    # The shape that a move gives, by ONNX Runtime.
    alone = helper.make_node(move.op_type, ["x", *list(move.input)[1:]], ["m"])
    alone.attribute.extend(move.attribute)
    return expected(_of_nodes([alone], shape, held), np.zeros(shape, np.float32)).shape


def test_weights_with_zero_points_of_their_own_stay_real() -> None:
    """A zero point per output would want another sum of inputs for each."""
    model = onnx.load_from_string(_real_end("Gemm", np.int8, False, bias="real"))
    held = next(one for one in model.graph.initializer if one.name == "wz")
    held.CopyFrom(numpy_helper.from_array(np.arange(4, dtype=np.int8), "wz"))
    data = model.SerializeToString()
    graph = load_onnx(data)
    x = np.random.default_rng(1).normal(size=(1, 12)).astype(np.float32)
    _assert_near(graph.evaluate({"x": x})["y"], expected(data, x))


@pytest.mark.models
@pytest.mark.parametrize(
    ("name", "most"), [("embed_uint8.onnx", 0), ("bert_dynamic_gather_uint8.onnx", 1e-6)]
)
def test_quantised_embeddings(name: str, most: float) -> None:
    """Tables of uint8 that Gather reads, as ``quantize_dynamic`` writes them."""
    path = exporter_file(f"truth/{name}")
    graph = load_onnx(path)
    (x,) = (graph.values[name] for name in graph.inputs)
    tokens = np.random.default_rng(2).integers(0, 30, x.shape)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {session.get_inputs()[0].name: tokens})
    ((found,),) = graph.run([[tokens.astype(x.dtype.numpy)]])
    assert np.abs(found - np.asarray(wanted)).max() <= most
