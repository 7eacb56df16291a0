"""A graph as a ``.tflite`` for Vela: the inverse of the front end, for the layers in ``layers``."""

from collections.abc import Mapping, Sequence

from crtgen.base.formats.tflite_writer import TfliteModel, TfliteTensor
from crtgen.compiler.byoc.ethos_u.layers import WRITERS, VelaLayer, tensor_of
from crtgen.network.ir import Graph, Node

__all__ = ["apart", "network_of"]


def network_of(graph: Graph) -> bytes:
    """Return a subgraph as a file. Its values are called ``v0``, ``v1`` and so on, in the order of the
    graph.
    """
    names = {name: f"v{i}" for i, name in enumerate(graph.values)}
    tensors = [tensor_of(names[name], value) for name, value in graph.values.items()]
    layers = [_written(graph, node, names) for node in graph.nodes]
    inputs = [names[name] for name in graph.inputs]
    outputs = [names[name] for name in graph.outputs]
    return _model(tensors, layers, inputs, outputs)


def apart(graph: Graph, nodes: Sequence[Node]) -> bytes:
    """Return a file in which each of these layers is independent, with inputs and an output of its own.

    Layer ``n`` computes ``y<n>``, whatever precedes it in the file.
    """
    tensors: list[TfliteTensor] = []
    layers, inputs, outputs = [], [], []
    for n, node in enumerate(nodes):
        names = {name: f"y{n} x{i}" for i, name in enumerate(node.inputs)}
        names[node.outputs[0]] = f"y{n}"
        tensors += [tensor_of(own, graph.values[name]) for name, own in names.items()]
        layers.append(_written(graph, node, names))
        inputs += [
            own for name, own in names.items() if name in node.inputs and not graph.values[name].is_constant
        ]
        outputs.append(f"y{n}")
    return _model(tensors, layers, inputs, outputs)


def _written(graph: Graph, node: Node, names: Mapping[str, str]) -> VelaLayer:
    inputs = [names[name] for name in node.inputs]
    layer = VelaLayer(node.op, graph.signature(node), inputs, names[node.outputs[0]])
    WRITERS[type(node.op)](layer)
    return layer


def _model(
    tensors: Sequence[TfliteTensor],
    layers: Sequence[VelaLayer],
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> bytes:
    every = [*tensors, *(tensor for layer in layers for tensor in layer.tensors)]
    operators = [operator for layer in layers for operator in layer.operators]
    return TfliteModel(every, operators, inputs, outputs).to_bytes()
