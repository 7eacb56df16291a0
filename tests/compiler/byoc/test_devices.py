"""Several instances of one generator, each with a device and a program of its own."""

import json
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from crtgen import api
from crtgen.api import Model
from crtgen.base.errors import UnsupportedError, UsageError
from crtgen.cli.app import app
from crtgen.compiler.byoc import CCompiler, ExampleJson, find, read_generator
from crtgen.compiler.kernels.engine.sources import DeviceContext
from crtgen.firmware.library import module_tree
from crtgen.firmware.library.tree import check_crt_exportable, check_symbols, walk
from crtgen.network.ir import DType, Graph
from crtgen.network.ops import Add, Mul, Sub
from tests.compiler.byoc.accelerator import Accelerator, accelerators
from tests.compiler.byoc.graphs import arithmetic, inputs_of, numpy_result
from tests.support import ROOT, nightly, require_tool

BOARDS = [
    pytest.param("host", "c", marks=pytest.mark.cc),
    pytest.param("host", "llvm", marks=pytest.mark.cc),
    pytest.param("mps2_an386", "c", marks=pytest.mark.qemu),
    pytest.param("mps3_an547", "llvm", marks=[pytest.mark.qemu, pytest.mark.nightly]),
]


def network() -> Graph:
    """((a + b) * b - a) * (a + b)"""
    calls = [(Add(), "a", "b"), (Mul(), "v0", "b"), (Sub(), "v1", "a"), (Mul(), "v2", "v0")]
    return arithmetic("net", DType.INT16, calls, {"a": (3, 7), "b": (3, 7)})


@pytest.mark.parametrize("executor", ["aot", nightly("graph")])
@pytest.mark.parametrize(("board", "target"), BOARDS)
def test_each_instance_runs_its_program(board: str, target: str, executor: str) -> None:
    """All three have the same code: what they compute is in their devices."""
    if board != "host":
        require_tool("qemu-system-arm")
    if target == "llvm":
        pytest.importorskip("llvmlite")
    graph = network()
    generators = accelerators("mul", "add", "sub")
    compiled = api.compile([Model(graph)], board, generators=generators, executor=executor)
    with compiled.generate(target=target).build().run(counting=False) as session:
        for seed in (1, 2):
            inputs = inputs_of(graph, seed)
            np.testing.assert_array_equal(session.infer(*inputs)[0], numpy_result(graph, inputs)[0])
        a, b = inputs_of(graph, 3)
        library = session.client.system_lib()
        for name, function in (("npu0", np.multiply), ("npu1", np.add), ("npu2", np.subtract)):
            with session.client.allocate(a.shape, a.dtype) as y:
                library.function(f"tvmgen_net_{name}_main_0")(a, b, y)
                np.testing.assert_array_equal(y.read(), function(a, b))


def test_the_devices_are_in_the_module_tree() -> None:
    compiled = api.compile([Model(network())], generators=accelerators("mul", "add", "sub"))
    (root,) = compiled.trees
    check_symbols(root)
    check_crt_exportable(walk(root))
    assert (root.name, str(root.context), root.get_func_names()) == ("net", "cpu:0", ("net_run",))
    found = [(m.name, str(m.context), m.get_func_names()) for m in root.imports]
    file = "net_external_npu{}_kernels.c"
    entry = "tvmgen_net_npu{}_main_{}"
    assert found == [
        (file.format(1), "npu:1", (entry.format(1, 0),)),
        (file.format(0), "npu:0", (entry.format(0, 0), entry.format(0, 1))),
        (file.format(2), "npu:2", (entry.format(2, 0),)),
    ]
    texts = [m.code for m in root.imports]  # type: ignore[attr-defined]
    assert [f"= &accelerator_{i};" in text for i, text in zip((1, 0, 2), texts, strict=True)] == [True] * 3


def test_the_tree_and_the_library_of_an_archive(tmp_path: Path) -> None:
    compiled = api.compile([Model(network())], generators=accelerators("mul", "add", "sub"))
    path = tmp_path / "net.tar"
    path.write_bytes(compiled.archive())
    again = api.compile([api.load(path, trust=True)])
    assert again.modules[0].libraries == compiled.modules[0].libraries
    assert again.generate().project.digest == compiled.generate().project.digest
    one, two = (compiled.trees[0], again.trees[0])
    assert [(m.name, m.context, m.functions) for m in walk(one)] == [
        (m.name, m.context, m.functions) for m in walk(two)
    ]


def test_constants_belong_to_their_module() -> None:
    calls = [(Add(), "a", "c"), (Mul(), "v0", "d")]
    graph = arithmetic("net", DType.INT16, calls, {"a": (4,), "c": (4,), "d": (4,)}, constants=["c", "d"])
    sums, products = ExampleJson.create({"operators": "add"}), CCompiler()
    sums.context = DeviceContext("example", 1)
    tree = module_tree(api.compile([Model(graph)], generators=[sums, products]).parts[0])
    assert tree.get_const_vars() == ()
    assert [(str(m.context), m.get_const_vars()) for m in tree.imports] == [
        ("example:1", ("__tvm_param__net_n0_c0",)),
        ("cpu:0", ("__tvm_param__net_n1_c0",)),
    ]
    assert all(m.is_crt_exportable for m in tree.imports)


def test_what_no_instance_is_programmed_for() -> None:
    with pytest.raises(
        UnsupportedError, match=r"n2 \(sub\): npu0: npu:0 is programmed for mul; npu1: npu:1 is"
    ):
        Model(network()).compile(generators=accelerators("mul", "add"))


def test_instances_need_names_of_their_own() -> None:
    with pytest.raises(UsageError, match="accelerator is named twice"):
        Model(network()).compile(generators=[Accelerator("add"), Accelerator("mul")])


@pytest.fixture
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("accelerator", "tests.compiler.byoc.accelerator:Accelerator", find.GROUP)
    monkeypatch.setattr(find, "entry_points", lambda **_: EntryPoints([entry]))


@pytest.mark.usefixtures("_installed")
def test_options_in_text() -> None:
    made = read_generator("accelerator:as=second,device=npu:1,program=mul")
    assert isinstance(made, Accelerator)
    assert (made.name, made.context, made.program) == ("second", DeviceContext("npu", 1), "mul")
    plain = read_generator("accelerator", {"accelerator": {"program": "sub"}})
    assert isinstance(plain, Accelerator)
    assert (plain.name, plain.context, plain.program) == ("accelerator", DeviceContext("cpu", 0), "sub")
    for text, reason in (
        ("accelerator:program", "'program' is not an option"),
        ("accelerator:program=add,program=sub", "occurs twice"),
        ("accelerator:device=npu:x", "'npu:x' is not a device"),
    ):
        with pytest.raises(UsageError, match=reason):
            read_generator(text)


def test_inspect_shows_the_tree() -> None:
    model = ROOT / "demo" / "digits.tflite"
    options = ["inspect", str(model), "--codegen", "examplejson:as=sums,device=example:2", "--fallback"]
    result = CliRunner().invoke(app, [*options, "--json"], catch_exceptions=False)
    tree = json.loads(result.stdout)["modules"]
    assert (tree["name"], tree["kind"], tree["device"]) == ("digits", "c", "cpu:0")
    assert tree["functions"] == ["digits_run"]
    assert tree["crt_exportable"]
    assert tree["imports"] == []
    text = CliRunner().invoke(app, [*options, "--modules"], catch_exceptions=False).stdout
    assert text.startswith("digits: c on cpu:0, ")
