"""Models with variables, branches and loops, each with the inputs of a few sequences of runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crtgen.network.ir import Array
from tests.tflite_builder import Model, Operator, Options, Subgraph, Tensor

__all__ = ["MODELS", "Flow"]

ADD = Options("AddOptions")
F4 = [1, 4]


@dataclass(frozen=True)
class Flow:
    """A model file and sequences of its inputs."""

    data: bytes
    sequences: tuple[tuple[tuple[Array, ...], ...], ...]


def floats(*names: str) -> list[Tensor]:
    return [Tensor(name, F4, "float32") for name in names]


def constant(name: str, *values: float) -> Tensor:
    return Tensor(name, [1, len(values)], "float32", data=np.array([values], np.float32))


def shape(name: str, *lengths: int) -> Tensor:
    return Tensor(name, [len(lengths)], "int32", data=np.array(lengths, np.int32))


def boolean(name: str) -> Tensor:
    return Tensor(name, [], "bool")


def handle(name: str) -> Tensor:
    return Tensor(name, [], "resource")


def add(a: str, b: str, y: str) -> Operator:
    return Operator("ADD", [a, b], [y], ADD)


def variable(name: str, to: str) -> Operator:
    return Operator("VAR_HANDLE", [], [to], Options("VarHandleOptions", Container="", SharedName=name))


def read(handle: str, to: str) -> Operator:
    return Operator("READ_VARIABLE", [handle], [to])


def assign(handle: str, value: str) -> Operator:
    return Operator("ASSIGN_VARIABLE", [handle, value], [])


def branch(inputs: Sequence[str], outputs: Sequence[str], then: int, otherwise: int) -> Operator:
    options = Options("IfOptions", ThenSubgraphIndex=then, ElseSubgraphIndex=otherwise)
    return Operator("IF", list(inputs), list(outputs), options)


def loop(inputs: Sequence[str], outputs: Sequence[str], condition: int, body: int) -> Operator:
    options = Options("WhileOptions", CondSubgraphIndex=condition, BodySubgraphIndex=body)
    return Operator("WHILE", list(inputs), list(outputs), options)


def vectors(seed: int, runs: int, *kinds: str) -> tuple[tuple[Array, ...], ...]:
    """Inputs of several runs: ``f`` is four floats, ``b`` a bool."""
    rng = np.random.default_rng(seed)
    make: Mapping[str, Callable[[], Any]] = {
        "f": lambda: rng.uniform(-1, 1, (1, 4)).astype(np.float32),
        "b": lambda: np.array(rng.integers(0, 2), np.bool_),
    }
    return tuple(tuple(make[kind]() for kind in kinds) for _ in range(runs))


def _flow(model: Model, *kinds: str) -> Flow:
    return Flow(model.to_bytes(), tuple(vectors(seed, 5, *kinds) for seed in range(2)))


def branches() -> Flow:
    """y = c ? x + x : 2x + 1, and what goes in unchanged, or a constant, comes out."""
    then = Subgraph([*floats("a", "b"), constant("k", 1, 2, 3, 4)], [add("a", "a", "b")], ["a"], ["b", "k"])
    other = Subgraph(
        [*floats("a", "b", "c"), constant("one", 1)],
        [add("a", "a", "b"), add("b", "one", "c")],
        ["a"],
        ["c", "a"],
    )
    tensors = [boolean("which"), *floats("x", "y", "z", "sum")]
    operators = [branch(["which", "x"], ["y", "z"], 1, 2), add("y", "z", "sum")]
    return _flow(Model(tensors, operators, ["which", "x"], ["y", "sum"], others=[then, other]), "b", "f")


def nested() -> Flow:
    """A branch within a branch, of a constant."""
    inner = [
        Subgraph([*floats("a", "b")], [add("a", "a", "b")], ["a"], ["b"]),
        Subgraph([*floats("a")], [], ["a"], ["a"]),
    ]
    outer = [
        Subgraph([boolean("p"), *floats("a", "b")], [branch(["p", "a"], ["b"], 3, 4)], ["p", "a"], ["b"]),
        Subgraph([boolean("p"), *floats("a", "b")], [add("a", "a", "b")], ["p", "a"], ["b"]),
    ]
    tensors = [boolean("p"), boolean("q"), *floats("x", "y"), constant("k", 0.5, 1, 2, 4), *floats("z")]
    operators = [branch(["q", "p", "k"], ["y"], 1, 2), add("x", "y", "z")]
    model = Model(tensors, operators, ["p", "q", "x"], ["z"], others=[*outer, *inner])
    return _flow(model, "b", "b", "f")


def given() -> Flow:
    """Weights and a shape are constants, handed to both branches, of which one needs them."""
    inputs = [*floats("a"), Tensor("w", [3, 4], "float32"), Tensor("s", [2], "int32")]
    then = Subgraph(
        [*inputs, Tensor("made", [1, 3], "float32"), Tensor("b", [3, 1], "float32")],
        [
            Operator("FULLY_CONNECTED", ["a", "w", None], ["made"], Options("FullyConnectedOptions")),
            Operator("RESHAPE", ["made", "s"], ["b"], Options("ReshapeOptions")),
        ],
        ["a", "w", "s"],
        ["b"],
    )
    column = Tensor("k", [3, 1], "float32", data=np.array([[1], [2], [3]], np.float32))
    other = Subgraph([*inputs, column], [], ["a", "w", "s"], ["k"])
    weights = np.arange(12, dtype=np.float32).reshape(3, 4) / 8 - 0.7
    tensors = [boolean("which"), *floats("x"), Tensor("w", [3, 4], "float32", data=weights)]
    tensors += [shape("s", 3, 1), Tensor("y", [3, 1], "float32")]
    operators = [branch(["which", "x", "w", "s"], ["y"], 1, 2)]
    return _flow(Model(tensors, operators, ["which", "x"], ["y"], others=[then, other]), "b", "f")


def loops() -> Flow:
    """While a counter is below n: the counter goes up, the sum grows by a step that stays."""
    names = ["i", "total", "step"]
    tensors = [Tensor("i", [], "float32"), *floats("total", "step")]
    condition = Subgraph(
        [*tensors, Tensor("n", [], "float32", data=np.array(5, np.float32)), boolean("less")],
        [Operator("LESS", ["i", "n"], ["less"])],
        names,
        ["less"],
    )
    body = Subgraph(
        [
            *tensors,
            Tensor("one", [], "float32", data=np.array(1, np.float32)),
            Tensor("j", [], "float32"),
            *floats("sum"),
        ],
        [add("i", "one", "j"), add("total", "step", "sum")],
        names,
        ["j", "sum", "step"],
    )
    start = Tensor("zero", [], "float32", data=np.array(0, np.float32))
    outer = [*floats("x", "s", "y", "same", "z"), start, Tensor("count", [], "float32")]
    operators = [loop(["zero", "x", "s"], ["count", "y", "same"], 1, 2), add("y", "same", "z")]
    model = Model(outer, operators, ["x", "s"], ["z", "count"], others=[condition, body])
    return _flow(model, "f", "f")


def swapped() -> Flow:
    """Two values that change places in each round, as often as a counter says."""
    names = ["i", "a", "b"]
    tensors = [Tensor("i", [], "float32"), *floats("a", "b")]
    zero = Tensor("zero", [], "float32", data=np.array(0, np.float32))
    condition = Subgraph(
        [*tensors, zero, boolean("more")], [Operator("LESS", ["zero", "i"], ["more"])], names, ["more"]
    )
    one = Tensor("one", [], "float32", data=np.array(-1, np.float32))
    body = Subgraph(
        [*tensors, one, Tensor("j", [], "float32")], [add("i", "one", "j")], names, ["j", "b", "a"]
    )
    start = Tensor("three", [], "float32", data=np.array(3, np.float32))
    outer = [*floats("x", "y", "p", "q"), start, Tensor("end", [], "float32")]
    operators = [loop(["three", "x", "y"], ["end", "p", "q"], 1, 2)]
    return _flow(Model(outer, operators, ["x", "y"], ["p", "q"], others=[condition, body]), "f", "f")


def counter() -> Flow:
    """A variable that begins with what runs once, is read, added to and assigned; also the old value."""
    once = Subgraph(
        [handle("h"), constant("k", 1, -2, 3, -4)], [variable("total", "h"), assign("h", "k")], [], []
    )
    tensors = [handle("h"), *floats("x", "old", "new")]
    operators = [
        Operator("CALL_ONCE", [], [], Options("CallOnceOptions", InitSubgraphIndex=1)),
        variable("total", "h"),
        read("h", "old"),
        add("old", "x", "new"),
        assign("h", "new"),
    ]
    return _flow(Model(tensors, operators, ["x"], ["new", "old"], others=[once]), "f")


def delayed() -> Flow:
    """What came in two runs ago: two variables, one of which becomes the other."""
    tensors = [handle("g"), handle("h"), *floats("x", "one", "two", "y")]
    operators = [
        variable("first", "g"),
        variable("second", "h"),
        read("g", "one"),
        read("h", "two"),
        assign("g", "x"),
        assign("h", "one"),
        add("two", "two", "y"),
    ]
    return _flow(Model(tensors, operators, ["x"], ["y"]), "f")


def shown() -> Flow:
    """What a variable held before the run, in another shape, beside what it holds afterwards."""
    tensors = [handle("h"), *floats("x", "old", "new"), Tensor("column", [4, 1], "float32"), shape("s", 4, 1)]
    operators = [
        variable("total", "h"),
        read("h", "old"),
        Operator("RESHAPE", ["old", "s"], ["column"], Options("ReshapeOptions")),
        add("old", "x", "new"),
        assign("h", "new"),
    ]
    return _flow(Model(tensors, operators, ["x"], ["column", "new"]), "f")


def handed() -> Flow:
    """Of two variables one becomes what the other one held, in another shape; that becomes what came in."""
    column = [Tensor(n, [4, 1], "float32") for n in ("late", "column", "y")]
    tensors = [handle("g"), handle("h"), *floats("x", "old"), *column, shape("s", 4, 1)]
    operators = [
        variable("first", "g"),
        variable("second", "h"),
        read("g", "old"),
        read("h", "late"),
        Operator("RESHAPE", ["old", "s"], ["column"], Options("ReshapeOptions")),
        assign("h", "column"),
        assign("g", "x"),
        add("late", "column", "y"),
    ]
    return _flow(Model(tensors, operators, ["x"], ["y"]), "f")


def turned() -> Flow:
    """Two values that a loop carries: each becomes the other one in its own shape, one of them doubled."""
    names = ["i", "row", "column"]
    tensors = [Tensor("i", [], "float32"), *floats("row"), Tensor("column", [4, 1], "float32")]
    zero = Tensor("zero", [], "float32", data=np.array(0, np.float32))
    condition = Subgraph(
        [*tensors, zero, boolean("more")], [Operator("LESS", ["zero", "i"], ["more"])], names, ["more"]
    )
    one = Tensor("one", [], "float32", data=np.array(-1, np.float32))
    made = [Tensor("j", [], "float32"), *floats("a", "double"), Tensor("b", [4, 1], "float32")]
    body = Subgraph(
        [*tensors, one, *made, shape("wide", 1, 4), shape("high", 4, 1)],
        [
            add("i", "one", "j"),
            add("row", "row", "double"),
            Operator("RESHAPE", ["column", "wide"], ["a"], Options("ReshapeOptions")),
            Operator("RESHAPE", ["double", "high"], ["b"], Options("ReshapeOptions")),
        ],
        names,
        ["j", "a", "b"],
    )
    start = Tensor("three", [], "float32", data=np.array(3, np.float32))
    outer = [*floats("x", "y", "p"), start, Tensor("end", [], "float32"), shape("high", 4, 1)]
    outer += [Tensor("column", [4, 1], "float32"), Tensor("q", [4, 1], "float32")]
    operators = [
        Operator("RESHAPE", ["y", "high"], ["column"], Options("ReshapeOptions")),
        loop(["three", "x", "column"], ["end", "p", "q"], 1, 2),
    ]
    return _flow(Model(outer, operators, ["x", "y"], ["p", "q"], others=[condition, body]), "f", "f")


def chosen() -> Flow:
    """A variable that one side of a branch assigns, the other one reads."""
    then = Subgraph(
        [handle("h"), *floats("a", "old", "b")],
        [variable("kept", "h"), read("h", "old"), add("old", "a", "b"), assign("h", "b")],
        ["a"],
        ["b"],
    )
    other = Subgraph(
        [handle("h"), *floats("a", "old")], [variable("kept", "h"), read("h", "old")], ["a"], ["old"]
    )
    tensors = [boolean("which"), *floats("x", "y")]
    operators = [branch(["which", "x"], ["y"], 1, 2)]
    return _flow(Model(tensors, operators, ["which", "x"], ["y"], others=[then, other]), "b", "f")


def unchanged() -> Flow:
    """Outputs that are an input, a constant, and the same value twice."""
    tensors = [*floats("x", "y"), constant("k", 1, 2, 3, 4)]
    return _flow(Model(tensors, [add("x", "x", "y")], ["x"], ["x", "y", "k", "y"]), "f")


def _all() -> Iterator[Callable[[], Flow]]:
    yield from (
        branches,
        nested,
        given,
        counter,
        delayed,
        shown,
        handed,
        chosen,
        unchanged,
        loops,
        swapped,
        turned,
    )


MODELS = {make.__name__: make for make in _all()}
