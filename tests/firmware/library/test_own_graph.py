"""Our own models by the graph executor: same outputs, tables instead of code, no heap."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from crtgen import api
from crtgen.base.errors import RemoteError, UsageError
from crtgen.base.resources import runtime_dir
from crtgen.boards import find_board
from crtgen.compiler.codegen import generate_c
from crtgen.compiler.kernels import Target, select
from crtgen.compiler.plan import Plan, make_plan
from crtgen.firmware.library.graph_json import read_graph_json
from crtgen.firmware.library.own_graph import with_graph_executor
from crtgen.lab.measure.verification import verify
from crtgen.network.ir import DType, Graph, Node, Quant, Value
from crtgen.network.ops import Relu
from tests.compiler.codegen.models import two_layers
from tests.support import INT8_MODELS, ROOT, model_path, nightly, require_tool

DIGITS = ROOT / "demo" / "digits.tflite"
CASES = np.load(ROOT / "demo" / "digits.npz")


def chain(count: int) -> Plan:
    """x -> relu -> relu ..., int8[16]."""
    quant = Quant.tensor(1 / 16, -3)
    values = [Value(f"v{i}", (1, 16), DType.INT8, quant) for i in range(count + 1)]
    nodes = [Node(f"n{i}", Relu(), (f"v{i}",), (f"v{i + 1}",)) for i in range(count)]
    graph = Graph.build("chain", values, nodes, ["v0"], [f"v{count}"])
    return make_plan(graph, select(graph, Target(find_board("mps2_an386").core)))


@pytest.mark.cc
def test_the_demonstration_model_on_the_host() -> None:
    require_tool("gcc")
    image = api.compile([api.load(DIGITS)], "host", executor="graph").generate().build()
    with image.run() as session:
        for i in (3, 7):
            np.testing.assert_array_equal(
                session.infer(CASES[f"case{i}_input0"])[0], CASES[f"case{i}_output0"]
            )
        ticks = session.measure(2)
        assert len(ticks.ticks) == 2


@pytest.mark.cc
def test_layers_are_functions_of_the_registry_that_check_their_tensors() -> None:
    require_tool("gcc")
    compiled = api.compile([api.load(DIGITS)], "host", executor="graph")
    first = compiled.modules[0].functions[0].name
    x = CASES["case7_input0"]
    with compiled.generate().build().run() as session:
        layer = session.client.system_lib().function(first)
        shape = compiled.plans[0].graph.values[compiled.plans[0].steps[0].outputs[0]].shape
        with session.client.allocate(shape, np.int8) as out:
            assert layer(x, out) is None
            values = compiled.plans[0].graph.evaluate({compiled.plans[0].graph.inputs[0]: x})
            np.testing.assert_array_equal(out.read(), values[compiled.plans[0].steps[0].outputs[0]])
            with pytest.raises(RemoteError, match=f"{first} takes 2 arguments, not 1"):
                layer(x)
            with pytest.raises(RemoteError, match=f"argument 0 of {first} has to be a tensor"):
                layer(x[:, 1:], out)
            with session.client.aot_executor("digits") as executor:
                executor.set_input(0, x)
                layer(x, out)
                with pytest.raises(RemoteError, match="the inputs of digits are not set"):
                    executor.run()


@pytest.mark.models
@pytest.mark.qemu
@pytest.mark.parametrize("name", [n if n in ("kws_int8", "ad01_int8") else nightly(n) for n in INT8_MODELS])
def test_the_reference_models_on_cortex_m4(name: str) -> None:
    require_tool("qemu-system-arm")
    path = model_path(name)
    image = api.compile([api.load(path, trust=True)], "mps2_an386", executor="graph").generate().build()
    with image.run() as session:
        verdicts = verify(session, path, path.with_suffix(".npz"))
    assert len(verdicts) >= 8
    assert [str(v.difference) for v in verdicts if v.difference] == []
    names = {s.name for s in image.size.sizes.symbols}
    assert names.isdisjoint({"malloc", "_malloc_r", "sbrk"})
    assert image.size.stack is not None
    assert image.size.stack.proven


@pytest.mark.qemu
def test_sixty_operators_need_less_than_a_kilobyte(tmp_path: Path) -> None:
    """Constants of the executor on a Cortex-M4; at most 16 bytes per call, no heap, no text of the graph."""
    gcc = require_tool("arm-none-eabi-gcc")
    plan = chain(60)
    part = with_graph_executor(plan, generate_c(plan, "chain"))
    assert len(part.module.info.layers) == 60
    for name, text in part.module.files.items():
        (tmp_path / name).write_text(text)
    include = [f"-I{runtime_dir() / 'include'}", f"-I{tmp_path}"]
    flags = ["-std=c11", "-Os", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-mcpu=cortex-m4", "-mthumb"]
    obj = tmp_path / "graph.o"
    command = [gcc, *flags, *include, "-c", str(tmp_path / "chain_graph.c"), "-o", str(obj)]
    subprocess.run(command, check=True, timeout=120)
    text = subprocess.run(
        ["arm-none-eabi-size", "-A", str(obj)], check=True, timeout=120, capture_output=True, text=True
    ).stdout
    sizes = {f[0]: int(f[1]) for f in map(str.split, text.splitlines()) if len(f) == 3 and f[1].isdigit()}
    constants = sum(size for name, size in sizes.items() if name.startswith(".rodata"))
    assert 60 * 7 <= constants < 1024
    assert sizes[".data"] == 0
    assert sum(size for name, size in sizes.items() if name.startswith(".bss")) == plan.arena
    symbols = subprocess.run(
        ["arm-none-eabi-nm", "-u", str(obj)], check=True, timeout=120, capture_output=True, text=True
    ).stdout
    assert "malloc" not in symbols


def test_equal_layers_share_a_function() -> None:
    plan = chain(60)
    part = with_graph_executor(plan, generate_c(plan, "chain"))
    assert [f.name for f in part.module.functions] == ["tvmgen_chain_n0"]


def test_the_graph_json_is_what_others_read() -> None:
    plan = two_layers()
    part = with_graph_executor(plan, generate_c(plan, "net"))
    graph = read_graph_json(part.graph_json)
    assert [node.function for node in graph.nodes] == [
        "",
        "__nop",
        "tvmgen_net_dense0",
        "tvmgen_net_dense1",
        "tvmgen_net_logistic",
    ]
    assert [entry.storage_id for entry in graph.entries] == [0, 0, 1, 2, 1]
    assert [entry.shape for entry in graph.entries] == [(1, 2, 3, 2), (1, 12), (1, 5), (1, 5), (1, 5)]
    assert graph.storage_sizes() == {0: 12, 1: 5, 2: 5}
    assert {f.name for f in part.module.functions} == {n.function for n in graph.nodes[2:]}


def test_an_unknown_executor_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown executor vm"):
        api.compile([api.load(DIGITS)], "host", executor="vm")
