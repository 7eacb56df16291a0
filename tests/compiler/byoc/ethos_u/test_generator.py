"""Which layers go to the NPU, and what they become."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest

from crtgen import api
from crtgen.base.child import run_to_end
from crtgen.base.errors import BuildError, ToolMissingError, UsageError
from crtgen.base.formats.tflite_writer import Operator, TfliteModel, TfliteTensor
from crtgen.boards import find_board
from crtgen.compiler.byoc import EthosU, find_generator, partition
from crtgen.compiler.byoc.ethos_u import generator as made_by
from crtgen.compiler.byoc.ethos_u import vela
from crtgen.compiler.byoc.ethos_u.network import apart
from crtgen.compiler.byoc.external import External
from crtgen.compiler.kernels import Target
from crtgen.network.ir import DType, Graph, Node, Quant, Value
from crtgen.network.ops import Add, Elu, Relu, Reshape, Softmax
from crtgen.npu.config import CONFIGS
from crtgen.npu.stream import commands
from tests.support import model_path

pytest.importorskip("ethosu")

_QUANT = Quant.tensor(0.05, 3)


@pytest.fixture
def willing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vela takes every layer that it is asked about; it is not started, which takes a second."""
    monkeypatch.setattr(made_by, "left_to_the_core", lambda network, config: {})


def _value(name: str, shape: Sequence[int] = (1, 4, 4, 8)) -> Value:
    return Value(name, tuple(shape), DType.INT8, _QUANT)


def _npu() -> EthosU:
    found = find_generator("ethos-u", {"config": "ethos-u55-128"})
    assert isinstance(found, EthosU)
    return found


def _chain() -> Graph:
    """Add, Elu, Add: the second one is not for the NPU."""
    values = [_value(name) for name in "abcde"]
    nodes = [
        Node("first", Add(), ("a", "b"), ("c",)),
        Node("middle", Elu(), ("c",), ("d",)),
        Node("last", Add(), ("d", "a"), ("e",)),
    ]
    return Graph.build("chain", values, nodes, ["a", "b"], ["e"])


@pytest.mark.usefixtures("willing")
def test_the_rest_stays_on_the_core() -> None:
    graph, rewrites = partition(_chain(), [_npu()], fallback=True)
    assert [type(node.op) for node in graph.nodes] == [External, Elu, External]
    assert any("it has no pattern with elu" in str(rewrite) for rewrite in rewrites)


def test_neighbours_become_one_call() -> None:
    values = [_value(name) for name in "abcd"]
    nodes = [Node("one", Add(), ("a", "b"), ("c",)), Node("two", Relu(), ("c",), ("d",))]
    graph, _ = partition(Graph.build("two", values, nodes, ["a", "b"], ["d"]), [_npu()], fallback=True)
    (node,) = graph.nodes
    made = _npu().generate(node.op.subgraph, Target())  # type: ignore[attr-defined]
    assert made.fails
    assert made.estimate is not None
    assert "(uintptr_t)x0, 128u" in made.body
    assert made.consts[0].name == "stream"


@pytest.mark.models
def test_levels_choose_between_time_and_memory() -> None:
    """Vela has two strategies; the plan weighs its cycles and its scratch as those of any kernel."""
    model = api.load(model_path("kws_int8"))
    board, found = find_board("mps3_an547"), {}
    for level in ("speed", "balanced", "size"):
        compiled = model.compile(board, optimize=level, generators=[_npu()], fallback=True)
        (report,) = compiled.reports
        assert report.npu is not None
        found[level] = (report.npu["cycles_by_vela"], report.arena_bytes)
    assert found["balanced"] == found["speed"]
    assert found["size"][0] > found["speed"][0]
    assert found["size"][1] < found["speed"][1]


@pytest.mark.usefixtures("willing")
def test_a_reshape_alone_is_no_work_for_the_npu() -> None:
    values = [_value("a"), _value("b", (1, 128))]
    graph = Graph.build("flat", values, [Node("flat", Reshape((1, 128)), ("a",), ("b",))], ["a"], ["b"])
    same, rewrites = partition(graph, [_npu()], fallback=True)
    assert [type(node.op) for node in same.nodes] == [Reshape]
    assert any("it only renames values" in str(rewrite) for rewrite in rewrites)


def test_floats_have_a_reason() -> None:
    values = [Value(name, (1, 8), DType.FLOAT32) for name in "ab"]
    graph = Graph.build("real", values, [Node("s", Softmax(), ("a",), ("b",))], ["a"], ["b"])
    _, rewrites = partition(graph, [_npu()], fallback=True)
    assert any("it computes with floats" in str(rewrite) for rewrite in rewrites)


@pytest.mark.usefixtures("willing")
def test_a_call_has_at_most_six_values() -> None:
    values = [_value(f"x{n}") for n in range(8)] + [_value(f"y{n}") for n in range(7)]
    nodes = [Node("n0", Add(), ("x0", "x1"), ("y0",))]
    nodes += [Node(f"n{i}", Add(), (f"y{i - 1}", f"x{i + 1}"), (f"y{i}",)) for i in range(1, 7)]
    graph = Graph.build("many", values, nodes, [f"x{n}" for n in range(8)], ["y6"])
    split, _ = partition(graph, [_npu()], fallback=True)
    assert len(split.nodes) > 1
    for node in split.nodes:
        assert len(node.inputs) + len(node.outputs) <= 6


@pytest.mark.usefixtures("willing")
def test_equal_regions_share_a_stream_that_is_compiled_once() -> None:
    vela.run_vela.cache_clear()
    graph, _ = partition(_chain(), [_npu()], fallback=True)
    for node in graph.nodes:
        if isinstance(node.op, External):
            node.op.generator.generate(node.op.subgraph, Target())
    assert vela.run_vela.cache_info().misses == 1


def test_if_vela_fails_each_layer_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_on_two(network: bytes, config: object) -> dict[str, str]:
        if network.count(b"y1"):
            raise BuildError("Vela failed with code 1")
        return {}

    monkeypatch.setattr(made_by, "left_to_the_core", fails_on_two)
    graph, _ = partition(_chain(), [_npu()], fallback=True)
    assert sum(isinstance(node.op, External) for node in graph.nodes) == 2


def test_vela_is_a_program_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other tests ask a process of it that is started once."""
    monkeypatch.setattr(vela, "run_to_end", run_to_end)
    (node,) = _chain().nodes[:1]
    network = apart(_chain(), [node])
    assert vela.left_to_the_core.__wrapped__(network, CONFIGS["ethos-u55-128"]) == {}


def test_options() -> None:
    with pytest.raises(UsageError, match="needs a configuration"):
        find_generator("ethos-u")
    with pytest.raises(UsageError, match="has no option macs"):
        find_generator("ethos-u", {"config": "ethos-u55-32", "macs": "1"})
    with pytest.raises(UsageError, match="ethos-u85-128 has other commands"):
        find_generator("ethos-u", {"config": "ethos-u85-128"})


@pytest.mark.parametrize("found", ["", "4.1.0"])
def test_vela_has_to_be_there_in_a_version_that_is_known(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    def version(name: str) -> str:
        if not found:
            raise PackageNotFoundError
        return found

    monkeypatch.setattr(vela, "version", version)
    with pytest.raises(ToolMissingError) as caught:
        vela.vela_version()
    assert "crtgen[npu]" in caught.value.hint


@pytest.mark.usefixtures("willing")
def test_the_reference_of_a_region_is_that_of_its_layers() -> None:
    graph, _ = partition(_chain(), [_npu()], fallback=True)
    random = np.random.default_rng(0)
    inputs = {name: random.integers(-128, 128, (1, 4, 4, 8), np.int8) for name in "ab"}
    np.testing.assert_array_equal(graph.evaluate(inputs)["e"], _chain().evaluate(inputs)["e"])


@pytest.mark.models
def test_a_small_sram_makes_a_u65_work_in_both_memories() -> None:
    """Vela's Dedicated_Sram: a part of the scratch is in the slower memory, and no more than allowed in the
    faster one.
    """
    model = api.load(model_path("vww_int8"))
    board = find_board("mps3_an547")
    memories = tuple(replace(m, size=24 << 10) if m.name == "dtcm" else m for m in board.memories)
    npu = find_generator("ethos-u", {"config": "ethos-u65-256"})
    compiled = model.compile(
        replace(board, memories=memories), generators=[npu], fallback=True, place={"npu": "dtcm"}
    )
    (plan,) = compiled.plans
    (step,) = plan.steps
    assert step.scratch is not None
    assert step.apart is not None
    assert 0 < step.apart.size == plan.parts["npu"].size <= 24 << 10
    files = compiled.modules[0].files
    text = "".join(files[name] for name in files if name.endswith(".c"))
    assert "[1] = {(uintptr_t)scratch" in text
    assert "[2] = {(uintptr_t)apart" in text
    assert ".ports = 0x028a" in text, "all but the SRAM through the second port"


@pytest.mark.usefixtures("willing")
def test_a_call_with_a_second_memory_has_at_most_five_values() -> None:
    npu = find_generator("ethos-u", {"config": "ethos-u65-256", "memory": "Dedicated_Sram"})
    values = [_value(name) for name in "abcdef"]
    graph = Graph.build("six", values, [], list("abcdef"), ["a"])
    assert npu.reason_as_a_whole(graph) == "it has 7 inputs and outputs; the NPU has pointers for 5"


def test_tanh_and_logistic_of_int16_are_functions_of_the_npu() -> None:
    """If a later Vela writes a table instead, they need not stay on the core."""
    for code, function in (("TANH", 3), ("LOGISTIC", 4)):
        tensors = [
            TfliteTensor(name, (1, 4, 4, 8), "int16", [scale], [0])
            for name, scale in (("x", 1 / 4096), ("y", 1 / 32768))
        ]
        network = TfliteModel(tensors, [Operator(code, ["x"], ["y"])], ["x"], ["y"]).to_bytes()
        found = vela.compile_network(network, CONFIGS["ethos-u55-128"])
        assert [c.parameter for c in commands(found.stream) if c.name == "ACTIVATION"] == [function]
