"""Changes the interface of a network for the application: types of inputs and outputs, and the order of an
image's axes.

Unlike passes, this is not an equivalent rewrite, so it is applied when a model is loaded.
"""

from collections.abc import Callable
from dataclasses import replace

from crtgen.base.errors import UsageError
from crtgen.network.ir import DType, Graph, Node, Quant, Value
from crtgen.network.ops import INT8, Dequantize, Quantize, Transpose

__all__ = ["channels_last", "turned_shape", "with_io"]

_OF_BYTE = -INT8.low
_LAST, _FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
_ENDS = (DType.FLOAT32, DType.INT8, DType.UINT8)


def with_io(graph: Graph, to: DType) -> Graph:
    """Change the type of quantised inputs and outputs to ``to``, which is int8 or uint8.

    If the file's graph begins or ends with a conversion, it is removed, and the application exchanges the
    converted values instead. Between int8 and uint8, a QUANTIZE with the same scale is added. Raises
    ``UsageError`` if no input or output changes.
    """
    made = graph
    for name in graph.inputs:
        made = _input(made, name, to)
    for name in graph.outputs:
        made = _output(made, name, to)
    if made is graph:
        reason = f"no input and no output becomes {to.value}"
        hint = "each is so already, or is computed with as it is: leave --io out"
        raise UsageError(reason, where=graph.name, hint=hint)
    return made


def channels_last(graph: Graph) -> Graph:
    """Return the graph with images of ``[N, H, W, C]``, the layout of cameras, instead of ``[N, C, H, W]``.

    Raises ``UsageError`` if no input and no output has four dimensions.
    """
    made = graph
    for name in (*graph.inputs, *graph.outputs):
        if len(graph.values[name].shape) == len(_LAST):
            made = _turned(made, name)
    if made is graph:
        hint = "leave --channels out"
        raise UsageError("no input and no output has four dimensions", where=graph.name, hint=hint)
    return made


def _input(graph: Graph, name: str, to: DType) -> Graph:
    # Its readers are conversions to one quantisation: what they make is the input.
    value, readers = graph.values[name], [n for n in graph.nodes if name in n.inputs]
    if value.dtype not in _ENDS or value.dtype is to or name in graph.outputs:
        return graph
    results = [graph.values[n.outputs[0]] for n in readers if isinstance(n.op, Quantize)]
    alike = {(v.dtype, v.quant) for v in results} == {(DType.INT8, results[0].quant if results else None)}
    if len(results) != len(readers) or not alike or set(graph.lasting) & {v.name for v in results}:
        return graph
    gone = {v.name: name for v in results}
    inner = replace(value, dtype=DType.INT8, quant=results[0].quant)
    nodes = [_renamed(n, gone) for n in graph.nodes if n not in readers]
    return _built(graph, nodes, {name: inner}, set(gone), (name, to), reads=True)


def _output(graph: Graph, name: str, to: DType) -> Graph:
    # It is converted from quantised numbers: those are the output.
    value = graph.values[name]
    last = next((n for n in graph.nodes if name in n.outputs), None)
    if value.dtype not in _ENDS or value.dtype is to or last is None:
        return graph
    source = graph.values[last.inputs[0]]
    taken = source.name in (*graph.inputs, *graph.lasting) or any(name in n.inputs for n in graph.nodes)
    if not isinstance(last.op, Dequantize | Quantize) or source.dtype is not DType.INT8 or taken:
        return graph
    inner = replace(source, name=name)
    nodes = [_renamed(n, {source.name: name}) for n in graph.nodes if n is not last]
    return _built(graph, nodes, {name: inner}, {source.name}, (name, to), reads=False)


def _renamed(node: Node, names: dict[str, str]) -> Node:
    return replace(
        node,
        inputs=tuple(names.get(n, n) for n in node.inputs),
        outputs=tuple(names.get(n, n) for n in node.outputs),
    )


def _built(
    graph: Graph,
    nodes: list[Node],
    changed: dict[str, Value],
    gone: set[str],
    end: tuple[str, DType],
    reads: bool,
) -> Graph:
    # The graph with other nodes and values; the end becomes uint8 by a conversion if it has to.
    values = {k: changed.get(k, v) for k, v in graph.values.items() if k not in gone}
    made = Graph.build(graph.name, list(values.values()), nodes, graph.inputs, graph.outputs, graph.states)
    name, to = end
    if to is not DType.UINT8:
        return made
    return _converted(made, name, _as_byte, Quantize(DType.INT8) if reads else Quantize(DType.UINT8))


def _as_byte(value: Value) -> Value:
    quant = value.quant
    assert quant is not None
    zeros = tuple(zero + _OF_BYTE for zero in quant.zero_points)
    return replace(value, dtype=DType.UINT8, quant=Quant(quant.scales, zeros, quant.axis))


def _turned(graph: Graph, name: str) -> Graph:
    # Passes remove the transpose where another one undoes it.
    op = Transpose(_FIRST if name in graph.inputs else _LAST)
    return _converted(graph, name, _with_channels_last, op)


def turned_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Turn ``(N, C, H, W)`` into ``(N, H, W, C)``; other shapes are unchanged."""
    return tuple(shape[axis] for axis in _LAST) if len(shape) == len(_LAST) else shape


def _with_channels_last(value: Value) -> Value:
    return replace(value, shape=turned_shape(value.shape))


def _converted(graph: Graph, name: str, outside: Callable[[Value], Value], op: Quantize | Transpose) -> Graph:
    # The end as ``outside`` has it, with a node between it and what it was.
    value = graph.values[name]
    inner = next(n for n in (f"{name}_{i}" for i in range(len(graph.values) + 1)) if n not in graph.values)
    names = {node.name for node in graph.nodes}
    label = next(n for n in (f"{op.name}_{i}" for i in range(len(names) + 1)) if n not in names)
    nodes = [_renamed(node, {name: inner}) for node in graph.nodes]
    ends = (name, inner) if name in graph.inputs else (inner, name)
    made = Node(label, op, (ends[0],), (ends[1],))
    nodes = [made, *nodes] if name in graph.inputs else [*nodes, made]
    values = [*(v for k, v in graph.values.items() if k != name), outside(value), replace(value, name=inner)]
    return Graph.build(graph.name, values, nodes, graph.inputs, graph.outputs, graph.states)
