"""Random networks of plain arithmetic, and numpy's results."""

from collections.abc import Mapping, Sequence

import numpy as np

from crtgen.network.ir import Array, DType, Graph, Node, Op, Value
from crtgen.network.ops import Add, Mul, Sub

__all__ = ["OPS", "arithmetic", "inputs_of", "numpy_result"]

OPS: tuple[Op, ...] = (Add(), Sub(), Mul())
_NUMPY = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


def arithmetic(
    name: str,
    dtype: DType,
    calls: Sequence[tuple[Op, str, str]],
    shapes: Mapping[str, tuple[int, ...]],
    outputs: Sequence[str] = (),
    constants: Sequence[str] = (),
) -> Graph:
    """Node ``i`` computes ``v<i>`` from two names; ``shapes`` are of inputs and constants."""
    random = np.random.default_rng(len(name))
    values: list[Value] = []
    for key, shape in shapes.items():
        if key in constants:
            values.append(Value.constant(key, numbers(random, shape, dtype)))
        else:
            values.append(Value(key, shape, dtype))
    known = dict(shapes)
    nodes = []
    for i, (op, a, b) in enumerate(calls):
        known[f"v{i}"] = np.broadcast_shapes(known[a], known[b])
        values.append(Value(f"v{i}", known[f"v{i}"], dtype))
        nodes.append(Node(f"n{i}", op, (a, b), (f"v{i}",)))
    inputs = [key for key in shapes if key not in constants]
    return Graph.build(name, values, nodes, inputs, outputs or [f"v{len(calls) - 1}"])


def numbers(random: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Over the whole range of the type."""
    if dtype is DType.FLOAT32:
        return random.uniform(-4, 4, shape).astype(np.float32)
    info = np.iinfo(dtype.value)
    return random.integers(info.min, info.max, shape, dtype.numpy, endpoint=True)


def inputs_of(graph: Graph, seed: int) -> list[Array]:
    random = np.random.default_rng(seed)
    return [numbers(random, graph.values[n].shape, graph.values[n].dtype) for n in graph.inputs]


def numpy_result(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """By numpy's own operators in the type itself, without the references of ``crtgen.ops``."""
    env = {n: v.array() for n, v in graph.values.items() if v.is_constant}
    env.update(zip(graph.inputs, inputs, strict=True))
    with np.errstate(over="ignore"):
        for node in graph.nodes:
            a, b = (env[n] for n in node.inputs)
            env[node.outputs[0]] = np.asarray(_NUMPY[node.op.name](a, b))
    return [env[n] for n in graph.outputs]
