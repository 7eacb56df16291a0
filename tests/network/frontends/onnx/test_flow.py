"""If, Loop and Scan: constant conditions, control flow, and what cannot be static."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnx.shape_inference
import pytest
from onnx.reference import ReferenceEvaluator

from crtgen.base.errors import UnsupportedError
from crtgen.compiler.kernels import Target
from crtgen.compiler.plan import plan_model
from crtgen.network.frontends import load_onnx
from crtgen.network.ir import Array, Graph
from crtgen.network.ops.control import If, While
from crtgen.network.passes import DEFAULT_PASSES, run_passes
from tests.compiler.kernels.program import Run, run_plans_on_host

HEAD = '<ir_version: 10, opset_import: ["" : 21]>'


def _model(text: str) -> Any:
    return onnx.shape_inference.infer_shapes(onnx.parser.parse_model(f"{HEAD} {text}"))


def _check(text: str, folder: Path, **inputs: Array) -> Graph:
    """References and generated C give what the package's evaluator does."""
    model = _model(text)
    graph = load_onnx(model.SerializeToString())
    feeds = {name: inputs[name] for name in graph.inputs}
    expected = [np.asarray(a) for a in ReferenceEvaluator(model).run(None, inputs)]
    ((*outputs,),) = graph.run([list(feeds.values())])
    for got, wanted in zip(outputs, expected, strict=True):
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(got.astype(float), wanted.astype(float), rtol=1e-5, atol=1e-6)
    final = run_passes(graph, DEFAULT_PASSES)[0]
    plan = plan_model(final, Target())[0]
    (printed,) = run_plans_on_host(folder, [(Run("net", final, feeds), plan)])
    flat = b"".join(np.ascontiguousarray(a).tobytes() for a in outputs)
    assert len(printed) == len(flat)
    offset = 0
    for array in outputs:
        got = np.frombuffer(printed, array.dtype, array.size, offset).tolist()
        np.testing.assert_allclose(got, array.reshape(-1).tolist(), rtol=1e-5, atol=1e-6)
        offset += array.nbytes
    return graph


def _x(*shape: int) -> Array:
    return np.random.default_rng(3).normal(size=shape).astype(np.float32)


BRANCH = """net (float[2,3] x, bool c) => (float[2,3] y) {
    s = Constant <value: tensor = float[3] {1, 2, 3}> ()
    a = Mul (x, s)
    y = If (c) <then_branch: graph = t () => (float[2,3] r) { r = Add (a, x) },
                else_branch: graph = e () => (float[2,3] r) { n = Neg (a)  r = Add (n, s) }>
}"""


@pytest.mark.cc
@pytest.mark.parametrize("condition", [True, False])
def test_a_branch_reads_what_is_around_it(tmp_path: Path, condition: bool) -> None:
    graph = _check(BRANCH, tmp_path, x=_x(2, 3), c=np.array(condition))
    assert sum(isinstance(node.op, If) for node in graph.nodes) == 1


@pytest.mark.parametrize("condition", [True, False])
def test_a_condition_that_is_constant_leaves_one_branch(condition: bool) -> None:
    model = _model(BRANCH)
    graph = load_onnx(model.SerializeToString(), fixed={"c": np.array(condition)})
    assert not any(isinstance(node.op, If) for node in graph.nodes)
    x = _x(2, 3)
    ((y,),) = graph.run([[x]])
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x, "c": np.array(condition)})
    np.testing.assert_allclose(y.astype(float), np.asarray(wanted, float), rtol=1e-6)
    assert graph.outputs == ("y",)


def test_branches_of_different_shapes() -> None:
    text = """net (float[4] x, bool c) => (float[n] y) {
        y = If (c) <then_branch: graph = t () => (float[4] r) { r = Identity (x) },
                    else_branch: graph = e () => (float[2] r) { r = Constant <value_floats = [1.0, 2.0]> () }>
    }"""
    with pytest.raises(UnsupportedError, match="If: branches whose outputs differ in shape"):
        load_onnx(onnx.parser.parse_model(f"{HEAD} {text}").SerializeToString())


LOOP = """net (float[2] x) => (float[2] last, float[4,2] all) {
    count = Constant <value: tensor = int64 {4}> ()
    going = Constant <value: tensor = bool {1}> ()
    step = Constant <value: tensor = float[2] {0.5, -1}> ()
    last, all = Loop (count, going, x) <body: graph = b (int64 i, bool c, float[2] s)
        => (bool d, float[2] t, float[2] o) {
        d = Identity (c)  f = Cast <to: int = 1> (i)  p = Mul (step, f)  t = Add (s, p)  o = Mul (t, x)
    }>
}"""


@pytest.mark.cc
def test_a_loop_of_constant_length_collects(tmp_path: Path) -> None:
    graph = _check(LOOP, tmp_path, x=_x(2))
    assert sum(isinstance(node.op, While) for node in graph.nodes) == 1


@pytest.mark.cc
@pytest.mark.parametrize("limit", [0, 3, 100])
def test_a_loop_by_a_condition(tmp_path: Path, limit: int) -> None:
    text = """net (float[3] x, int64 n) => (float[3] y, int64 rounds) {
        most = Constant <value: tensor = float {20}> ()  one = Constant <value: tensor = int64 {1}> ()
        zero = Constant <value: tensor = int64 {0}> ()  going = Constant <value: tensor = bool {1}> ()
        y, rounds = Loop (n, going, x, zero) <body: graph = b (int64 i, bool c, float[3] s, int64 k)
            => (bool d, float[3] t, int64 m) {
            t = Add (s, s)  sum = ReduceSum <keepdims: int = 0> (t)  size = Abs (sum)  d = Less (size, most)
            m = Add (k, one)
        }>
    }"""
    _check(text, tmp_path, x=np.array([1, 0.25, -3], np.float32), n=np.array(limit, np.int64))


@pytest.mark.cc
def test_a_branch_within_a_loop(tmp_path: Path) -> None:
    text = """net (float[2] x, float[2] w) => (float[2] y) {
        count = Constant <value: tensor = int64 {5}> ()  two = Constant <value: tensor = int64 {2}> ()
        going = Constant <value: tensor = bool {1}> ()
        y = Loop (count, going, x) <body: graph = b (int64 i, bool c, float[2] s) => (bool d, float[2] t) {
            d = Identity (c)  late = Less (two, i)
            t = If (late) <then_branch: graph = p () => (float[2] r) { r = Mul (s, w) },
                           else_branch: graph = q () => (float[2] r) { r = Add (s, w) }>
        }>
    }"""
    _check(text, tmp_path, x=_x(2), w=np.array([2, -0.5], np.float32))


@pytest.mark.cc
def test_a_scan_along_other_axes_and_backwards(tmp_path: Path) -> None:
    text = """net (float[2] h, float[2,5,3] x, float[5,2] g) => (float[2] last, float[2,5] all) {
        w = Constant <value: tensor = float[3] {1, -0.5, 0.25}> ()
        axes = Constant <value: tensor = int64[1] {1}> ()
        last, all = Scan <num_scan_inputs: int = 2, scan_input_axes: ints = [1, 0],
            scan_input_directions: ints = [1, 0], scan_output_axes: ints = [1],
            scan_output_directions: ints = [1],
            body: graph = b (float[2] s, float[2,3] v, float[2] u) => (float[2] t, float[2] o) {
                p = Mul (v, w)  q = ReduceSum <keepdims: int = 0> (p, axes)  r = Add (s, q)
                t = Tanh (r)  o = Mul (t, u)
            }> (h, x, g)
    }"""
    model = onnx.parser.parse_model(f"{HEAD} {text}")
    graph = load_onnx(model.SerializeToString())
    h, x, g = _x(2), _x(2, 5, 3), _x(5, 2)
    ((last, everything),) = graph.run([[h, x, g]])
    state, rows = h.astype(np.float64), np.zeros((2, 5))
    for step in range(5):
        state = np.tanh(state + (x[:, 4 - step] * np.array([1, -0.5, 0.25])).sum(axis=1))
        rows[:, 4 - step] = state * g[step]
    np.testing.assert_allclose(last.astype(float), state, rtol=1e-5)
    np.testing.assert_allclose(everything.astype(float), rows, rtol=1e-5)


@pytest.mark.parametrize(
    ("loop", "reason"),
    [
        ("y, z = Loop (n, , x)", "outputs collected in a number of rounds that is not fixed"),
        ("y, z = Loop ( , , x)", "outputs collected in a number of rounds that is not fixed"),
    ],
)
def test_what_is_not_static(loop: str, reason: str) -> None:
    text = f"""net (float[2] x, int64 n) => (float[2] y, float[m,2] z) {{
        {loop} <body: graph = b (int64 i, bool c, float[2] s) => (bool d, float[2] t, float[2] o) {{
            d = Identity (c)  t = Add (s, s)  o = Identity (t)
        }}>
    }}"""
    with pytest.raises(UnsupportedError, match=reason):
        load_onnx(onnx.parser.parse_model(f"{HEAD} {text}").SerializeToString())
