"""RNN, GRU and LSTM with everything that ONNX lets them have, against its equations in numpy."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, shape_inference

from crtgen.base.errors import UnsupportedError
from crtgen.network.frontends import load_onnx
from crtgen.network.ir import Graph
from crtgen.network.ops.recurrent import Recurrent
from tests.compiler.kernels.program import Run, run_on_host

Real = npt.NDArray[np.float64]
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def _model(op: str, data: dict[str, Real], outputs: Sequence[str], **attributes: Any) -> bytes:
    """``data`` are inputs by their role: ``x``, ``h`` and ``c`` are computed at run time."""
    roles = ["x", "w", "r", "b", "lengths", "h", "c", "p"]
    names = [role if role in data else "" for role in roles[: 6 if op != "LSTM" else 8]]
    node = helper.make_node(op, names, list(outputs), name="layer", **attributes)
    running = [n for n in names if n in ("x", "h", "c")]
    initial = [
        numpy_helper.from_array(data[n].astype(np.int32 if n == "lengths" else np.float32), n)
        for n in names
        if n and n not in running
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, data[n].shape) for n in running]
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs if n]
    graph = helper.make_graph([node], "net", ends, results, initial)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    data_of_file: bytes = shape_inference.infer_shapes(model).SerializeToString()
    return data_of_file


def _sigmoid(x: Real) -> Real:
    y: Real = 1 / (1 + np.exp(-x))
    return y


class Equations:
    """The steps of one sequence in one direction, as the specification has them."""

    def __init__(self, op: str, data: dict[str, Real], d: int, options: dict[str, Any]) -> None:
        size = data["r"].shape[2]
        self.op, self.options, clip = op, options, options.get("clip")
        self.w, self.r = (np.split(data[n][d], GATES[op]) for n in ("w", "r"))
        both = np.split(data["b"][d], 2 * GATES[op]) if "b" in data else [np.zeros(size)] * (2 * GATES[op])
        self.wb, self.rb = both[: GATES[op]], both[GATES[op] :]
        self.p = np.split(data["p"][d], 3) if "p" in data else [np.zeros(size)] * 3
        self.bound: Callable[[Real], Real] = (lambda v: np.clip(v, -clip, clip)) if clip else (lambda v: v)
        self.f, self.g, self.h = options.get("functions", (_sigmoid, np.tanh, np.tanh))

    def step(self, x: Real, h: Real, c: Real) -> tuple[Real, Real]:
        def sums(gate: int) -> Real:
            total: Real = self.w[gate] @ x + self.r[gate] @ h + self.wb[gate] + self.rb[gate]
            return total

        bound = self.bound
        if self.op == "RNN":
            return self.g(bound(sums(0))), c
        if self.op == "GRU":
            z, r = self.f(bound(sums(0))), self.f(bound(sums(1)))
            if self.options.get("linear_before_reset"):
                new = self.w[2] @ x + r * (self.r[2] @ h + self.rb[2]) + self.wb[2]
            else:
                new = self.w[2] @ x + self.r[2] @ (r * h) + self.rb[2] + self.wb[2]
            return (1 - z) * self.g(bound(new)) + z * h, c
        i = self.f(bound(sums(0) + self.p[0] * c))
        forget = self.f(bound(sums(2) + self.p[2] * c))
        if self.options.get("input_forget"):
            forget = 1 - i
        c = forget * c + i * self.g(bound(sums(3)))
        return self.f(bound(sums(1) + self.p[1] * c)) * self.h(c), c


def _expected(op: str, data: dict[str, Real], directions: Sequence[bool], **options: Any) -> list[Real]:
    """Y, Y_h and Y_c; time first."""
    steps, batch, _ = data["x"].shape
    size, count = data["r"].shape[2], len(directions)
    y, last = np.zeros((steps, count, batch, size)), np.zeros((2, count, batch, size))
    for d, back in enumerate(directions):
        cell = Equations(op, data, d, options)
        for b in range(batch):
            h, c = (data[n][d, b] if n in data else np.zeros(size) for n in ("h", "c"))
            length = int(data["lengths"][b]) if "lengths" in data else steps
            for t in list(range(length))[:: -1 if back else 1]:
                h, c = cell.step(data["x"][t, b], h, c)
                y[t, d, b] = h
            last[:, d, b] = h, c
    return [y, *last]


def _data(op: str, count: int, more: str, steps: int = 5, batch: int = 2, depth: int = 3) -> dict[str, Real]:
    random, size = np.random.default_rng(7), 4
    rows = GATES[op] * size
    shapes = {
        "x": (steps, batch, depth),
        "w": (count, rows, depth),
        "r": (count, rows, size),
        "b": (count, 2 * rows),
        "h": (count, batch, size),
        "c": (count, batch, size),
        "p": (count, 3 * size),
    }
    found = {n: random.uniform(-1, 1, s) for n, s in shapes.items() if n in "xwr" or n in more}
    if "n" in more:
        found["lengths"] = np.array([3, 5, 0, 1, 2, 4][:batch])
    return found


def _run(model: bytes, data: dict[str, Real], folder: Path) -> tuple[Graph, list[Real]]:
    """By the references, and as C on the host."""
    graph = load_onnx(model)
    inputs = {n: data[n].astype(np.float32) for n in graph.inputs}
    ((*outputs,),) = graph.run([[inputs[n] for n in graph.inputs]])
    (printed,) = run_on_host(folder, [Run("net", graph, inputs)])
    flat = np.concatenate([a.reshape(-1) for a in outputs])
    np.testing.assert_allclose(np.frombuffer(printed, np.float32), flat, rtol=1e-4, atol=1e-5)
    return graph, [a.astype(np.float64) for a in outputs]


DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@pytest.mark.cc
@pytest.mark.parametrize("direction", list(DIRECTIONS))
@pytest.mark.parametrize(
    ("op", "more", "options"),
    [
        ("RNN", "bhn", {"clip": 0.7}),
        ("GRU", "bh", {}),
        ("GRU", "bn", {"linear_before_reset": 1, "clip": 0.5}),
        ("LSTM", "bhcpn", {"clip": 0.8}),
        ("LSTM", "c", {"input_forget": 1}),
    ],
)
def test_equations(tmp_path: Path, op: str, more: str, options: dict[str, Any], direction: str) -> None:
    data = _data(op, len(DIRECTIONS[direction]), more)
    outputs = ["y", "last", "cell"][: 3 if op == "LSTM" else 2]
    model = _model(op, data, outputs, direction=direction, hidden_size=4, **options)
    _, found = _run(model, data, tmp_path)
    expected = _expected(op, data, DIRECTIONS[direction], **options)
    for got, wanted in zip(found, expected, strict=False):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.cc
def test_batch_first(tmp_path: Path) -> None:
    data = _data("LSTM", 2, "bhc")
    turned = {**data, **{n: data[n].swapaxes(0, 1) for n in "xhc"}}
    options = {"direction": "bidirectional", "hidden_size": 4, "layout": 1}
    _, found = _run(_model("LSTM", turned, ["y", "last", "cell"], **options), turned, tmp_path)
    y, last, cell = _expected("LSTM", data, (False, True))
    for got, wanted in zip(
        found, (y.transpose(2, 0, 1, 3), *(a.swapaxes(0, 1) for a in (last, cell))), strict=True
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_activations_take_their_numbers_in_order() -> None:
    data = _data("LSTM", 1, "b")
    names = ["HardSigmoid", "Softsign", "LeakyRelu"]
    options = {
        "activations": names,
        "activation_alpha": [0.3, 0.2],
        "activation_beta": [0.4],
        "hidden_size": 4,
    }
    graph = load_onnx(_model("LSTM", data, ["y"], **options))
    ((y,),) = graph.run([[data["x"].astype(np.float32)]])
    functions = (
        lambda v: np.clip(0.3 * v + 0.4, 0, 1),
        lambda v: v / (1 + np.abs(v)),
        lambda v: np.where(v >= 0, v, 0.2 * v),
    )
    (expected, _, _) = _expected("LSTM", data, (False,), functions=functions)
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=1e-4, atol=1e-5)


def test_outputs_that_nothing_reads_are_not_computed() -> None:
    data = _data("GRU", 1, "b")
    graph = load_onnx(_model("GRU", data, ["", "last"], hidden_size=4))
    (layer,) = graph.nodes
    assert isinstance(layer.op, Recurrent)
    assert layer.op.gives == (False, True, False)
    assert [graph.values[n].shape for n in layer.outputs] == [(1, 2, 4)]


def test_initial_states_of_zeros_take_no_flash() -> None:
    data = _data("LSTM", 1, "")
    model = _model("LSTM", {**data, "b": np.zeros((1, 32))}, ["y"], hidden_size=4)
    (layer,) = load_onnx(model).nodes
    assert isinstance(layer.op, Recurrent)
    assert layer.op.starts == (False, False)


def test_what_is_computed_at_run_time() -> None:
    data = _data("RNN", 1, "")
    node = helper.make_node("RNN", ["x", "w", "r"], ["y"], name="layer", hidden_size=4)
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, data[n].shape) for n in ("x", "w", "r")]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, (5, 1, 2, 4))
    graph = helper.make_graph([node], "net", ends, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with pytest.raises(UnsupportedError, match="RNN: weights that are computed at run time"):
        load_onnx(model.SerializeToString())


def _by_runtime(model: bytes, data: dict[str, Real]) -> list[Real]:
    onnxruntime.set_default_logger_severity(3)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    feeds = {i.name: data[i.name].astype(np.float32) for i in session.get_inputs()}
    return [np.asarray(y, np.float64) for y in session.run(None, feeds)]


@pytest.mark.parametrize("direction", list(DIRECTIONS))
@pytest.mark.parametrize("op", list(GATES))
def test_onnx_runtime(op: str, direction: str) -> None:
    """Random sizes, with and without what is optional."""
    count = len(DIRECTIONS[direction])
    for seed in range(6):
        random = np.random.default_rng(seed)
        steps, batch, depth = (int(n) for n in random.integers(1, 9, 3))
        more = "".join(n for n in ("bhc" if op == "LSTM" else "bh") if random.random() < 0.6)
        if op == "LSTM" and ("h" in more) != ("c" in more):
            more = more.replace("h", "").replace("c", "")
        options: dict[str, Any] = {"direction": direction, "hidden_size": 4}
        if op == "GRU":
            options["linear_before_reset"] = int(random.integers(0, 2))
        data = _data(op, count, more, steps, batch, depth)
        model = _model(op, data, ["y", "last", "cell"][: 3 if op == "LSTM" else 2], **options)
        graph = load_onnx(model)
        ((*found,),) = graph.run([[data[n].astype(np.float32) for n in graph.inputs]])
        for got, wanted in zip(found, _by_runtime(model, data), strict=True):
            np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=1e-4, atol=1e-5)
