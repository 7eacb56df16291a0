"""Subgraphs of an `.onnx` file: If, Loop and Scan. A constant condition selects one branch."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from crtgen.base.errors import UnsupportedError
from crtgen.network.frontends.builder import Converted, GraphBuilder, NamedTensor, RefusedOperator
from crtgen.network.frontends.onnx_convert import OnnxLayer
from crtgen.network.frontends.onnx_convert.layer import same
from crtgen.network.frontends.onnx_file import OnnxFileGraph
from crtgen.network.frontends.onnx_loop import LoopBody, Rounds, ScanAxis
from crtgen.network.ops.control import ControlFlow, If

__all__ = ["FLOW", "OnnxFlow", "Tensors"]

FLOW = ("If", "Loop", "Scan")

Tensors: TypeAlias = dict[str, NamedTensor]
"""Tensors that a graph can name, including those of the graphs around it."""

_MOST_NODES = 1 << 16


class OnnxFlow:
    """Converter of nodes with subgraphs; ``nodes`` adds the nodes of a graph."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.types: set[str] = set()
        self._count = 0
        self._scopes = 0

    @abstractmethod
    def nodes(self, file: OnnxFileGraph, tensors: Tensors, builder: GraphBuilder) -> None: ...

    def count(self) -> None:
        self._count += 1
        if self._count > _MOST_NODES:
            raise UnsupportedError(f"the graph has more than {_MOST_NODES:,} nodes", where=self.where)

    def flow(
        self, layer: OnnxLayer, tensors: Tensors, builder: GraphBuilder, results: Sequence[NamedTensor]
    ) -> None:
        add: Mapping[str, Callable[[OnnxLayer, Tensors, GraphBuilder, Sequence[NamedTensor]], None]] = {
            "If": self._if,
            "Loop": self._loop,
            "Scan": self._scan,
        }
        if builder.refusals:  # what it reads may not be there
            builder.lose(t for t in layer.outputs if t is not None)
            return
        add[layer.node.code](layer, tensors, builder, results)

    def _scope(self, file: OnnxFileGraph, tensors: Tensors) -> Tensors:
        # The tensors of a subgraph and those around it; each subgraph's are others, whatever their names.
        self._scopes += 1
        own = {name: replace(t, key=(self._scopes, name)) for name, t in file.tensors.items()}
        return {**tensors, **own}

    def _if(
        self, layer: OnnxLayer, tensors: Tensors, builder: GraphBuilder, results: Sequence[NamedTensor]
    ) -> None:
        branches = [_graph(layer, name) for name in ("then_branch", "else_branch")]
        if layer.x.data is None:
            self._branch(layer, branches, tensors, builder, results)
            return
        chosen = branches[0 if bool(layer.x.data.reshape(-1)[0]) else 1]
        scope = self._scope(chosen, tensors)
        self.nodes(chosen, scope, builder)
        if builder.refusals:
            builder.lose(t for t in layer.outputs if t is not None)
            return
        for name, output in zip(chosen.outputs, layer.outputs, strict=True):
            if output is not None:
                stand_for(layer, output, scope[name], builder, results)

    def _branch(
        self,
        layer: OnnxLayer,
        branches: Sequence[OnnxFileGraph],
        tensors: Tensors,
        builder: GraphBuilder,
        results: Sequence[NamedTensor],
    ) -> None:
        # The condition is computed at run time.
        names = dict.fromkeys(name for graph in branches for name in graph.captured)
        known = {name: builder.known(tensors[name]) for name in names}
        given = [tensor for tensor in known.values() if tensor.data is None]
        wanted = [n for n, output in enumerate(layer.outputs) if output is not None]
        graphs = []
        for word, file in zip(("then", "otherwise"), branches, strict=True):
            inner, scope = builder.inner(), self._scope(file, {**tensors, **known})
            inputs = [inner.input(tensor, "given", tensor.shape) for tensor in given]
            self.nodes(file, scope, inner)
            ends = [inner.output(scope[file.outputs[n]], f"out{n}") for n in wanted]
            if builder.refusals:
                builder.lose(t for t in layer.outputs if t is not None)
                return
            graphs.append(inner.graph(word, inputs, ends))
        types = [[(g.values[name].shape, g.values[name].dtype) for name in g.outputs] for g in graphs]
        if types[0] != types[1]:
            raise RefusedOperator(
                "branches whose outputs differ in shape; supported: outputs of the same shape"
            )
        add_flow(layer, If(*graphs), (layer.x, *given), [layer.outputs[n] for n in wanted], builder, results)

    def _loop(
        self, layer: OnnxLayer, tensors: Tensors, builder: GraphBuilder, results: Sequence[NamedTensor]
    ) -> None:
        body = _graph(layer, "body")
        states = tuple(layer.tensor(i) for i in range(2, len(layer.inputs)))
        if len(body.inputs) != 2 + len(states) or len(body.outputs) < 1 + len(states):
            raise ValueError(f"a body of {len(body.inputs)} inputs for {len(states)} states")
        limit, condition = (layer.tensor(i) if layer.has(i) else None for i in range(2))
        lines = (ScanAxis(0, False),) * (len(body.outputs) - 1 - len(states))
        rounds = Rounds(body, limit, condition, states, (), lines, 2, 1)
        self._repeat(layer, rounds, tensors, builder, results)

    def _scan(
        self, layer: OnnxLayer, tensors: Tensors, builder: GraphBuilder, results: Sequence[NamedTensor]
    ) -> None:
        if layer.opset < 9:
            raise RefusedOperator(f"opset {layer.opset}; supported: from 9 on")
        body, operands = _graph(layer, "body"), layer.operands
        count = layer.whole("num_scan_inputs")
        states, given = operands[: len(operands) - count], operands[len(operands) - count :]
        if not 0 < count <= len(operands) or len(body.inputs) != len(operands):
            raise ValueError(
                f"a body of {len(body.inputs)} inputs for {len(operands)}, of which {count} are scanned"
            )
        sources = []
        for n, tensor in enumerate(given):
            axis = layer.axis(_nth(layer, "scan_input_axes", n), len(tensor.shape))
            sources.append((tensor, ScanAxis(axis, _nth(layer, "scan_input_directions", n) == 1)))
        lines = tuple(
            ScanAxis(_nth(layer, "scan_output_axes", n), _nth(layer, "scan_output_directions", n) == 1)
            for n in range(len(body.outputs) - len(states))
        )
        rounds = Rounds(body, None, None, states, tuple(sources), lines, 0, 0)
        self._repeat(layer, rounds, tensors, builder, results)

    def _repeat(
        self,
        layer: OnnxLayer,
        rounds: Rounds,
        tensors: Tensors,
        builder: GraphBuilder,
        results: Sequence[NamedTensor],
    ) -> None:
        known = {name: builder.known(tensors[name]) for name in rounds.body.captured}
        scope = self._scope(rounds.body, {**tensors, **known})
        one = LoopBody(layer, rounds, scope, builder, self._scopes)
        one.begin(tuple(tensor for tensor in known.values() if tensor.data is None))
        self.nodes(rounds.body, scope, one.inner)
        if builder.refusals:
            builder.lose(t for t in layer.outputs if t is not None)
            return
        one.end()
        loop, operands, outputs = one.loop()
        add_flow(layer, loop, operands, outputs, builder, results)


def _graph(layer: OnnxLayer, name: str) -> OnnxFileGraph:
    graph = layer.attribute(name)
    if not isinstance(graph, OnnxFileGraph):
        raise ValueError(f"the node has no {name}")
    return graph


def _nth(layer: OnnxLayer, name: str, number: int) -> int:
    # A number of a list that may be absent: zeros.
    listed = layer.attribute(name)
    return int(listed[number]) if listed else 0


def stand_for(
    layer: OnnxLayer,
    output: NamedTensor,
    made: NamedTensor,
    builder: GraphBuilder,
    results: Sequence[NamedTensor],
) -> None:
    found = builder.known(made)
    stems = (layer.node.code.lower(),)
    builder.node(layer.node.place, layer.node.code, stems, (found,), (output,), lambda: same(found), results)


def add_flow(
    layer: OnnxLayer,
    op: ControlFlow,
    operands: Sequence[NamedTensor],
    outputs: Sequence[NamedTensor | None],
    builder: GraphBuilder,
    results: Sequence[NamedTensor],
) -> None:
    """Add an operator with subgraphs, unless it can be computed from constants. Its operands must be in
    memory.
    """
    values = tuple(builder.value(tensor, "given") for tensor in operands)
    if not all(value.is_constant for value in values):
        values = tuple(map(builder.stored, values))
    made = [tensor for tensor in outputs if tensor is not None]
    converted = Converted(op, values)
    builder.node(layer.node.place, layer.node.code, (op.name,), (), made, lambda: converted, results)
