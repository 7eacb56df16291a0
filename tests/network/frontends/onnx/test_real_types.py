"""Tensors of types that crtgen has not itself: reals of other lengths, numbers of four and two bits."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from typer.testing import CliRunner

from crtgen import api
from crtgen.cli.app import app
from crtgen.network.frontends import load_onnx
from crtgen.network.ir import Array, DType, Graph
from tests.compiler.kernels.program import Run, run_on_host

FLOAT, FLOAT16, DOUBLE = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE


def _model(
    nodes: Sequence[Any],
    types: tuple[int, int],
    shapes: tuple[Sequence[int], Sequence[int]],
    constants: Sequence[Any] = (),
    opset: int = 22,
) -> bytes:
    """From ``x`` to ``y``."""
    x, y = map(helper.make_tensor_value_info, "xy", types, shapes)
    graph = helper.make_graph(nodes, "model", [x], [y], list(constants))
    opsets = [helper.make_opsetid("", opset)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def _network(dtype: str) -> bytes:
    """Convolutions, a normalisation and a classifier; weights and computing of one type."""
    random, kind = np.random.default_rng(5), helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    shapes = {"w": (8, 3, 3, 3), "b": (8,), "d": (10, 8), "e": (10,)}
    shapes |= {name: (8,) for name in ("scale", "shift", "mean")}
    data = {name: random.uniform(-0.4, 0.4, shape) for name, shape in shapes.items()}
    data["variance"] = random.uniform(0.5, 1.5, 8)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["n"]),
        helper.make_node("Sigmoid", ["n"], ["s"]),
        helper.make_node("Mul", ["n", "s"], ["m"]),
        helper.make_node("GlobalAveragePool", ["m"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "d", "e"], ["l"], transB=1),
        helper.make_node("Softmax", ["l"], ["y"]),
    ]
    constants = [numpy_helper.from_array(array.astype(dtype), name) for name, array in data.items()]
    return _model(nodes, (kind, kind), ((1, 3, 8, 8), (1, 10)), constants)


def _outputs(graph: Graph, x: Array, tmp_path: Path) -> tuple[Array, Array]:
    """By the references, and by generated C."""
    ((expected,),) = graph.run([[x]])
    (printed,) = run_on_host(tmp_path, [Run("net", graph, {graph.inputs[0]: x})])
    return expected, np.frombuffer(printed, expected.dtype).reshape(expected.shape)


@pytest.mark.cc
@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2.0**-10), ("float64", 1e-6)])
def test_a_network_of_other_reals(tmp_path: Path, dtype: str, tolerance: float) -> None:
    """Within what float16 rounds to, of ONNX Runtime, which has no convolution of double: the package has."""
    model = _network(dtype)
    x = np.random.default_rng(6).uniform(-1, 1, (1, 3, 8, 8)).astype(dtype)
    half = dtype == "float16"
    oracle: Any = (
        onnxruntime.InferenceSession(model) if half else ReferenceEvaluator(onnx.load_from_string(model))
    )
    (expected,) = oracle.run(None, {"x": x})
    graph = load_onnx(model)
    assert {v.dtype for v in graph.values.values()} == {DType.FLOAT32}
    for got in _outputs(graph, x.astype(np.float32), tmp_path):
        assert np.abs(got.astype(np.float64) - expected).max() < tolerance * expected.max()


def test_what_is_held_otherwise_is_said_once(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(_network("float16"))
    note = "FLOAT16 is held and computed as float32: inputs and outputs, too"
    model = api.load(path)
    assert isinstance(model, api.Model)
    assert model.notes == (note,)
    assert load_onnx(_network("float32")).notes == ()
    done = CliRunner().invoke(app, ["compile", str(path), "-o", str(tmp_path / "net.tar")])
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [f"net: {note}"]


@pytest.mark.cc
def test_a_cast_rounds_to_float16_exactly(tmp_path: Path) -> None:
    there = helper.make_node("Cast", ["x"], ["h"], to=FLOAT16)
    back = helper.make_node("Cast", ["h"], ["y"], to=FLOAT)
    model = _model([there, back], (FLOAT, FLOAT), ((4000,), (4000,)))
    x = np.random.default_rng(1).integers(0, 1 << 32, 4000, np.uint64).astype(np.uint32).view(np.float32)
    x = np.where(np.isnan(x), np.float32(0.1), x)
    (expected,) = onnxruntime.InferenceSession(model).run(None, {"x": x})
    for got in _outputs(load_onnx(model), x, tmp_path):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2"])
@pytest.mark.parametrize("source", [np.int32, np.int8, np.float32])
def test_casts_to_few_bits_leave_the_upper_ones(name: str, source: type[np.generic]) -> None:
    own, to = (helper.np_dtype_to_tensor_dtype(np.dtype(t)) for t in (source, getattr(ml_dtypes, name)))
    node = helper.make_node("Cast", ["x"], ["y"], to=to)
    x = np.arange(-40, 40).astype(source)
    bits, is_signed = int(name[-1]), name.startswith("int")
    expected = np.arange(-40, 40) & ((1 << bits) - 1)
    expected = np.where((expected >> (bits - 1) > 0) & is_signed, expected - (1 << bits), expected)
    ((got,),) = load_onnx(_model([node], (own, to), (x.shape, x.shape), opset=25)).run([[x]])
    assert got.dtype == (np.int8 if is_signed else np.uint8)
    np.testing.assert_array_equal(got, expected)


def test_constants_of_double_are_computed_in_double() -> None:
    """0.29 times 100 is less than 29, but not in float32."""
    constants = [
        numpy_helper.from_array(np.array(0.29), "share"),
        numpy_helper.from_array(np.array([100.0]), "whole"),
    ]
    nodes = [
        helper.make_node("Mul", ["share", "whole"], ["product"]),
        helper.make_node("Floor", ["product"], ["floor"]),
        helper.make_node("Cast", ["floor"], ["length"], to=TensorProto.INT64),
        helper.make_node("Expand", ["x", "length"], ["y"]),
    ]
    graph = load_onnx(_model(nodes, (FLOAT, FLOAT), ((1,), (28,)), constants))
    assert graph.values[graph.outputs[0]].shape == (28,)
    assert graph.notes == ()


def test_a_constant_cast_saturates() -> None:
    constants = [numpy_helper.from_array(np.array([1e6, -1e6, 0.3], np.float32), "c")]
    nodes = [
        helper.make_node("Cast", ["c"], ["e"], to=TensorProto.FLOAT8E4M3FN),
        helper.make_node("Cast", ["e"], ["f"], to=FLOAT),
        helper.make_node("Add", ["x", "f"], ["y"]),
    ]
    model = _model(nodes, (FLOAT, FLOAT), ((3,), (3,)), constants)
    ((got,),) = load_onnx(model).run([[np.zeros(3, np.float32)]])
    np.testing.assert_array_equal(got, np.array([448, -448, 0.3125], np.float32))


@pytest.mark.filterwarnings("error")
def test_constants_beyond_float32_are_infinite() -> None:
    constants = [numpy_helper.from_array(np.array([-np.finfo(np.float64).max, 0.5]), "c")]
    model = _model([helper.make_node("Add", ["x", "c"], ["y"])], (DOUBLE, DOUBLE), ((2,), (2,)), constants)
    ((got,),) = load_onnx(model).run([[np.ones(2, np.float32)]])
    np.testing.assert_array_equal(got, np.array([-np.inf, 1.5], np.float32))


def test_a_cast_to_int64_has_more_than_32_bits() -> None:
    model = _model([helper.make_node("Cast", ["x"], ["y"], to=7)], (FLOAT, TensorProto.INT64), ((5,), (5,)))
    x = np.array([3e9, -3e9, 1e18, -1.5, 2.0**31], np.float32)
    (expected,) = onnxruntime.InferenceSession(model).run(None, {"x": x})
    ((got,),) = load_onnx(model).run([[x]])
    np.testing.assert_array_equal(got, np.asarray(expected))
