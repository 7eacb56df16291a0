"""Networks on the model of the NPU: compiled by Vela, executed, their outputs as arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from crtgen.compiler.byoc.ethos_u.network import network_of
from crtgen.compiler.byoc.ethos_u.vela import CompiledStream, compile_network
from crtgen.network.ir import Array, Graph, Node, Value
from crtgen.npu.config import Config
from crtgen.npu.model import Npu

_ALIGN = 16  # a DMA reads up to a multiple of it, into what aligns the next value

__all__ = ["beside", "on_npu", "regions_of"]


def beside(graphs: Sequence[Graph]) -> Graph:
    """Return several graphs as one, in which names begin with the number of theirs."""
    values: list[Value] = []
    nodes: list[Node] = []
    inputs: list[str] = []
    outputs: list[str] = []
    for i, graph in enumerate(graphs):
        values += [replace(value, name=f"{i} {name}") for name, value in graph.values.items()]
        for node in graph.nodes:
            reads, makes = ([f"{i} {name}" for name in names] for names in (node.inputs, node.outputs))
            nodes.append(Node(f"{i} {node.name}", node.op, tuple(reads), tuple(makes)))
        inputs += [f"{i} {name}" for name in graph.inputs]
        outputs += [f"{i} {name}" for name in graph.outputs]
    return Graph.build("beside", values, nodes, inputs, outputs)


def regions_of(
    graph: Graph, compiled: CompiledStream, inputs: Mapping[str, Array]
) -> dict[int, npt.NDArray[np.uint8]]:
    """Return the memory behind each base pointer, with the inputs in place."""
    scratch = np.zeros(compiled.scratch, np.uint8)
    regions = {0: np.frombuffer(compiled.constants, np.uint8), 1: scratch}
    for region, name in zip(compiled.inputs, graph.inputs, strict=True):
        data = np.ascontiguousarray(inputs[name]).tobytes()
        regions[region] = np.frombuffer(data + bytes(-len(data) % _ALIGN), np.uint8)
    for region, name in zip(compiled.outputs, graph.outputs, strict=True):
        regions[region] = np.zeros(graph.values[name].nbytes, np.uint8)
    return {region: memory for region, memory in regions.items() if memory.size}


def on_npu(graph: Graph, config: Config, inputs: Mapping[str, Array]) -> list[Array]:
    """Return the outputs of a graph, all of which Vela has to take."""
    compiled = compile_network(network_of(graph), config)
    regions = regions_of(graph, compiled, inputs)
    constant = frozenset({0, *compiled.inputs})
    Npu(config, regions, constant).run(compiled.stream)
    values = (graph.values[name] for name in graph.outputs)
    return [
        regions[region].view(value.dtype.numpy).reshape(value.shape)
        for region, value in zip(compiled.outputs, values, strict=True)
    ]
