"""CMSIS-NN: every operator that it does, bit for bit, where a copy of its sources is at hand."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import crtgen
from crtgen import api
from crtgen.api import Model
from crtgen.base.errors import UnsupportedError, UsageError
from crtgen.compiler.byoc import CmsisNn, External, partition
from crtgen.firmware.library.archive import read_tar
from crtgen.lab.measure.verification import verify
from crtgen.network.frontends import load_tflite
from crtgen.network.ir import Array, DType, Graph, Node, Op, Signature, Value
from crtgen.network.ops import Case, Conv2d, FullyConnected, Sub, all_cases
from tests.support import model_path, models_dir, require_tool
from tests.tflite_builder import Model as File
from tests.tflite_builder import Operator, Options, Tensor

_PER_IMAGE = 14


def archive() -> Path:
    return models_dir().parent / "mlf" / "kws_cmsisnn_m4_aot_usmp.tar"


def _require(board: str, generator: CmsisNn) -> None:
    """What builds and runs an image."""
    if board != "host":
        require_tool("qemu-system-arm")
    elif "stdint.h" not in (generator.sources.root / "Include/Internal/arm_nn_compiler.h").read_text():
        pytest.skip("CMSIS-NN before 5.0 does not build on the host")


def _single(generator: CmsisNn) -> tuple[type[Op], ...]:
    """The operators that are done each by itself."""
    return tuple(kind for kind, *more in generator.patterns if not more)


def _cases(generator: CmsisNn) -> list[Case]:
    cases = [c for c in all_cases() if isinstance(c.op, _single(generator))]
    return [c for c in cases if not generator.reason(c.op, c.sig)]


def _joined(cases: list[Case]) -> tuple[Graph, dict[str, Array]]:
    """One network of independent layers, and its inputs."""
    inputs: dict[str, Array] = {}
    values, nodes, outputs, states = [], [], [], []
    for case in cases:
        graph, given = case.graph(), case.inputs()
        names = {n: f"{case.name}_{n}" for n in graph.values}
        values += [replace(v, name=names[v.name]) for v in graph.values.values()]
        for node in graph.nodes:
            into, out = (tuple(names[n] for n in part) for part in (node.inputs, node.outputs))
            nodes.append(Node(case.name, node.op, into, out))
        inputs |= {names[n]: given[n] for n in graph.inputs}
        outputs += [names[n] for n in graph.outputs]
        states += [(names[a], names[b]) for a, b in graph.states]
    return Graph.build("cases", values, nodes, list(inputs), outputs, states), inputs


@pytest.mark.parametrize(
    "board",
    [
        pytest.param("host", marks=pytest.mark.cc),
        pytest.param("mps2_an385", marks=(pytest.mark.qemu, pytest.mark.nightly)),
        pytest.param("mps2_an386", marks=pytest.mark.qemu),
        pytest.param("mps3_an547", marks=pytest.mark.qemu),
    ],
)
def test_operators(cmsis_nn: CmsisNn, board: str) -> None:
    _require(board, cmsis_nn)
    cases = _cases(cmsis_nn)
    types = {(type(c.op), c.sig.x.dtype) for c in cases}
    assert {kind for kind, _ in types} == set(_single(cmsis_nn))
    assert len(types) == 27
    assert {type(c.op) for c in cases if DType.INT4 in {v.dtype for v in c.sig.inputs}} == {
        Conv2d,
        FullyConnected,
    }
    for start in range(0, len(cases), _PER_IMAGE):
        graph, inputs = _joined(cases[start : start + _PER_IMAGE])
        expected = graph.evaluate(inputs)
        compiled = Model(graph).compile(board, generators=[cmsis_nn])
        with compiled.generate().build().run(counting=False) as session:
            outputs = session.infer(*inputs.values())
        for name, found in zip(graph.outputs, outputs, strict=True):
            np.testing.assert_array_equal(found, expected[name], err_msg=name)


def _transposed(
    size: tuple[int, int], taps: tuple[int, int], stride: tuple[int, int], same: bool, depth: int
) -> Graph:
    """A TRANSPOSE_CONV of three outputs, quantised per channel."""
    rng = np.random.default_rng(sum(taps) + depth)
    extra = [0 if same else max(t - s, 0) for t, s in zip(taps, stride, strict=True)]
    shape = [1, *(n * s + e for n, s, e in zip(size, stride, extra, strict=True)), 3]
    scales, weights = [0.01, 0.02, 0.015], rng.integers(-127, 128, (3, *taps, depth), np.int8)
    bias = rng.integers(-900, 900, 3, np.int32)
    tensors = [
        Tensor("x", [1, *size, depth], "int8", [0.05], [3]),
        Tensor("y", shape, "int8", [0.4], [-7]),
        Tensor("shape", [4], "int32", data=np.array(shape, np.int32)),
        Tensor("w", weights.shape, "int8", scales, [0] * 3, 0, weights),
        Tensor("b", [3], "int32", [0.05 * s for s in scales], [0] * 3, 0, bias),
    ]
    options = Options("TransposeConvOptions", Padding=int(not same), StrideH=stride[0], StrideW=stride[1])
    operators = [Operator("TRANSPOSE_CONV", ["shape", "w", "x", "b"], ["y"], options)]
    return load_tflite(File(tensors, operators, ["x"], ["y"]).to_bytes())


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2_an386", "mps3_an547"])
@pytest.mark.parametrize(
    ("size", "taps", "stride", "same", "depth"),
    [
        ((5, 7), (3, 3), (2, 2), True, 20),
        ((5, 7), (3, 3), (2, 2), True, 4),
        ((4, 3), (4, 4), (2, 2), False, 5),
        ((6, 2), (3, 5), (2, 3), False, 3),
        ((2, 9), (5, 2), (1, 1), True, 17),
    ],
)
def test_transposed_convolutions(
    cmsis_nn: CmsisNn,
    board: str,
    size: tuple[int, int],
    taps: tuple[int, int],
    stride: tuple[int, int],
    same: bool,
    depth: int,
) -> None:
    graph = _transposed(size, taps, stride, same, depth)
    x = np.random.default_rng(1).integers(-128, 128, graph.values["x"].shape).astype(np.int8)
    with Model(graph).compile(board, generators=[cmsis_nn]).generate().build().run(counting=False) as session:
        (found,) = session.infer(x)
    np.testing.assert_array_equal(found, graph.evaluate({"x": x})["y"])


@pytest.mark.models
@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2_an386", "mps3_an547"])
@pytest.mark.parametrize("target", ["c", "llvm"])
def test_a_model(cmsis_nn: CmsisNn, board: str, target: str) -> None:
    require_tool("qemu-system-arm")
    if target == "llvm":
        pytest.importorskip("llvmlite")
    path = model_path("kws_int8")
    compiled = crtgen.compile([crtgen.load(path)], board, generators=[cmsis_nn], fallback=True)
    (plan,) = compiled.plans
    others = [n.op.name for s in plan.steps for n in s.item.nodes if not isinstance(n.op, External)]
    assert others == ["reshape"]
    with compiled.generate(target=target).build().run(counting=False) as session:
        assert not any(v.difference for v in verify(session, path, path.with_suffix(".npz")))


@pytest.mark.models
@pytest.mark.parametrize("board", [pytest.param("host", marks=pytest.mark.cc),
                                   *(pytest.param(b, marks=pytest.mark.qemu)
                                     for b in ("mps2_an386", "mps2_an521"))])  # fmt: skip
def test_an_archive_of_tvm(cmsis_nn: CmsisNn, board: str) -> None:
    """TFLite's outputs, by C that TVM wrote and only those sources of CMSIS-NN that it calls."""
    _require(board, cmsis_nn)
    compiled = api.load(archive(), trust=True).compile(board, generators=[cmsis_nn])
    (library,) = compiled.modules[0].libraries
    paths = [path for path, _ in library.files]
    assert "Source/ConvolutionFunctions/arm_depthwise_conv_wrapper_s8.c" in paths
    assert not any("s16.c" in path and "ConvolutionFunctions/arm_conv" in path for path in paths)
    assert not any("LSTM" in path or "SVDF" in path for path in paths)
    with compiled.generate().build().run(counting=False) as session:
        verdicts = verify(session, archive(), archive().with_suffix(".npz"))
    assert [v.difference for v in verdicts] == [None]


@pytest.mark.models
def test_an_archive_finds_the_sources_by_itself(
    cmsis_nn: CmsisNn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CMSIS_NN_PATH", str(cmsis_nn.sources.root))
    assert [lib.name for lib in api.load(archive(), trust=True).compile().modules[0].libraries] == [
        "cmsis-nn"
    ]
    monkeypatch.setenv("CMSIS_NN_PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"the folder has no Include/arm_nnfunctions.h"):
        api.load(archive(), trust=True).compile()


@pytest.mark.models
def test_an_archive_with_buffers_for_another_core_is_refused(cmsis_nn: CmsisNn) -> None:
    assert api.load(archive(), trust=True).compile("mps2_an385", generators=[cmsis_nn]).modules[0].libraries
    with pytest.raises(
        UnsupportedError, match="compiled for cortex-m4: its buffers are not those of cortex-m55"
    ):
        api.load(archive(), trust=True).compile("mps3_an547", generators=[cmsis_nn])


@pytest.mark.models
@pytest.mark.qemu
@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_our_archive_carries_the_sources(cmsis_nn: CmsisNn, tmp_path: Path, executor: str) -> None:
    require_tool("qemu-system-arm")
    path, source = tmp_path / "kws.tar", model_path("kws_int8")
    compiled = api.compile(
        [api.load(source, trust=True)], "mps2_an386", generators=[cmsis_nn], fallback=True, executor=executor
    )
    path.write_bytes(compiled.archive())
    again = api.load(path, trust=True).compile("mps2_an386")
    assert again.generate().project.digest == compiled.generate().project.digest
    assert json.loads(read_tar(path.read_bytes(), "x")["metadata.json"])["modules"]["kws_int8"][
        "external_dependencies"
    ] == [
        {
            "short_name": "cmsis-nn",
            "url": "./codegen/host/src/external/cmsis-nn",
            "url_type": "mlf_path",
            "version_spec": "*",
        }
    ]
    with again.generate().build().run(counting=False) as session:
        assert not any(v.difference for v in verify(session, path, source.with_suffix(".npz")))


def test_functions_that_are_called_and_not_there(cmsis_nn: CmsisNn) -> None:
    assert cmsis_nn.library_for(["tvm.h"], "arm_softmax_s8(x);") is None
    code = "static arm_cmsis_nn_status s; s = arm_nn_no_such (x); arm_memcpy_s8(a, b, 1);"
    with pytest.raises(UsageError, match="this CMSIS-NN has no function arm_nn_no_such"):
        cmsis_nn.library_for(["arm_nn_types.h"], code)


def test_buffers_are_planned_in_the_arena(cmsis_nn: CmsisNn) -> None:
    case = next(c for c in _cases(cmsis_nn) if c.name == "conv2d_same_s2_relu")
    depth = int(np.prod(case.sig.inputs[1].shape[1:]))
    (plan,) = Model(case.graph()).compile("mps2_an386", generators=[cmsis_nn]).plans
    (step,) = plan.steps
    assert step.scratch is not None
    columns = [2 * 2 * depth, 2 * 2 * -(-depth // 4) * 4]  # two of int16; later releases count by fours
    assert step.scratch.size in columns
    assert step.scratch.offset + step.scratch.size <= plan.arena


def test_only_what_is_called_goes_along(cmsis_nn: CmsisNn) -> None:
    library = cmsis_nn.sources.library(["arm_softmax_s8"])
    names = {path for path, _ in library.files}
    assert "Include/arm_nnfunctions.h" in names
    assert names & {"LICENSE", "LICENSE.txt"}
    assert [n for n in names if n.endswith(".c") and "s16" in n] == []
    assert "Source/SoftmaxFunctions/arm_nn_softmax_common_s8.c" in names
    assert "Source/ConvolutionFunctions/arm_convolve_s8.c" not in names


def test_reasons(cmsis_nn: CmsisNn) -> None:
    cases = {c.name: c for c in all_cases()}
    expected = {
        "fully_connected_int16_per_axis": "its channels are quantised one by one, and not of int8",
        "fully_connected_f32": "it is of float32, not int8 or int16",
        "add_channels": "its operands have different shapes",
    }
    found = {name: cmsis_nn.reason(cases[name].op, cases[name].sig) for name in expected}
    assert found == expected
    a = Value("a", (4,), DType.INT8)
    assert "without quantisation" in cmsis_nn.reason(cases["add_relu"].op, Signature((a, a), (a,)))


def test_what_it_has_not_is_named(cmsis_nn: CmsisNn) -> None:
    case = next(c for c in all_cases() if isinstance(c.op, Sub))
    with pytest.raises(UnsupportedError, match=r"\(sub\): cmsis-nn: it has no pattern with sub"):
        partition(case.graph(), [cmsis_nn])


def test_where_the_sources_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CMSIS_NN_PATH", raising=False)
    monkeypatch.delenv("ZEPHYR_BASE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(UsageError, match="are needed"):
        CmsisNn()
    with pytest.raises(UsageError, match=r"the folder has no Include/arm_nnfunctions.h"):
        CmsisNn(tmp_path)
    module = tmp_path / "modules" / "lib" / "cmsis-nn"
    (module / "Include").mkdir(parents=True)
    (module / "Include" / "arm_nnfunctions.h").touch()
    monkeypatch.setenv("ZEPHYR_BASE", str(tmp_path / "zephyr"))
    assert CmsisNn().sources.root == module
    monkeypatch.delenv("ZEPHYR_BASE")
    shutil.copytree(tmp_path / "modules", tmp_path / "home" / "zephyrproject" / "modules")
    assert CmsisNn().sources.root.is_relative_to(tmp_path / "home")
    other = tmp_path / "other"
    (other / "Include").mkdir(parents=True)
    (other / "Include" / "arm_nnfunctions.h").touch()
    monkeypatch.setenv("CMSIS_NN_PATH", str(other))
    assert CmsisNn().sources.root == other
    assert CmsisNn(module).sources.root == module
    with pytest.raises(UsageError, match="this CMSIS-NN has no function arm_softmax_s8"):
        CmsisNn(module).sources.library(["arm_softmax_s8"])
    with pytest.raises(UsageError, match="has no option speed"):
        CmsisNn.create({"speed": "1"})
