"""Small `.onnx` files that ask for much: by a grammar of constants, loops, functions and large lengths.

What is looked for is time of the processor and memory, not only crashes.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from crtgen.network.frontends import load_onnx
from tests.fuzz.engine import Target

__all__ = ["costs_target"]

SECONDS, ROOM = 5.0, 512 << 20
"""Of the processor, and bytes beyond those of the process before: what any small file may take."""

_LENGTHS = (
    0,
    1,
    2,
    3,
    7,
    16,
    64,
    255,
    1000,
    4096,
    1 << 16,
    1 << 20,
    1 << 24,
    1 << 26,
    1 << 31,
    (1 << 63) - 1,
)
_SHAPES = ((), (1,), (16,), (1, 16), (64, 64), (1, 3, 32, 32), (8, 8, 3, 3), (300, 300), (1, 16, 200, 200))
_LARGE = (
    (2048, 2048),
    (1 << 20,),
    (1, 64, 512, 512),
    (1 << 24,),
    (4096, 4096),
    (1 << 26,),
    (1 << 13, 1 << 13),
)
_KINDS = (np.float32, np.float32, np.float32, np.int64, np.int32, np.uint8, np.int8, np.bool_, np.float64)
_ELEMENTWISE = (
    "Add",
    "Mul",
    "Sub",
    "Div",
    "Pow",
    "Max",
    "Min",
    "Mod",
    "Equal",
    "Less",
    "And",
    "MatMul",
    "PRelu",
)
_UNARY = ("Neg", "Sqrt", "Exp", "Relu", "Erf", "Softmax", "Identity", "Transpose", "Shape", "Size", "Flatten")
_NOT_FUZZED = {"ImageDecoder", "If", "Loop", "Scan", "SequenceMap"}


@cache
def _schemas() -> tuple[Any, ...]:
    """The newest version of each of ONNX's operators without subgraphs."""
    newest: dict[str, Any] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        known = newest.get(schema.name)
        if schema.domain == "" and schema.name not in _NOT_FUZZED and not schema.deprecated:
            newest[schema.name] = schema if known is None else max(known, schema, key=_version)
    return tuple(newest[name] for name in sorted(newest))


def _version(schema: Any) -> int:
    return int(schema.since_version)


@dataclass
class _Garden:
    """A graph that grows: nodes, initial constants, and the names that there are."""

    random: Random
    prefix: str = ""
    nodes: list[Any] = field(default_factory=list)
    initializers: list[Any] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def fresh(self) -> str:
        """A new name."""
        return f"{self.prefix}{len(self.nodes)}_{len(self.initializers)}_{len(self.names)}"

    def constant(self, array: Any) -> str:
        name = f"c{self.fresh()}"
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, code: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> str:
        """Add a node; its first output."""
        made = [f"n{self.fresh()}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(code, list(inputs), made, **attributes))
        self.names += made
        return made[0]

    def any(self) -> str:
        """A tensor that is there, a later one rather than an early one."""
        return self.random.choice(self.names[-6:] if self.random.random() < 0.7 else self.names)

    def lengths(self, most: int = 4) -> Any:
        count = self.random.randrange(1, most + 1)
        return np.array([self.random.choice(_LENGTHS) for _ in range(count)], np.int64)


def _filled(garden: _Garden) -> None:
    """A constant that the file does not hold."""
    random = garden.random
    shape = random.choice(_LARGE if random.random() < 0.3 else _SHAPES)
    lengths = np.array(shape, np.int64) if random.random() < 0.8 else garden.lengths()
    value = numpy_helper.from_array(np.ones(1, random.choice(_KINDS)))
    garden.node("ConstantOfShape", [garden.constant(lengths)], value=value)


def _written(garden: _Garden) -> None:
    """A constant that it holds."""
    shape = garden.random.choice(_SHAPES[:6])
    garden.names.append(garden.constant(np.ones(shape, garden.random.choice(_KINDS))))


def _pair(garden: _Garden) -> None:
    first = garden.any()
    second = first if garden.random.random() < 0.5 else garden.any()
    garden.node(garden.random.choice(_ELEMENTWISE), [first, second])


def _one(garden: _Garden) -> None:
    garden.node(garden.random.choice(_UNARY), [garden.any()])


def _again(garden: _Garden) -> None:
    """The same operator, doubling what it doubles."""
    code = garden.random.choice(("Add", "Mul", "Concat", "MatMul"))
    more = {"axis": 0} if code == "Concat" else {}
    name = garden.any()
    for _ in range(garden.random.choice((2, 10, 25, 40))):
        name = garden.node(code, [name, name], **more)


def _sized(garden: _Garden) -> None:
    """An operator whose output is as long as its inputs say."""
    random, x = garden.random, garden.any()
    lengths = garden.constant(garden.lengths())
    one, number = (garden.constant(np.int64(random.choice(_LENGTHS))) for _ in range(2))
    scales = garden.constant(np.array([1, 1, *random.choices((0.1, 2, 1e3, 1e9), k=2)], np.float32))
    code, inputs, attributes = random.choice(
        (
            ("Expand", [x, lengths], {}),
            ("Tile", [x, lengths], {}),
            ("Pad", [x, lengths], {"mode": random.choice(("constant", "edge", "reflect", "wrap"))}),
            ("Resize", [x, "", scales], {"mode": random.choice(("nearest", "linear", "cubic"))}),
            ("Range", [garden.constant(np.int64(0)), number, garden.constant(np.int64(1))], {}),
            ("OneHot", [x, number, garden.constant(np.array([0, 1], np.float32))], {}),
            ("HannWindow", [number], {}),
            ("MelWeightMatrix", [one, number, *(garden.constant(np.int64(n)) for n in (8000, 0, 4000))], {}),
            ("Reshape", [x, lengths], {}),
            ("Trilu", [x, number], {}),
            ("TopK", [x, garden.constant(garden.lengths(1))], {}),
            ("CenterCropPad", [x, lengths], {}),
            ("DFT", [x, number], {}),
            ("Gather", [x, garden.any()], {}),
            ("EyeLike", [x], {}),
            ("NonZero", [x], {}),
            ("CumSum", [x, garden.constant(np.int64(0))], {}),
        )
    )
    garden.node(code, inputs, outputs=2 if code == "TopK" else 1, **attributes)


def _window(garden: _Garden) -> None:
    """An operator with a window of any size."""
    random = garden.random
    size = [random.choice((1, 3, 15, 200, 1 << 16, 1 << 31)) for _ in range(2)]
    code = random.choice(("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "Einsum", "Gemm"))
    if code in ("MaxPool", "AveragePool", "LpPool"):
        pads: dict[str, Any] = {"pads": [n // 2 for n in (*size, *size)]} if random.random() < 0.5 else {}
        outputs = 2 if code == "MaxPool" and random.random() < 0.5 else 1
        garden.node(code, [garden.any()], outputs, kernel_shape=size, **pads)
    elif code == "Einsum":
        equation = random.choice(("ij,jk->ik", "ij,kl->ijkl", "i,j,k,l->ijkl", "ij,ij,ij->"))
        garden.node(code, [garden.any() for _ in equation.partition("->")[0].split(",")], equation=equation)
    else:
        more: dict[str, Any] = {} if code == "Gemm" else {random.choice(("strides", "dilations")): size}
        garden.node(code, [garden.any(), garden.any()], 1, **more)


def _anything(garden: _Garden) -> None:
    """Any operator at all, with inputs of any kind and some attributes."""
    random = garden.random
    schema = random.choice(_schemas())
    count = random.randrange(schema.min_input, max(schema.min_input, min(schema.max_input, 5)) + 1)
    attributes: dict[str, Any] = {}
    for name, attribute in schema.attributes.items():
        if not attribute.required and random.random() < 0.6:
            continue
        kind = str(attribute.type).rpartition(".")[2]
        made = {
            "INT": random.choice(_LENGTHS),
            "INTS": [random.choice(_LENGTHS) for _ in range(random.randrange(1, 5))],
            "FLOAT": random.choice((0.0, 1.0, 1e30)),
            "STRING": random.choice(("linear", "SAME_UPPER", "constant", "ij->ji")),
        }.get(kind)
        if made is not None:
            attributes[name] = made
    garden.node(
        schema.name, [garden.any() for _ in range(count)], min(max(schema.min_output, 1), 4), **attributes
    )


def _loop(garden: _Garden) -> None:
    """A loop, or a scan, of a body that grows the same way; its state is a constant, or is not."""
    random = garden.random
    state = garden.any()
    body = _Garden(random, prefix=f"{garden.prefix}b{len(garden.nodes)}_")
    kinds = [helper.make_empty_tensor_value_info(f"{body.prefix}{n}") for n in ("i", "c", "v")]
    if random.random() < 0.6:
        shape = [1, 16]
        kinds = [
            helper.make_tensor_value_info(kinds[0].name, TensorProto.INT64, []),
            helper.make_tensor_value_info(kinds[1].name, TensorProto.BOOL, []),
            helper.make_tensor_value_info(kinds[2].name, TensorProto.FLOAT, shape),
        ]
        state = garden.constant(np.ones(shape, np.float32)) if random.random() < 0.7 else "x"
    body.names += [kinds[2].name]
    _grow(body, random.randrange(1, 4), inner=True)
    keeps = body.node("Mul", [kinds[2].name, kinds[2].name])
    goes_on = body.node("Identity", [kinds[1].name])
    collected = [body.any()] if random.random() < 0.3 else []
    outputs = [
        helper.make_empty_tensor_value_info(name) for name in dict.fromkeys((goes_on, keeps, *collected))
    ]
    graph = helper.make_graph(body.nodes, "body", kinds, outputs, body.initializers)
    trips = garden.constant(np.int64(random.choice(_LENGTHS)))
    condition = random.choice(("", garden.constant(np.bool_(True))))
    garden.node("Loop", [trips, condition, state], len(outputs) - 1, body=graph)


_RULES: tuple[tuple[Callable[[_Garden], None], int], ...] = (
    (_filled, 5),
    (_written, 3),
    (_pair, 6),
    (_one, 5),
    (_again, 2),
    (_sized, 5),
    (_window, 3),
    (_anything, 4),
    (_loop, 2),
)


def _grow(garden: _Garden, count: int, inner: bool = False) -> None:
    """Apply rules; a body has no bodies of more than two levels."""
    rules = [
        (rule, weight) for rule, weight in _RULES if not (rule is _loop and garden.prefix.count("b") > 1)
    ]
    for _ in range(count):
        garden.random.choices([r for r, _ in rules], [w for _, w in rules])[0](garden)


def _functions(random: Random) -> list[Any]:
    """Functions that call one another, each so many times."""
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("my", 1)]
    depth, times = random.choice((2, 5, 12, 40)), random.choice((1, 2, 3))
    made = []
    for level in range(depth):
        code, domain = (f"f{level + 1}", "my") if level + 1 < depth else ("Neg", "")
        names = ["a", *(f"t{i}" for i in range(times - 1)), "o"]
        nodes = [helper.make_node(code, [a], [b], domain=domain) for a, b in pairwise(names)]
        made.append(helper.make_function("my", f"f{level}", ["a"], ["o"], nodes, opsets))
    return made


def _grown(random: Random, seeds: Sequence[bytes]) -> bytes:
    """A model whose output follows from the last that grew."""
    garden = _Garden(random)
    garden.names.append("x")
    _filled(garden)
    _grow(garden, random.choice((1, 2, 3, 5, 8)))
    functions = _functions(random) if random.random() < 0.15 else []
    last = garden.names[-1]
    if functions:
        garden.nodes.append(helper.make_node("f0", [last], ["of_function"], domain="my"))
        last = "of_function"
    real = garden.node("Cast", [last], to=TensorProto.FLOAT)
    least = garden.node("ReduceMax", [real], keepdims=0)
    garden.nodes.append(helper.make_node("Add", ["x", least], ["y"]))
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16]) for name in ("x", "y")]
    try:
        graph = helper.make_graph(garden.nodes, "g", kinds[:1], kinds[1:], garden.initializers)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("my", 1)]
        model = helper.make_model(graph, opset_imports=opsets, functions=functions)
        model.ir_version = 10
        return bytes(model.SerializeToString())
    except (ValueError, TypeError):
        return seeds[0]


def costs_target(compile_: Callable[[Any, str], None]) -> Target:
    """The front end within its bounds; a quarter of the accepted is compiled by ``compile_``."""

    def seed() -> tuple[bytes, ...]:
        node = helper.make_node("Neg", ["x"], ["y"])
        kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16]) for name in ("x", "y")]
        graph = helper.make_graph([node], "g", kinds[:1], kinds[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
        model.ir_version = 10
        return (bytes(model.SerializeToString()),)

    def run(data: bytes, folder: Path) -> bool:
        graph = load_onnx(data)
        number = zlib.crc32(data) % 12
        if number < 3:
            compile_(graph, ("host", "mps2_an386", "mps3_an547")[number])
        return True

    return Target("costs", seed, _grown, run, SECONDS, ROOM)
