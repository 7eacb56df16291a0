"""Layer by layer: what the device computes is read there, and a kernel that is wrong is named."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from crtgen import api
from crtgen.base.errors import RemoteError, UnsupportedError, UsageError
from crtgen.compiler.codegen.module import Interface
from crtgen.device.session import Session
from crtgen.lab.measure.against import losses, within_range
from crtgen.lab.measure.cases import ReferenceRun, first_runs, random_inputs
from crtgen.lab.measure.layers import compare_values, verify_layers
from crtgen.lab.measure.quantization import quantize
from crtgen.network.frontends import load, load_onnx
from crtgen.network.ir import Graph
from tests.support import ROOT, model_path
from tests.tflite_builder import Model, Operator, Options, Tensor

DIGITS = ROOT / "demo" / "digits.tflite"


def _graph(name: str) -> Graph:
    model = api.load(model_path(name))
    assert isinstance(model, api.Model)
    return model.graph


def _cases(session: Session, steps: int = 1) -> list[ReferenceRun]:
    return [
        ReferenceRun(f"random{seed}", random_inputs(session.model().inputs, seed), (), seed > 0)
        for seed in range(steps)
    ]


@pytest.mark.cc
@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_every_layer_is_as_the_reference_says(executor: str) -> None:
    compiled = api.load(DIGITS).compile("host", executor=executor)
    with compiled.generate(profile=True).build().run() as session:
        verdicts = verify_layers(session, compiled.plans[0], _cases(session))
        names = [layer.name for layer in session.model().layers]
    assert [v.layer for v in verdicts] == names
    assert not any(v.wrong for v in verdicts)


def _deep(path: Path, layers: int) -> Path:
    """A network of so many fully connected layers of two outputs."""
    weights = np.array([[100, -60], [50, 110]], np.int8)
    tensors = [Tensor("x0", (1, 2), "int8", (0.05,), (0,))]
    operators = []
    for n in range(layers):
        tensors += [
            Tensor(f"w{n}", (2, 2), "int8", (0.01,), (0,), data=np.roll(weights, n)),
            Tensor(f"x{n + 1}", (1, 2), "int8", (0.05,), (0,)),
        ]
        operators.append(
            Operator(
                "FULLY_CONNECTED",
                [f"x{n}", f"w{n}", None],
                [f"x{n + 1}"],
                Options("FullyConnectedOptions"),
                version=4,
            )
        )
    path.write_bytes(Model(tensors, operators, ["x0"], [f"x{layers}"]).to_bytes())
    return path


@pytest.mark.cc
@pytest.mark.parametrize("layers", [24, 60])
def test_layers_of_a_deep_network_come_in_several_answers(tmp_path: Path, layers: int) -> None:
    """A packet of 256 bytes has room for 24; each layer took some time, and is named once."""
    compiled = api.load(_deep(tmp_path / "deep.tflite", layers)).compile("host")
    with compiled.generate(profile=True, receive_buffer=256).build().run() as session:
        ticks = session.profile()
        assert len(ticks) == len(session.model().layers) == layers
        assert min(ticks) > 0


@pytest.mark.cc
def test_a_broken_kernel_is_named() -> None:
    compiled = api.load(DIGITS).compile("host")
    (module,) = compiled.modules
    layers = module.info.layers
    broken = next(layer for layer in layers[1:] if layer.macs)
    name = f"{module.info.name}_kernels.c"
    text = module.files[name]
    start = text.index(f"void {broken.function}(")
    brace = text.index("\n}\n", start)
    wrong = f"{text[:brace]}\n    y0[3] = (int8_t)(y0[3] + 2);{text[brace:]}"
    changed = replace(module, files={**module.files, name: wrong})
    part = replace(compiled.parts[0], module=changed)
    with replace(compiled, parts=(part,)).generate(profile=True).build().run() as session:
        verdicts = verify_layers(session, compiled.plans[0], _cases(session))
    first = next(v for v in verdicts if v.wrong)
    assert (first.layer, first.kernel) == (broken.name, broken.kernel)
    assert first.wrong is not None
    assert np.ravel_multi_index(first.wrong.index, compiled.plans[0].graph.values[first.value].shape) == 3
    assert (first.wrong.steps, first.wrong.count) == (2, 1)


@pytest.mark.cc
def test_what_is_kept_from_run_to_run() -> None:
    """The last run of a sequence is watched; large values come in parts."""
    path = model_path("kws_int8")
    compiled = api.load(path).compile("host")
    with compiled.generate(profile=True, pool=1024).build().run() as session:
        verdicts = verify_layers(session, compiled.plans[0], _cases(session, 2))
    assert not any(v.wrong for v in verdicts)
    assert len(verdicts) == 13


@pytest.mark.cc
def test_the_device_refuses_what_is_not_there() -> None:
    compiled = api.load(DIGITS).compile("host")
    with compiled.generate(profile=True).build().run() as session:
        info = session.model()
        runs = [case.inputs for case in _cases(session)]
        for layer, offset, nbytes in ((len(info.layers), 0, 16), (0, info.arena, 1), (0, info.arena - 8, 16)):
            with pytest.raises(RemoteError, match="no such layer, or no such place"):
                session.watch(runs, layer, offset, nbytes)
        assert len(session.watch(runs, 0, info.arena - 16, 16)) == 16
    with (
        compiled.generate().build().run() as session,
        pytest.raises(UnsupportedError, match="cannot watch layers"),
    ):
        session.watch([case.inputs for case in _cases(session)], 0, 0, 16)


def test_integers_are_equal_and_floats_near() -> None:
    numbers = np.array([[1, 2], [3, 4]], np.int8)
    assert compare_values(numbers, numbers) is None
    wrong = compare_values(numbers, numbers + np.array([[0, 0], [0, 3]], np.int8))
    assert wrong is not None
    assert (wrong.index, wrong.expected, wrong.actual, wrong.steps) == ((1, 1), 4, 7, 3)
    assert (wrong.count, wrong.total) == (1, 4)
    reals = np.array([1.0, -100.0, np.nan, np.inf], np.float32)
    assert compare_values(reals, reals) is None
    assert compare_values(reals, reals + np.float32(0.0009)) is None
    next_one = np.nextafter(reals[:2], np.float32(np.inf), dtype=np.float32)
    tiny = np.array([1e-3, 1e-3], np.float32)
    assert compare_values(tiny, np.array([1e-3, 2e-3], np.float32)).index == (1,)  # type: ignore[union-attr]
    assert compare_values(reals[:2], next_one) is None
    across = compare_values(np.array([1e-45], np.float32), np.array([-1e-45], np.float32))
    assert across is not None
    assert across.steps == 2


def test_what_a_quantised_network_loses() -> None:
    ours, theirs = (_graph(name) for name in ("ad01_int8", "ad01_float32"))
    inputs = [np.zeros((1, 640), np.int8), np.full((1, 640), 90, np.int8)]
    cases = [ReferenceRun(str(i), (x,), ()) for i, x in enumerate(inputs)]
    found = losses(ours, theirs, cases)
    assert [loss.operator for loss in found] == ["fully_connected"] * 10
    value, given = ours.values[found[0].value], ours.values[ours.inputs[0]]
    assert value.quant is not None
    assert given.quant is not None
    near = ours.evaluate({given.name: inputs[0]})[value.name].astype(float)
    real_inputs = ((inputs[0] - float(given.quant.zero_point)) * given.quant.scale).astype(np.float32)
    real = theirs.evaluate({theirs.inputs[0]: real_inputs})[value.name].astype(float)
    error = (near - value.quant.zero_point) * value.quant.scale - real
    alone = losses(ours, theirs, cases[:1])[0]
    assert alone.largest == pytest.approx(np.abs(error).max())
    assert alone.sqnr == pytest.approx(20 * np.log10(np.linalg.norm(real) / np.linalg.norm(error)))
    assert sum(alone.histogram) == error.size
    assert losses(ours, ours, cases)[3].to_dict()["sqnr"] is None  # infinite: nothing is lost


def test_networks_that_have_nothing_in_common() -> None:
    ours = _graph("ad01_int8")
    with pytest.raises(UsageError, match="the inputs of the two networks differ in shape"):
        losses(ours, _graph("kws_int8"), [])


def _onnx(x: Sequence[int], y: Sequence[int], axis: int) -> Graph:
    """The input beside its negative, along the channels."""
    nodes = [helper.make_node("Neg", ["x"], ["n"]), helper.make_node("Concat", ["x", "n"], ["y"], axis=axis)]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", x), ("y", y))]
    made = helper.make_model(helper.make_graph(nodes, "net", ends[:1], ends[1:]), ir_version=10)
    made.opset_import[0].version = 21
    return load_onnx(made.SerializeToString())


def test_channels_first_and_last_are_one_network() -> None:
    """Also a value whose lengths do not tell in which order they are."""
    first, last = _onnx((1, 1, 2, 2), (1, 2, 2, 2), 1), _onnx((1, 2, 2, 1), (1, 2, 2, 2), 3)
    image = np.array([[1, -2], [3, 0.5]], np.float32)
    for ours, theirs in ((first, last), (last, first)):
        case = ReferenceRun("0", (image.reshape(ours.values[ours.inputs[0]].shape),), ())
        found = losses(ours, theirs, [case])
        assert [(loss.value, loss.largest) for loss in found] == [("neg", 0), ("y", 0)]


def test_the_demonstration_as_tflite_and_as_onnx() -> None:
    """Quantised with channels last, and of floats with channels first."""
    ours, theirs = (load(DIGITS.with_suffix(suffix)) for suffix in (".tflite", ".onnx"))
    with np.load(DIGITS.with_suffix(".npz")) as given:
        cases = [ReferenceRun(str(i), (given[f"case{i}_input0"],), ()) for i in range(4)]
    (found,) = losses(ours, theirs, cases)
    assert found.value == "probabilities"
    assert 40 < found.sqnr < 60


def test_no_layer_is_blamed_for_its_activation_or_for_inputs_out_of_range(tmp_path: Path) -> None:
    """ReLU is within the convolutions of the quantised network, whose input was from 0 to 16."""
    source, made = DIGITS.with_suffix(".onnx"), tmp_path / "digits.onnx"
    quantize(source, source.with_name("digits_images.npz"), made)
    ours, theirs = load(made), load(source)
    drawn = [ReferenceRun(str(i), random_inputs(_interfaces(ours), i), ()) for i in range(4)]
    cases = within_range(drawn, ours, theirs)
    inputs = np.stack([case.inputs[0] for case in cases])
    low, high = float(inputs.min()), float(inputs.max())
    assert 0 <= low < 1
    assert 15 < high <= 16
    found = {loss.value: loss for loss in losses(ours, theirs, cases)}
    assert min(loss.sqnr for loss in found.values()) > 20
    values = np.stack([theirs.evaluate({theirs.inputs[0]: case.inputs[0]})["conv1_conv2d"] for case in cases])
    assert float(values.min()) < 0
    assert found["conv1_conv2d"].range == pytest.approx(float(values.max()))
    back = within_range(drawn, theirs, ours)  # the quantised network is the other one
    np.testing.assert_array_equal(back[0].inputs[0], cases[0].inputs[0])


def _interfaces(graph: Graph) -> list[Interface]:
    values = [graph.values[name] for name in graph.inputs]
    return [Interface(v.name, v.name, v.shape, v.dtype, v.quant, v.nbytes) for v in values]


def test_the_first_case_and_its_steps() -> None:
    cases = [
        ReferenceRun(str(i), (), (), follows) for i, follows in enumerate((False, True, True, False, True))
    ]
    assert [case.name for case in first_runs(cases)] == ["0", "1", "2"]
