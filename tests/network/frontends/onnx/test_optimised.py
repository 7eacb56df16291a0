"""Files of ONNX Runtime's optimiser compute what those before it do, or say how to save others."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from crtgen.base.errors import UnsupportedError
from crtgen.network.frontends import load_onnx
from crtgen.network.ir import Array, Graph

_LEVELS = ("BASIC", "EXTENDED", "ALL")
_node = helper.make_node


def _floats(seed: int, *shape: int) -> Array:
    return (np.random.default_rng(seed).normal(size=shape) * 0.4).astype(np.float32)


def _number(value: float) -> Array:
    return np.array(value, np.float32)


def _file(
    nodes: Sequence[Any], x: Sequence[int], rank: int, constants: Mapping[str, Array], opset: int = 17
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * rank)],
        [numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return bytes(made.SerializeToString())


def _images() -> bytes:
    """Convolutions with a residual sum, and the activations that the optimiser fuses."""
    nodes = [
        _node("Conv", ["x", "w", "b"], ["a"], pads=[1] * 4),
        _node("Relu", ["a"], ["r"]),
        _node("Conv", ["r", "w2", "b2"], ["c"], pads=[1] * 4),
        _node("Add", ["c", "r"], ["s"]),
        _node("Relu", ["s"], ["t"]),
        _node("Conv", ["t", "w3", "b2"], ["u"], pads=[1] * 4),
        _node("LeakyRelu", ["u"], ["v"], alpha=0.1),
        _node("Conv", ["v", "w4", "b4"], ["q"]),
        _node("Clip", ["q", "zero", "six"], ["k"]),
        _node("Conv", ["k", "w5", "b4"], ["k5"]),
        _node("HardSigmoid", ["k5"], ["k6"], alpha=0.3, beta=0.4),
        _node("GlobalAveragePool", ["k6"], ["g"]),
        _node("Flatten", ["g"], ["h"]),
        _node("Gemm", ["h", "m", "mb"], ["y0"]),
        _node("Tanh", ["y0"], ["y"]),
    ]
    shapes: Mapping[str, tuple[int, ...]] = {
        "w": (4, 3, 3, 3), "b": (4,), "w2": (4, 4, 3, 3), "b2": (4,), "w3": (4, 4, 3, 3), "w4": (6, 4, 1, 1),
        "b4": (6,), "w5": (6, 6, 1, 1), "m": (6, 3), "mb": (3,),
    }  # fmt: skip
    constants = {name: _floats(i, *shape) for i, (name, shape) in enumerate(shapes.items())}
    constants |= {"zero": _number(0), "six": _number(6)}
    return _file(nodes, [1, 3, 8, 8], 2, constants)


def _attention() -> bytes:
    """Gelu by erf, a normalisation of a sum, scores of scaled and transposed products, Swish."""
    nodes = [
        _node("MatMul", ["x", "w"], ["a"]),
        _node("Add", ["a", "b"], ["p"]),
        _node("Div", ["p", "root"], ["e0"]),
        _node("Erf", ["e0"], ["e1"]),
        _node("Add", ["e1", "one"], ["e2"]),
        _node("Mul", ["p", "e2"], ["e3"]),
        _node("Mul", ["e3", "half"], ["gelu"]),
        _node("MatMul", ["gelu", "w2"], ["c"]),
        _node("Add", ["c", "x"], ["d"]),
        _node("LayerNormalization", ["d", "scale", "bias"], ["l"]),
        _node("Transpose", ["l"], ["lt"], perm=[0, 2, 1]),
        _node("MatMul", ["l", "lt"], ["scores"]),
        _node("Mul", ["scores", "factor"], ["scaled"]),
        _node("Softmax", ["scaled"], ["shares"]),
        _node("MatMul", ["shares", "l"], ["o"]),
        _node("Sigmoid", ["o"], ["sg"]),
        _node("Mul", ["o", "sg"], ["sw"]),
        _node("Add", ["sw", "d"], ["y"]),
    ]
    shapes: Mapping[str, tuple[int, ...]] = {
        "w": (8, 16), "b": (16,), "w2": (16, 8), "scale": (8,), "bias": (8,),
    }  # fmt: skip
    constants = {name: _floats(i, *shape) for i, (name, shape) in enumerate(shapes.items())}
    constants |= {"root": _number(2**0.5), "one": _number(1), "half": _number(0.5), "factor": _number(0.35)}
    return _file(nodes, [1, 6, 8], 3, constants)


def _gelus() -> bytes:
    """Gelu by a sigmoid, and by tanh behind a bias."""
    nodes = [
        _node("MatMul", ["x", "w"], ["p"]),
        _node("Mul", ["p", "c"], ["a"]),
        _node("Sigmoid", ["a"], ["s"]),
        _node("Mul", ["p", "s"], ["q"]),
        _node("MatMul", ["q", "w2"], ["o"]),
        _node("Add", ["o", "b2"], ["o2"]),
        _node("Pow", ["o2", "three"], ["t3"]),
        _node("Mul", ["t3", "k1"], ["t4"]),
        _node("Add", ["o2", "t4"], ["t5"]),
        _node("Mul", ["t5", "k2"], ["t6"]),
        _node("Tanh", ["t6"], ["t7"]),
        _node("Add", ["t7", "one"], ["t8"]),
        _node("Mul", ["o2", "half"], ["t9"]),
        _node("Mul", ["t9", "t8"], ["y"]),
    ]
    constants = {"w": _floats(1, 8, 8), "w2": _floats(2, 8, 4), "b2": _floats(3, 4)}
    numbers = {"c": 1.702, "three": 3, "k1": 0.044715, "k2": 0.7978845608, "one": 1, "half": 0.5}
    return _file(nodes, [1, 5, 8], 3, {**constants, **{n: _number(v) for n, v in numbers.items()}})


NETWORKS = {"images": _images, "attention": _attention, "gelus": _gelus}


def _session(data: bytes, level: str = "BASIC", to: Path | None = None) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    options.log_severity_level = 4
    if to is not None:
        options.optimized_model_filepath = str(to)
    return ort.InferenceSession(data, options)


def _assert_alike(graph: Graph, data: bytes) -> None:
    session = _session(data)
    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=session.get_inputs()[0].shape).astype(np.float32)
        ((y,),) = graph.run([(x,)])
        expected = np.asarray(session.run(None, {"x": x})[0])
        np.testing.assert_allclose(y.astype(np.float64), expected.astype(np.float64), rtol=1e-4, atol=2e-6)


def _codes(file: Path) -> set[str]:
    return {node.op_type for node in onnx.load(file).graph.node if node.domain.startswith("com.microsoft")}


@pytest.mark.parametrize("level", _LEVELS)
@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_optimised_files(name: str, is_dynamic: bool, level: str, tmp_path: Path) -> None:
    data, optimised = NETWORKS[name](), tmp_path / "optimised.onnx"
    if is_dynamic:
        from onnxruntime.quantization import quantize_dynamic

        (tmp_path / "float.onnx").write_bytes(data)
        quantize_dynamic(tmp_path / "float.onnx", tmp_path / "dynamic.onnx")
        data = (tmp_path / "dynamic.onnx").read_bytes()
    _session(data, level, optimised)
    if any(node.domain == "com.microsoft.nchwc" for node in onnx.load(optimised).graph.node):
        with pytest.raises(UnsupportedError, match="in the layout of the computer") as error:
            load_onnx(optimised)
        assert "ORT_ENABLE_BASIC" in error.value.hint
        return
    assert bool(_codes(optimised)) is (level != "BASIC")
    _assert_alike(load_onnx(optimised), data)


def _single(code: str, inputs: Sequence[str], constants: Mapping[str, Array], **attributes: Any) -> bytes:
    fused = _node(code, inputs, ["y"], domain="com.microsoft", **attributes)
    data = _file([fused], [2, 8], 2, constants)
    model = onnx.load_from_string(data)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(
    "data",
    [
        _single("BiasGelu", ["x", "b"], {"b": _floats(1, 8)}),
        _single("FastGelu", ["x"], {}),
        _single("FastGelu", ["x", "b"], {"b": _floats(1, 8)}),
        _single("QuickGelu", ["x"], {}, alpha=1.2),
        _single("FusedMatMul", ["x", "w"], {"w": _floats(1, 5, 8)}, transB=1, alpha=0.3),
        _single("FusedMatMul", ["x", "w"], {"w": _floats(1, 2, 5)}, transA=1),
        _single(
            "FusedGemm",
            ["x", "w", "b"],
            {"w": _floats(1, 5, 8), "b": _floats(2, 5)},
            transB=1,
            activation="LeakyRelu",
            activation_alpha=0.2,
        ),
        _single(
            "SkipLayerNormalization",
            ["x", "s", "g", "", "b"],
            {"s": _floats(1, 2, 8), "g": _floats(2, 8), "b": _floats(3, 8)},
            epsilon=1e-4,
        ),
    ],
    ids=lambda data: onnx.load_from_string(data).graph.node[0].op_type,
)
def test_single_operators(data: bytes) -> None:
    _assert_alike(load_onnx(data), data)
