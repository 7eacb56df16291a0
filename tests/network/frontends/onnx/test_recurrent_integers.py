"""LSTM and GRU of quantised files: near ONNX Runtime, and equal to the definition, written down once more."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, shape_inference

from crtgen.boards.core import find_core
from crtgen.network.frontends import load_onnx
from crtgen.network.ir import DType, Graph, Quant
from crtgen.network.ops.case import int8s, int16s
from crtgen.network.ops.gru import Gru, gru_case
from crtgen.network.ops.sigmoid16 import Sigmoid16Params, logistic16, tanh16
from crtgen.network.passes import DEFAULT_PASSES, run_passes
from tests.compiler.kernels.program import Run, check_outputs, run_on_host, run_on_qemu
from tests.support import nightly

Real = npt.NDArray[np.float32]
GATES = {"LSTM": 4, "GRU": 3}
STEPS, BATCH, DEPTH, UNITS = 7, 2, 5, 6
_KINDS = {"int8": (np.int8, 3), "uint8": (np.uint8, 131), "int16": (np.int16, 0)}


@dataclass(frozen=True)
class Form:
    """A quantised layer. ``weights`` are "own" (int8), "uneven" (uint8 with a zero point), or "short"."""

    op: str
    kind: str
    direction: str = "forward"
    weights: str = "own"
    starts: str = ""
    outputs: Sequence[str] = ("y", "yh")

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    def __str__(self) -> str:
        parts = (self.op, self.kind, self.direction, self.weights, self.starts, *self.outputs)
        return "-".join(filter(None, parts))


FORMS = [
    *(Form(op, kind) for op in GATES for kind in _KINDS),
    *(Form(op, kind, "bidirectional") for op in GATES for kind in ("uint8", "int16")),
    *(Form(op, "int8", "reverse", outputs=("yh",)) for op in GATES),
    *(Form(op, "uint8", "bidirectional", "uneven", "constant", ("y",)) for op in GATES),
    *(Form(op, "int8", weights="uneven", starts="computed") for op in GATES),
    *(Form(op, "int16", weights="short", starts="constant", outputs=("yh", "y")) for op in GATES),
    Form("LSTM", "int8", "bidirectional", starts="computed", outputs=("y", "yc")),
    Form("LSTM", "int16", starts="constant", outputs=("yc", "y")),
]


def recurrent_model(form: Form, **attributes: Any) -> bytes:
    rng, d, gates = np.random.default_rng(5), form.directions, GATES[form.op]
    kind, zero = _KINDS[form.kind]
    nodes, held, inputs = [], {}, {"x": (STEPS, BATCH, DEPTH)}

    def pair(name: str, scale: float, offset: int = zero) -> str:
        held[f"{name}_s"], held[f"{name}_z"] = np.array(scale, np.float32), np.array(offset, kind)
        parts = [f"{name}_s", f"{name}_z"]
        nodes.append(helper.make_node("QuantizeLinear", [name, *parts], [f"{name}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", *parts], [f"{name}_d"]))
        return f"{name}_d"

    span = 30000 if form.kind == "int16" else 120
    names = [pair("x", 3.0 / span)]
    for name, depth in (("w", DEPTH), ("r", UNITS)):
        real = rng.uniform(-1, 1, (d, gates * UNITS, depth))
        low, high, type_, middle = {
            "own": (-127, 127, np.int8, 0),
            "uneven": (0, 255, np.uint8, 120),
            "short": (-32767, 32767, np.int16, 0),
        }[form.weights]
        scale = 2.2 / (high - low)
        held[f"{name}_q"] = np.clip(np.rint(real / scale) + middle, low, high).astype(type_)
        held[f"{name}_s"], held[f"{name}_z"] = np.array(scale, np.float32), np.array(middle, type_)
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_{p}" for p in "qsz"], [name]))
        names.append(name)
    held["b"] = rng.uniform(-0.5, 0.5, (d, 2 * gates * UNITS)).astype(np.float32)
    names += ["b", ""]
    for state in ("h", "c")[: gates - 2] if form.starts else ():
        shape = (d, BATCH, UNITS)
        if form.starts == "constant":
            held[state] = rng.uniform(-0.9, 0.9, shape).astype(np.float32)
        else:
            inputs[state] = shape
        names.append(state)
    fields = dict(hidden_size=UNITS, direction=form.direction, **attributes)
    if form.op == "GRU":
        fields = {"linear_before_reset": 1, **fields}
    made = [name if name in form.outputs else "" for name in ("y", "yh", "yc")[: gates - 1]]
    nodes.append(helper.make_node(form.op, names, made, name="layer", **fields))
    results = []
    for name in form.outputs:
        # the last hidden state has a scale of its own
        results.append(name if name == "yc" else pair(name, (1.0 if name == "y" else 0.97) / span))
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in results],
        [numpy_helper.from_array(a, n) for n, a in held.items()],
    )
    opsets = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    data: bytes = shape_inference.infer_shapes(model).SerializeToString()
    return data


def _graph(form: Form, **attributes: Any) -> Graph:
    return run_passes(load_onnx(recurrent_model(form, **attributes), "net"), DEFAULT_PASSES)[0]


def _inputs(graph: Graph) -> dict[str, Real]:
    rng = np.random.default_rng(11)
    return {n: rng.uniform(-1, 1, graph.values[n].shape).astype(np.float32) for n in graph.inputs}


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_layers_are_integers_near_onnx_runtime(form: Form) -> None:
    graph = _graph(form)
    layers = [n for n in graph.nodes if n.op.macs(graph.signature(n))]
    kind = DType.INT16 if form.kind == "int16" else DType.INT8
    assert [graph.signature(n).x.dtype for n in layers] == [kind] * form.directions
    given = _inputs(graph)
    session = onnxruntime.InferenceSession(recurrent_model(form), providers=["CPUExecutionProvider"])
    found = graph.evaluate(given)
    # Weights that are rounded to int8 differ by a 254th at most; else what is rounded are gates and states.
    bound = {"int8": 0.02, "uint8": 0.02, "int16": 0.0006 if form.weights == "own" else 0.02}[form.kind]
    for name, wanted in zip(graph.outputs, session.run(None, given), strict=True):
        assert found[name].shape == wanted.shape
        got = np.asarray(found[name], np.float64)
        np.testing.assert_allclose(got, wanted, atol=bound * (2 if "yc" in name else 1))


@pytest.mark.parametrize(
    "attributes",
    [{"clip": 0.5}, {"activations": ["Relu", "Tanh"]}, {"linear_before_reset": 0}],
    ids=["clip", "activations", "before"],
)
def test_others_stay_float32(attributes: dict[str, Any]) -> None:
    graph = _graph(Form("GRU", "int8"), **attributes)
    assert [n.op.name for n in graph.nodes if n.op.macs(graph.signature(n))] == ["recurrent"]


def _rescaled(x: int, factor: tuple[int, int]) -> int:
    # TFLite's rescaling, rounded twice: a doubled high product, then a shift whose halves go away from zero.
    multiplier, shift = factor
    product = (x << max(shift, 0)) * multiplier
    nudged = product + ((1 << 30) if product >= 0 else 1 - (1 << 30))
    high = nudged >> 31 if nudged >= 0 else -(-nudged >> 31)
    right = max(-shift, 0)
    rounded = abs(high) + (1 << right >> 1)
    return (rounded >> right) * (1 if high >= 0 else -1)


def _wide(x: int, factor: tuple[int, int]) -> int:
    multiplier, shift = min((factor[0] + (1 << 15)) >> 16, 0x7FFF), 15 - factor[1]
    return (x * multiplier + (1 << (shift - 1))) >> shift


def _short(x: int) -> int:
    return max(-32768, min(32767, x))


@pytest.mark.parametrize("kind", ["int8", "int16"])
def test_a_gru_is_its_definition(kind: str) -> None:
    """The steps of docs/quantised-onnx.md, in Python's integers, one unit after the other."""
    x = int8s("x", (1, 3, 4), 0.05, -7) if kind == "int8" else int16s("x", (1, 3, 4), 0.0002)
    case = gru_case("own", Gru(), x, 5, Quant.tensor(0.006, 9) if kind == "int8" else Quant.tensor(2.0**-15))
    arrays = [v.data if v.data is not None else case.inputs(3)[v.name] for v in case.sig.inputs]
    p, scale = case.op.parameters(case.sig), _rescaled if kind == "int8" else _wide  # type: ignore[attr-defined]
    xs, hidden, state, w, r, b, c = (np.asarray(a).astype(object) for a in arrays)
    low, high = (-128, 127) if kind == "int8" else (-32768, 32767)
    h, s, sigma = list(hidden[0]), list(state[0]), Sigmoid16Params(3, 0)
    for given in xs[0]:
        before, after = list(h), []
        for u in range(5):
            a, o = [], []
            for g in range(3):
                fresh = sum(w[g, u, i] * (given[i] + p.input_offset) for i in range(4)) + b[g, u]
                old = sum(r[g, u, i] * (before[i] + p.hidden_offset) for i in range(5)) + c[g, u]
                a.append(_short(scale(fresh, p.of_input[g])))
                o.append(_short(scale(old, p.of_hidden[g])))
            z, reset = (int(logistic16(sigma, np.array(_short(a[g] + o[g])))) for g in range(2))
            n = int(tanh16(sigma, np.array(_short(a[2] + ((reset * o[2] + 16384) >> 15)))))
            s[u] = (z * s[u] + (32768 - z) * n + 16384) >> 15
            after.append(max(low, min(high, _rescaled(s[u], p.output) + p.output_offset)))
        h = after
    _, last, kept = case.op.reference(case.sig, arrays)
    assert last[0].tolist() == h
    assert kept[0].tolist() == s


def _runs(forms: Sequence[Form]) -> list[Run]:
    graphs = [(str(form), _graph(form)) for form in forms]
    return [Run(name, graph, _inputs(graph)) for name, graph in graphs]


def _check(runs: list[Run], outputs: list[bytes]) -> None:
    wrong = [text for run, out in zip(runs, outputs, strict=True) if (text := check_outputs(run, out))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.cc
def test_host(tmp_path: Path) -> None:
    runs = _runs([form for form in FORMS if form.starts or form.outputs == ("yh",)])
    _check(runs, run_on_host(tmp_path, runs))


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("machine", "core"),
    [
        ("mps2-an385", "cortex-m0plus"),
        nightly("mps2-an385", "cortex-m3"),
        nightly("mps2-an386", "cortex-m4"),
        ("mps3-an547", "cortex-m55"),
    ],
)
def test_qemu(tmp_path: Path, machine: str, core: str) -> None:
    runs = _runs([form for form in FORMS if form.starts and form.directions == 1][:4])
    _check(runs, run_on_qemu(tmp_path, runs, machine, find_core(core)))
