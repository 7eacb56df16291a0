"""Windows that a subgraph reduces: STABLEHLO_REDUCE_WINDOW, which litert-torch writes for 3-D poolings.

The operator names a subgraph of two inputs, which is applied to the elements of each window in turn. If the
subgraph is a single ADD, MAXIMUM or MINIMUM, the operator gets its name as the option ``Reduction``.
"""

from collections.abc import Sequence
from dataclasses import replace

from crtgen.network.frontends.tflite_file import FileOperator, TfliteFileGraph

__all__ = ["REDUCE_WINDOW", "with_reductions"]

REDUCE_WINDOW = "STABLEHLO_REDUCE_WINDOW"


def with_reductions(graph: TfliteFileGraph, graphs: Sequence[TfliteFileGraph]) -> TfliteFileGraph:
    if all(op.code != REDUCE_WINDOW for op in graph.operators):
        return graph
    return replace(graph, operators=tuple(_named(op, graphs) for op in graph.operators))


def _named(op: FileOperator, graphs: Sequence[TfliteFileGraph]) -> FileOperator:
    number = op.options.get("BodySubgraphIndex", -1)
    if op.code != REDUCE_WINDOW or not 0 <= number < len(graphs):
        return op
    body = graphs[number]
    codes = [inner.code for inner in body.operators]
    if len(codes) != 1 or set(body.operators[0].inputs) != set(body.inputs) or len(body.inputs) != 2:
        return op
    return replace(op, options={**op.options, "Reduction": codes[0]})
