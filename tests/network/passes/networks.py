"""Networks for the passes, and the comparison of what they compute before and after."""

from collections.abc import Mapping, Sequence

import numpy as np

from crtgen.network.ir import Array, DType, Graph, Node, Op, Quant, Value
from crtgen.network.ops.case import floats, int8s, weights_and_bias
from crtgen.network.passes import Pass, Rewrite, run_passes

__all__ = ["Network", "assert_same_results", "constants_of"]


class Network:
    """Builds a graph node by node; every method that adds something returns its value's name."""

    def __init__(self, real: bool = False) -> None:
        self.real = real
        self.values: dict[str, Value] = {}
        self.nodes: list[Node] = []
        self.inputs: list[str] = []

    def add_value(self, value: Value) -> str:
        self.values[value.name] = value
        return value.name

    def input(self, name: str, *shape: int, zero_point: int = -7) -> str:
        value = floats(name, shape) if self.real else int8s(name, shape, 0.05, zero_point)
        self.inputs.append(name)
        return self.add_value(value)

    def node(self, name: str, op: Op, *inputs: str, quant: Quant | None = None) -> str:
        """Output ``<name>_out``, quantised as the first input unless ``quant`` is given."""
        values = [self.values[i] for i in inputs]
        ((shape, dtype),) = op.infer(values)
        kept = quant or next((v.quant for v in values if v.quant), None)
        output = Value(f"{name}_out", shape, dtype, kept if dtype is DType.INT8 else None)
        self.nodes.append(Node(name, op, inputs, (output.name,)))
        return self.add_value(output)

    def layer(self, name: str, op: Op, x: str, weights: tuple[int, ...], axis: int = 0) -> str:
        """A layer with random weights and bias; int8 has another quantisation at its output."""
        w, b = weights_and_bias(name, self.values[x], weights, axis, True)
        constants = [self.add_value(constant(f"{name}_{v.name}", v)) for v in (w, b)]
        return self.node(name, op, x, *constants, quant=Quant.tensor(0.21, 3))

    def planted(
        self, name: str, op: Op, x: str, weights: tuple[int, ...], sums: Mapping[int, int], axis: int = 0
    ) -> str:
        """A layer whose output channels in ``sums`` have no weights, and this accumulator."""
        y = self.layer(name, op, x, weights, axis)
        w, b = (self.values[f"{name}_{suffix}"] for suffix in "wb")
        data, bias = w.array().copy(), b.array().copy()
        for channel, total in sums.items():
            np.moveaxis(data, axis, 0)[channel] = 0
            bias[channel] = total
        self.values[w.name] = Value.constant(w.name, data, w.quant)
        self.values[b.name] = Value.constant(b.name, bias, b.quant)
        return y

    def graph(self, *outputs: str) -> Graph:
        return Graph.build("net", list(self.values.values()), self.nodes, self.inputs, outputs)


def constant(name: str, value: Value) -> Value:
    return Value.constant(name, value.array(), value.quant)


def constants_of(graph: Graph) -> list[str]:
    return [name for name, value in graph.values.items() if value.is_constant]


def assert_same_results(graph: Graph, passes: Sequence[Pass]) -> tuple[Graph, tuple[Rewrite, ...]]:
    """The rewritten graph has the same interface and, bit for bit, the same outputs on random inputs."""
    after, rewrites = run_passes(graph, passes)
    assert (after.inputs, after.outputs) == (graph.inputs, graph.outputs)
    for name in (*graph.inputs, *graph.outputs):
        old, new = graph.values[name], after.values[name]
        assert (old.shape, old.dtype, old.quant) == (new.shape, new.dtype, new.quant)
    for seed in range(3):
        inputs = {name: draw(graph.values[name], seed) for name in graph.inputs}
        expected, actual = graph.evaluate(inputs), after.evaluate(inputs)
        for name in graph.outputs:
            assert expected[name].tobytes() == actual[name].tobytes()
    return after, rewrites


def draw(value: Value, seed: int) -> Array:
    random = np.random.default_rng([seed, *map(ord, value.name)])
    if value.dtype is DType.FLOAT32:
        return random.uniform(-4, 9, value.shape).astype(np.float32)
    if value.dtype is DType.BOOL:
        return random.integers(0, 2, value.shape).astype(np.bool_)
    info = np.iinfo(value.dtype.value)
    return random.integers(info.min, info.max, value.shape, value.dtype.value, endpoint=True)
