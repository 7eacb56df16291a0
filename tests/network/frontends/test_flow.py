"""Variables, branches and loops: the numpy reference is TFLite Micro's, and the generated C is the same."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from tflite_micro import runtime

from crtgen import api
from crtgen.base.errors import CorruptModelError, UnsupportedError
from crtgen.device.session import Session
from crtgen.network.frontends import load_tflite
from crtgen.network.ir import Array
from tests.network.frontends.flow import (
    MODELS,
    Flow,
    add,
    assign,
    branch,
    constant,
    floats,
    handle,
    read,
    variable,
)
from tests.network.ops.oracle import assert_same
from tests.tflite_builder import Model, Subgraph, Tensor

_ARENA = 1 << 16


def expected(flow: Flow) -> Iterator[list[tuple[Array, ...]]]:
    """The outputs of each sequence by TFLite Micro."""
    count = len(load_tflite(flow.data).outputs)
    for sequence in flow.sequences:
        interpreter = runtime.Interpreter.from_bytes(flow.data, arena_size=_ARENA)
        runs = []
        for inputs in sequence:
            for i, array in enumerate(inputs):
                interpreter.set_input(array, i)
            interpreter.invoke()
            runs.append(tuple(interpreter.get_output(i).copy() for i in range(count)))
        yield runs


def assert_equal(actual: list[tuple[Array, ...]], wanted: list[tuple[Array, ...]]) -> None:
    for have, want in zip(actual, wanted, strict=True):
        for a, b in zip(have, want, strict=True):
            assert_same(a, b)


@pytest.mark.parametrize("name", MODELS)
def test_the_reference_is_tflite_micros(name: str) -> None:
    flow = MODELS[name]()
    graph = load_tflite(flow.data, name)
    for sequence, wanted in zip(flow.sequences, expected(flow), strict=True):
        assert_equal(list(graph.run(sequence)), wanted)


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Session]]:
    """All models in two programs of the computer, by name."""
    directory, found = tmp_path_factory.mktemp("flow"), dict[str, Session]()
    names = list(MODELS)
    with ExitStack() as stack:
        for part in (names[::2], names[1::2]):
            models = []
            for name in part:
                file = directory / f"{name}.tflite"
                file.write_bytes(MODELS[name]().data)
                models.append(api.load(file))
            image = api.compile(models, "host").generate().build()
            found |= dict.fromkeys(part, stack.enter_context(image.run()))
        yield found


@pytest.mark.cc
@pytest.mark.parametrize("name", MODELS)
def test_the_generated_code_computes_the_same(sessions: Mapping[str, Session], name: str) -> None:
    flow, session = MODELS[name](), sessions[name]
    for sequence, wanted in zip(flow.sequences, expected(flow), strict=True):
        session.reset(name)
        assert_equal([session.infer(*inputs, model=name) for inputs in sequence], wanted)


@pytest.mark.cc
def test_models_know_how_much_they_keep(sessions: Mapping[str, Session]) -> None:
    kept = {name: session.model(name).state for name, session in sessions.items()}
    assert {n: size for n, size in kept.items() if size} == {
        "counter": 16,
        "delayed": 32,
        "shown": 16,
        "handed": 32,
        "chosen": 16,
    }


def test_a_loop_carries_only_what_changes() -> None:
    graph = load_tflite(MODELS["loops"]().data)
    (node,) = (node for node in graph.nodes if node.op.name == "while")
    assert len(node.inputs) == 3
    assert len(node.outputs) == 2


def _branch(*others: Subgraph, then: int = 1) -> bytes:
    tensors = [Tensor("c", [], "bool"), *floats("x", "y")]
    operators = [branch(["c", "x"], ["y"], then, 1)]
    return Model(tensors, operators, ["c", "x"], ["y"], others=others).to_bytes()


def _typed(dtype: str) -> bytes:
    """A branch whose input is of another type than the constant that it is given."""
    inner = Subgraph([Tensor("a", [1, 4], dtype), *floats("b")], [], ["a"], ["b"])
    operators = [branch(["c", "k"], ["y"], 1, 1)]
    tensors = [Tensor("c", [], "bool"), constant("k", 1, 2, 3, 4), *floats("y")]
    return Model(tensors, operators, ["c"], ["y"], others=[inner]).to_bytes()


_RECURSIVE = Subgraph(
    [Tensor("c", [], "bool"), *floats("a", "b")], [branch(["c", "a"], ["b"], 1, 1)], ["a"], ["b"]
)
_OTHER_SHAPE = Subgraph([Tensor("a", [1, 4], "float32"), Tensor("b", [2, 2], "float32")], [], ["a"], ["b"])
_NO_INPUT = Subgraph(floats("a"), [], [], ["a"])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (_branch(_RECURSIVE), "subgraph 1 runs itself"),
        (_branch(), "the operator runs subgraph 1 of 1"),
        (_branch(_NO_INPUT, then=0), "the operator runs subgraph 0 of 2"),
        (_branch(_NO_INPUT), "subgraph 1 has 0 inputs, and is given 1"),
        (_typed("int8"), "'a' is INT8, and is given FLOAT32"),
    ],
)
def test_subgraphs_that_do_not_fit_are_corrupt(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptModelError, match=reason):
        load_tflite(data)


def test_a_variable_that_is_chosen_at_run_time_is_refused() -> None:
    model = Model([handle("h"), *floats("x", "y")], [read("h", "y")], ["h"], ["y"])
    with pytest.raises(UnsupportedError, match="a variable that is chosen at run time"):
        load_tflite(model.to_bytes())


def test_a_variable_holds_one_type() -> None:
    tensors = [handle("h"), *floats("x", "y"), Tensor("wide", [2, 4], "float32")]
    operators = [variable("v", "h"), assign("h", "x"), read("h", "wide"), add("wide", "wide", "wide")]
    with pytest.raises(CorruptModelError, match="not what is read"):
        load_tflite(Model(tensors, operators[:3], ["x"], ["wide"]).to_bytes())


def test_subgraphs_are_nested_so_deep_at_most() -> None:
    """Each level runs the next one twice: this must not take exponential time."""
    levels = [
        Subgraph(
            [Tensor("c", [], "bool"), *floats("a", "b")],
            [branch(["c", "c", "a"], ["b"], level + 1, level + 1)],
            ["c", "a"],
            ["b"],
        )
        for level in range(1, 40)
    ]
    last = Subgraph([Tensor("c", [], "bool"), *floats("a")], [], ["c", "a"], ["a"])
    tensors = [Tensor("c", [], "bool"), *floats("x", "y")]
    model = Model(tensors, [branch(["c", "c", "x"], ["y"], 1, 1)], ["c", "x"], ["y"], others=[*levels, last])
    with pytest.raises(CorruptModelError, match="nested too deep"):
        load_tflite(model.to_bytes())


def test_shapes_are_what_was_asked_for(tmp_path: Path) -> None:
    tensors = [Tensor("x", [1, 4], "float32", signature=[-1, 4]), *floats("y")]
    data = Model(tensors, [add("x", "x", "y")], ["x"], ["y"]).to_bytes()
    graph = load_tflite(data, shapes={"x": (3, 4)})
    assert graph.values[graph.outputs[0]].shape == (3, 4)
    (y,) = next(graph.run([(np.ones((3, 4), np.float32),)]))
    assert y.tolist() == [[2.0] * 4] * 3
    with pytest.raises(UnsupportedError, match="3 was asked for, the file has 1x4"):
        load_tflite(data, shapes={"x": (3,)})
