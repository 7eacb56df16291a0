"""Constants that layers have in common are in flash once."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import crtgen
from tests.support import nightly, require_tool

STEPS, UNITS = 6, 16


def unrolled(path: Path) -> Path:
    """A simple recurrent layer over six steps, as exporters write it that know no loops."""
    rng = np.random.default_rng(3)
    arrays = {
        "w": rng.normal(size=(UNITS, UNITS)).astype(np.float32) * 0.3,
        "r": rng.normal(size=(UNITS, UNITS)).astype(np.float32) * 0.3,
        "b": rng.normal(size=UNITS).astype(np.float32),
        "h": np.zeros((1, UNITS), np.float32),
    }
    nodes = [
        helper.make_node("Split", ["x"], [f"x{t}" for t in range(STEPS)], axis=0, num_outputs=STEPS),
    ]
    state = "h"
    for t in range(STEPS):
        nodes += [
            helper.make_node("Gemm", [f"x{t}", "w", "b"], [f"i{t}"]),
            helper.make_node("MatMul", [state, "r"], [f"s{t}"]),
            helper.make_node("Add", [f"i{t}", f"s{t}"], [f"a{t}"]),
            helper.make_node("Tanh", [f"a{t}"], [f"h{t}"]),
        ]
        state = f"h{t}"
    graph = helper.make_graph(
        nodes,
        "unrolled",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [STEPS, UNITS])],
        [helper.make_tensor_value_info(state, TensorProto.FLOAT, [1, UNITS])],
        [numpy_helper.from_array(data, name) for name, data in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.save(model, str(path))
    return path


@pytest.mark.parametrize("board", ["mps2_an385", "mps2_an386", "mps3_an547"])
def test_weights_of_an_unrolled_layer_are_there_once(tmp_path: Path, board: str) -> None:
    compiled = crtgen.load(unrolled(tmp_path / "unrolled.onnx")).compile(board)
    (module,) = compiled.modules
    kernels = sum(s.kernel.cost.constants for plan in compiled.plans for s in plan.all_steps())
    flash = sum(param.nbytes for param in module.params)
    assert kernels > 4 * flash
    assert flash < 4 * (2 * UNITS * UNITS + 4 * UNITS)
    symbols = [symbol for layer in module.info.layers for symbol in layer.consts]
    assert len(symbols) > 2 * len({*symbols})
    assert {*symbols} == {param.symbol for param in module.params}


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("board", "target"), [("mps2_an386", "c"), nightly("mps2_an386", "llvm"), ("mps3_an547", "c")]
)
def test_it_computes_what_onnx_runtime_does(tmp_path: Path, board: str, target: str) -> None:
    require_tool("qemu-system-arm")
    ort = pytest.importorskip("onnxruntime")
    path = unrolled(tmp_path / "unrolled.onnx")
    x = np.random.default_rng(4).normal(size=(STEPS, UNITS)).astype(np.float32)
    (expected,) = ort.InferenceSession(str(path)).run(None, {"x": x})
    compiled = crtgen.load(path).compile(board)
    image = compiled.generate(target=target).build()
    assert image.size.sizes.flash < compiled.footprint().flash + 2048
    with image.run() as session:
        (y,) = session.infer(x)
    np.testing.assert_allclose(np.float32(y), expected, rtol=1e-5, atol=1e-6)


def test_the_size_of_a_layer_counts_what_it_shares(tmp_path: Path) -> None:
    """Sums over layers are no more than the file: what two layers share belongs to the first."""
    compiled = crtgen.load(unrolled(tmp_path / "unrolled.onnx")).compile("mps2_an386")
    image, (module,) = compiled.generate().build(), compiled.modules
    layers = image.size.layers["unrolled"]
    assert sum(layer.constants for layer in layers) == sum(param.nbytes for param in module.params)
