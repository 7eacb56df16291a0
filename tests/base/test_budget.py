"""Budgets: what a file may cost is asked for before it is spent, by every front end and pass."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from crtgen.api import Model
from crtgen.base import budget, files
from crtgen.base.budget import Budget, spending
from crtgen.base.errors import ModelError, UnsupportedError, UsageError
from crtgen.network.frontends import load_onnx, onnx_lookup


def test_bytes_are_a_total() -> None:
    load = Budget("x.onnx", memory=100, place="Add (node 3)")
    load.take(60, "a")
    load.hold(40, "b")
    load.take(40, "c")
    with pytest.raises(UnsupportedError) as caught:
        load.take(1, "the constant 'k'")
    assert str(caught.value) == (
        "x.onnx: Add (node 3): the constant 'k' makes 101 bytes in all; 100 may be taken"
    )
    assert caught.value.hint == "crtgen --limit-memory 128 allows it"
    assert load.taken == 100


def test_operations_follow_from_the_seconds() -> None:
    load = Budget(seconds=2)
    load.compute(2 << 23, "a")
    with pytest.raises(UnsupportedError, match="16,777,217 operations in all; 16,777,216 may") as caught:
        load.compute(1, "b")
    assert caught.value.hint == "crtgen --limit-seconds 3 allows it"


def test_seconds_are_looked_at_between_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    load = Budget(seconds=5)
    load.check()
    monkeypatch.setattr("crtgen.base.budget.time.thread_time", lambda: load._start + 5.5)
    with pytest.raises(UnsupportedError, match="the load takes more than 5 seconds"):
        load.check()


def test_what_is_within_shares_a_budget() -> None:
    with spending("a", 7) as outer:
        with spending("b") as inner:
            assert inner is outer is budget.current()
        assert (outer.where, outer.taken) == ("a", 7)
    assert budget.current() is not outer
    budget.current().take(1 << 60, "nothing is loaded")


def test_limits() -> None:
    budget.limit_seconds(7)
    assert Budget().seconds == 7
    budget.limit_seconds()
    for limit in (budget.limit_seconds, budget.limit_memory):
        with pytest.raises(UsageError, match="too few"):
            limit(0)


@pytest.fixture
def short() -> Iterator[None]:
    """A tenth of the time, which is refused the same."""
    budget.limit_seconds(12)
    yield
    budget.limit_seconds()


def _saved(nodes: list[Any], outputs: int = 1, inits: Any = (), functions: Any = ()) -> bytes:
    """A model of 16 numbers."""
    kinds = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 16])
        for name in ("x", *(f"y{i}" for i in range(outputs)))
    ]
    arrays = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in dict(inits).items()]
    graph = onnx.helper.make_graph(nodes, "g", kinds[:1], kinds[1:], arrays)
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in (("", 17), ("my", 1))]
    model = onnx.helper.make_model(graph, opset_imports=opsets, functions=functions)
    model.ir_version = 8
    return bytes(model.SerializeToString())


def _filled(shape: tuple[int, ...], kind: Any, then: list[Any]) -> bytes:
    """Nodes that make ``m`` of the constant ``k``, all ones, which is added to the input."""
    value = onnx.numpy_helper.from_array(np.ones(1, kind))
    made = onnx.helper.make_node("ConstantOfShape", ["s"], ["k"], value=value)
    ends = [
        onnx.helper.make_node("ReduceMax", ["m"], ["r"], keepdims=0),
        onnx.helper.make_node("Cast", ["r"], ["f"], to=1),
        onnx.helper.make_node("Add", ["x", "f"], ["y0"]),
    ]
    return _saved([made, *then, *ends], inits={"s": np.array(shape, np.int64)})


def _node(code: str, inputs: str, output: str, **attributes: Any) -> Any:
    return onnx.helper.make_node(code, inputs.split(), [output], **attributes)


def _rounds(count: int) -> bytes:
    """A loop whose state is a constant."""
    kinds = [
        onnx.helper.make_tensor_value_info(name, kind, shape)
        for name, kind, shape in (
            ("i", 7, []),
            ("c", 9, []),
            ("v", 1, [1, 16]),
            ("d", 9, []),
            ("w", 1, [1, 16]),
        )
    ]
    body = onnx.helper.make_graph(
        [_node("Mul", "v v", "w"), _node("Identity", "c", "d")], "b", kinds[:3], kinds[3:]
    )
    nodes = [_node("Loop", "t  k", "l", body=body), _node("Add", "x l", "y0")]
    nodes[0].input[:] = ["t", "", "k"]
    return _saved(nodes, inits={"t": np.int64(count), "k": np.ones((1, 16), np.float32)})


def _doubling(depth: int) -> bytes:
    """Functions each of which calls the next one twice."""
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in (("", 17), ("my", 1))]
    functions = []
    for level in range(depth):
        code, domain = (f"f{level + 1}", "my") if level + 1 < depth else ("Neg", "")
        nodes = [_node(code, "a", "b", domain=domain), _node(code, "b", "o", domain=domain)]
        functions.append(onnx.helper.make_function("my", f"f{level}", ["a"], ["o"], nodes, opsets))
    return _saved([_node("f0", "x", "y0", domain="my")], functions=functions)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (_rounds(10**9), "a loop of constants takes"),
        (_filled((2048, 2048), np.int32, [_node("MatMul", "k k", "m")]), "INT32; supported: FLOAT32"),
        (_filled((2048, 2048), np.float32, [_node("MatMul", "k k", "m")]), "computing constants takes"),
        (
            _filled((40_000_000,), np.float32, [_node("Neg", "k", "m")]),
            "takes 160,020,000 operations",
        ),
        (_filled((8, 1 << 40), np.float32, [_node("Neg", "k", "m")]), "and 50,331,648 elements"),
        (_doubling(15), "its functions become 32,768 nodes; supported: 1,520 for 31 of the file"),
        (_doubling(63), "its functions become 9,223,372,036,854,775,808 nodes"),
    ],
    ids=["loop", "integers", "products", "large", "huge", "functions", "more functions"],
)
@pytest.mark.usefixtures("short")
def test_small_files_that_ask_for_much(data: bytes, reason: str) -> None:
    """Each was, or would be, minutes or gigabytes; none begins what it cannot end."""
    assert len(data) < 5000
    tracemalloc.start()
    try:
        with pytest.raises(ModelError, match=reason):
            load_onnx(data)
        assert tracemalloc.get_traced_memory()[1] < 400 << 20
    finally:
        tracemalloc.stop()


def test_loops_that_end_are_computed() -> None:
    graph = load_onnx(_rounds(3))
    assert [node.op.name for node in graph.nodes] == ["add"]


@pytest.mark.usefixtures("short")
def test_what_is_there_at_once_is_bounded() -> None:
    nodes = [_node("Relu", "x", f"y{i}") for i in range(400)]
    graph = load_onnx(_saved(nodes, 400))
    with pytest.raises(UnsupportedError, match="planning values that are there at the same time takes"):
        Model(graph).compile()


def test_an_arena_of_gigabytes_is_not_checked_byte_by_byte() -> None:
    nodes = [_node("Concat", "x x", "c0", axis=1)]
    nodes += [_node("Concat", f"c{i} c{i}", f"c{i + 1}", axis=1) for i in range(19)]
    nodes += [_node("ReduceMax", "c19", "m", keepdims=0), _node("Add", "x m", "y0")]
    with pytest.raises(
        UnsupportedError, match=r"the arena needs 1\d\d,\d{3},\d{3} bytes; plans are made of up to 67,"
    ):
        Model(load_onnx(_saved(nodes))).compile()


def test_external_data_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(tmp_path / "w.bin", "wb") as file:
        file.truncate(64 << 20)
    tensors = []
    for number in range(8):
        tensor = onnx.TensorProto(name=f"w{number}", data_type=1, dims=[16 << 20])
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="w.bin")
        tensors.append(tensor)
    model = onnx.load_model_from_string(_saved([_node("Neg", "x", "y0")]))
    model.graph.initializer.extend(tensors)
    (tmp_path / "a.onnx").write_bytes(model.SerializeToString())
    read: list[str] = []
    real = files.read

    def noted(path: Path, what: str = "") -> bytes:
        read.append(path.name)
        return real(path, what)

    monkeypatch.setattr(files, "read", noted)
    with pytest.raises(UnsupportedError, match=r"the data of 'w4' in 'w\.bin' makes"):
        load_onnx(tmp_path / "a.onnx")
    assert read == ["a.onnx", "w.bin"]


def test_ways_from_a_result_to_its_source_are_not_all_gone() -> None:
    """Between two quantisations, each operator that reads one tensor twice doubles them."""
    nodes = [_node("QuantizeLinear", "x s z", "q0"), _node("DequantizeLinear", "q0 s z", "d0")]
    nodes += [_node("Add", f"d{i} d{i}", f"d{i + 1}") for i in range(23)]
    nodes += [_node("QuantizeLinear", "d23 s z", "q1"), _node("DequantizeLinear", "q1 s z", "y0")]
    model = _saved(nodes, inits={"s": np.float32(0.5), "z": np.int8(0)})
    calls = 0
    real = onnx_lookup._sources

    def counted(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        return real(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnx_lookup, "_sources", counted)
        load_onnx(model)
    assert 24 < calls < 5000


def _field(number: int, content: bytes) -> bytes:
    length, rest = b"", len(content)
    while rest > 127:
        length, rest = length + bytes([rest & 127 | 128]), rest >> 7
    return bytes([number << 3 | 2]) + length + bytes([rest]) + content


@pytest.mark.parametrize(
    "graph",
    [
        _field(1, b"") * 100_000,
        _field(5, _field(7, b"\1" * 2_200_000)),
        _field(1, _field(5, _field(5, _field(7, b"\1" * 2_200_000)))),
    ],
    ids=["nodes", "numbers", "numbers of a node"],
)
def test_what_a_message_becomes_is_asked_for_before_it_is_parsed(graph: bytes) -> None:
    """An empty node is two bytes in a file and two hundred in memory, a small number one and eight."""
    budget.limit_memory(16 << 20)
    try:
        with pytest.raises(UnsupportedError, match="what the file says makes"):
            load_onnx(b"\x08\x08" + _field(7, graph) + b"\x42\x02\x10\x11")
    finally:
        budget.limit_memory()


@pytest.mark.parametrize(
    "data", [b"", b"\xff" * 40, b"\x3a\xff\xff\xff\xff\x7f", b"\x3a\x05\x0b\x0b", b"\x39"]
)
def test_damaged_messages_are_left_to_the_parser(data: bytes) -> None:
    with pytest.raises(ModelError, match="the file is not an ONNX model"):
        load_onnx(data)
