"""TFLite Micro as the oracle: a graph as a `.tflite` file, and its outputs by tflite-micro."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from tflite_micro import runtime

from crtgen.network.ir import Array, DType, Graph, Op, Value
from crtgen.network.ops.conv import real_weights
from tests.network.ops.oracle import detection, elementwise, move, recurrent, reduce, signal, weights
from tests.network.ops.oracle.writer import Write, Writer
from tests.tflite_builder import Model, Operator, Tensor

_ARENA = 1 << 22
_WRITERS: Mapping[type[Op], Write] = {
    kind: write
    for family in (detection, elementwise, move, recurrent, reduce, signal, weights)
    for kind, write in family.WRITERS.items()
}


def parts(graph: Graph) -> tuple[list[Tensor], list[Operator]]:
    """The tensors and operators of a graph."""
    writer = Writer(graph)
    for node in graph.nodes:
        code, options, extra = _WRITERS[type(node.op)](writer, node, graph.signature(node))
        if code:
            writer.add(node, code, options, extra)
    return writer.tensors, writer.operators


def model(graph: Graph) -> bytes:
    """The graph as a `.tflite` file."""
    return Model(*parts(graph), graph.inputs, graph.outputs).to_bytes()


def real(graph: Graph) -> Graph:
    """The graph with weights of float32 for those of int8 on float32, which TFLite Micro refuses."""
    values = dict(graph.values)
    for node in graph.nodes:
        x, weights = (graph.values[name] for name in (*node.inputs, *node.outputs)[:2])
        if x.dtype is DType.FLOAT32 and weights.is_constant and weights.dtype is DType.INT8:
            values[weights.name] = Value.constant(weights.name, real_weights(weights).astype(np.float32))
    return replace(graph, values=values)


def run(data: bytes, inputs: Mapping[str, Array], names: tuple[str, ...], outputs: int = 1) -> list[Array]:
    """The outputs of a `.tflite` file by tflite-micro's reference kernels."""
    (made,) = run_all(data, [tuple(inputs[name] for name in names)], outputs)
    return made


def run_all(data: bytes, runs: Iterable[Sequence[Array]], outputs: int = 1) -> Iterator[list[Array]]:
    """The outputs of runs one after the other, each with an array for each input."""
    interpreter = runtime.Interpreter.from_bytes(data, arena_size=_ARENA)
    for inputs in runs:
        for index, array in enumerate(inputs):
            interpreter.set_input(array, index)
        interpreter.invoke()
        yield [interpreter.get_output(i).copy() for i in range(outputs)]


def assert_same(actual: Array, expected: Array) -> None:
    """int8 is equal; float32 differs by at most 1e-5 of the largest output."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    if actual.dtype == DType.FLOAT32.numpy:
        error = np.abs(actual.astype(np.float64) - expected.astype(np.float64)).max()
        assert error <= 1e-5 * max(float(np.abs(expected).max()), 1e-30)
    else:
        np.testing.assert_array_equal(actual, expected)
