"""Instructions of single layers by crtgen's kernels and by CMSIS-NN's.

``python -m benchmarks.cmsis_nn [NAME...]`` builds each layer alone, once with each, for a Cortex-M4 and a
Cortex-M55; both give the same output. docs/performance.md shows some of the rows. Names are beginnings of the
layers'. ``CMSIS_NN_PATH`` says where CMSIS-NN is.
"""

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from crtgen.api import Model
from crtgen.compiler.byoc import CmsisNn
from crtgen.lab.measure.cases import random_inputs
from crtgen.network.frontends import load_tflite
from crtgen.network.ir import DType, Graph, Op, Quant, Value, shape_text
from crtgen.network.ops import (
    Add,
    AveragePool2d,
    Case,
    Conv2d,
    DepthwiseConv2d,
    FullyConnected,
    Logistic,
    MaxPool2d,
    Mul,
    Pad,
    Padding,
    Softmax,
    Tanh,
    Transpose,
)
from crtgen.network.ops.case import in_four_bits, int8s, int16s, make, weights_and_bias
from crtgen.network.ops.compare import Maximum, Minimum
from crtgen.network.ops.lstm import Lstm, lstm_case
from crtgen.network.ops.matmul import BatchMatMul
from crtgen.network.ops.svdf import svdf_case
from tests.tflite_builder import Model as File
from tests.tflite_builder import Operator, Options, Tensor

BOARDS = ("mps2_an386", "mps3_an547")
_SAME = Padding(1, 1, 1, 1)
_FRACTION = Quant.tensor(1 / 32768)


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """A network of one layer, and its multiplications, or elements of its output where there are none."""

    name: str
    graph: Graph
    units: int


def layers() -> Iterator[Layer]:
    """The layers of the table, in sizes of keyword spotting and of small images."""
    for case in _cases():
        yield Layer(case.name, case.graph(), case.op.macs(case.sig) or case.sig.y.elements)
    yield _transposed()


def _cases() -> Iterator[Case]:
    yield from _weighted("int8")
    yield from (in_four_bits(case) for case in _weighted("int8") if not isinstance(case.op, DepthwiseConv2d))
    yield from _weighted("int16")
    yield from _products()
    yield from _recurrent()
    yield from _elements("int8")
    yield from _elements("int16")
    yield from _functions()
    yield from _moves()


def _activation(kind: str, shape: tuple[int, ...], name: str = "x") -> Value:
    return int16s(name, shape, 0.0004) if kind == "int16" else int8s(name, shape, 0.04, -5)


def _weighted(kind: str) -> Iterator[Case]:
    out = Quant.tensor(0.02) if kind == "int16" else Quant.tensor(2.0, 3)
    ops: Sequence[tuple[str, Op, tuple[int, ...], tuple[int, ...], int]] = (
        ("3x3", Conv2d((1, 1), _SAME), (1, 16, 16, 16), (16, 3, 3, 16), 0),
        ("first", Conv2d((2, 2), Padding(4, 5, 1, 1)), (1, 49, 10, 1), (64, 10, 4, 1), 0),
        ("1x1", Conv2d(), (1, 25, 5, 64), (64, 1, 1, 64), 0),
        ("3x3", DepthwiseConv2d((1, 1), _SAME), (1, 25, 5, 64), (1, 3, 3, 64), 3),
        ("256", FullyConnected(), (1, 256), (128, 256), 0),
    )
    for name, op, shape, weights, axis in ops:
        x = _activation(kind, shape)
        dense = isinstance(op, FullyConnected)
        yield make(f"{name}_{kind}", op, [x, *weights_and_bias(name, x, weights, axis, not dense)], out)


def _transposed() -> Layer:
    """One that doubles rows and columns, as front ends make it: from a file."""
    rng = np.random.default_rng(1)
    size, taps, inputs, outputs = 8, 4, 32, 16
    weights = rng.integers(-127, 128, (outputs, taps, taps, inputs), np.int8)
    bias = rng.integers(-900, 900, outputs, np.int32)
    shape, scales = [1, 2 * size, 2 * size, outputs], [0.01] * outputs
    tensors = [
        Tensor("x", [1, size, size, inputs], "int8", [0.05], [3]),
        Tensor("y", shape, "int8", [1.5], [-7]),
        Tensor("shape", [4], "int32", data=np.array(shape, np.int32)),
        Tensor("w", weights.shape, "int8", scales, [0] * outputs, 0, weights),
        Tensor("b", [outputs], "int32", [0.0005] * outputs, [0] * outputs, 0, bias),
    ]
    options = Options("TransposeConvOptions", Padding=0, StrideH=2, StrideW=2)
    operators = [Operator("TRANSPOSE_CONV", ["shape", "w", "x", "b"], ["y"], options)]
    graph = load_tflite(File(tensors, operators, ["x"], ["y"]).to_bytes())
    return Layer("transpose_conv_4x4_int8", graph, size * size * weights.size)


def _products() -> Iterator[Case]:
    for kind, out in (("int8", Quant.tensor(0.3)), ("int16", Quant.tensor(0.002))):
        operands = [_activation(kind, (2, 32, 48), "a"), _activation(kind, (2, 24, 48), "b")]
        yield make(kind, BatchMatMul(adj_y=True), operands, out)


def _recurrent() -> Iterator[Case]:
    yield lstm_case("int8", Lstm(), int8s("x", (1, 10, 32), 0.03, -9), 32, hidden=Quant.tensor(0.0075, 5))
    yield lstm_case("int16", Lstm(), int16s("x", (1, 10, 32), 0.0001), 32)
    yield svdf_case("int8", int8s("x", (1, 40), 0.05, -7), 64, 2, 10, DType.INT8)
    yield svdf_case("int16", int8s("x", (1, 40), 0.05, -7), 64, 2, 10, DType.INT16)


def _elements(kind: str) -> Iterator[Case]:
    shape = (1, 25, 5, 64)
    a, b = _activation(kind, shape, "a"), _activation(kind, shape, "b")
    out = Quant.tensor(0.07, 3) if kind == "int8" else Quant.tensor(0.0007)
    yield make(kind, Add(), [a, b], out)
    yield make(kind, Mul(), [a, b], Quant.tensor(out.scale * 3, out.zero_point))
    yield make(f"2x2_{kind}", MaxPool2d((2, 2), (2, 2)), [_activation(kind, (1, 24, 6, 64))])
    yield make(f"2x2_{kind}", AveragePool2d((2, 2), (2, 2)), [_activation(kind, (1, 24, 6, 64))])
    yield make(f"whole_{kind}", AveragePool2d((25, 5), (25, 5)), [_activation(kind, shape)])
    yield make(f"12_{kind}", Softmax(), [_activation(kind, (20, 12))], _probability(kind))
    if kind == "int8":
        for op in (Maximum(), Minimum()):
            yield make(kind, op, [a, b])


def _probability(kind: str) -> Quant:
    return Quant.tensor(1 / 256, -128) if kind == "int8" else _FRACTION


def _functions() -> Iterator[Case]:
    x = int16s("x", (1, 2000), 2.0**-12)
    for op in (Logistic(), Tanh()):
        yield make("int16", op, [x], _FRACTION)


def _moves() -> Iterator[Case]:
    x = int8s("x", (1, 24, 10, 16))
    yield make("int8", Pad((0, 1, 1, 0), (0, 1, 1, 0)), [x])
    yield make("to_planes_int8", Transpose((0, 3, 1, 2)), [x])
    yield make("matrix_int8", Transpose((1, 0)), [int8s("x", (60, 64))])


def counted(graph: Graph, board: str, cmsis_nn: bool) -> tuple[int, list[bytes]]:
    """Instructions of a run, and what it gives."""
    generators = [CmsisNn()] if cmsis_nn else []
    compiled = Model(graph).compile(board, optimize="speed", generators=generators)
    with compiled.generate("server").build().run() as session:
        outputs = session.infer(*random_inputs(session.model().inputs, seed=0))
        instructions = session.measure().instructions
    assert instructions is not None
    return instructions, [np.asarray(y).tobytes() for y in outputs]


def row(name: str) -> str:
    """The line of a layer."""
    layer = next(layer for layer in layers() if layer.name == name)
    graph = layer.graph
    cells = [f"`{name}`", shape_text(graph.values[graph.inputs[0]].shape)]
    for board in BOARDS:
        ours, given = counted(graph, board, False)
        theirs, wanted = counted(graph, board, True)
        assert given == wanted, f"{name} differs on {board}"
        figures = (ours / layer.units, theirs / layer.units, ours / theirs)
        cells += [f"{figure:.2f}" for figure in figures]
    return f"| {' | '.join(cells)} |"


def main(names: Sequence[str]) -> None:
    chosen = [c.name for c in layers() if not names or c.name.startswith(tuple(names))]
    print("| layer | input | M4 | CMSIS-NN | ratio | M55 | CMSIS-NN | ratio |")
    print("|" + "---|" * 8)
    with ProcessPoolExecutor(2) as pool:
        for line in pool.map(row, chosen):
            print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
