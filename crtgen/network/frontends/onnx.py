"""The ONNX front end: an `.onnx` file as a graph."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from crtgen.base import budget, files
from crtgen.base.errors import CorruptModelError, UsageError
from crtgen.network.frontends.builder import GraphBuilder, NamedTensor, RefusedOperator, Result
from crtgen.network.frontends.naming import identifier
from crtgen.network.frontends.onnx_convert import CONVERTERS, OnnxLayer
from crtgen.network.frontends.onnx_edges import DEQUANTIZE, QUANTIZE
from crtgen.network.frontends.onnx_file import FileNode, OnnxFileGraph, read
from crtgen.network.frontends.onnx_flow import FLOW, OnnxFlow, Tensors
from crtgen.network.frontends.onnx_fold import folded, is_folded
from crtgen.network.frontends.onnx_fused import DOMAIN
from crtgen.network.frontends.onnx_norms import with_norms_in_weights
from crtgen.network.frontends.onnx_quant import with_integer_layers
from crtgen.network.frontends.onnx_signed import PLACES
from crtgen.network.frontends.onnx_types import held, note_of
from crtgen.network.frontends.onnx_words import without_words
from crtgen.network.frontends.refusals import Refusals
from crtgen.network.ir import Array, DType, Graph, shape_text
from crtgen.network.ops.traits import Weighted

__all__ = ["load_onnx"]

_NO_SHAPES: Mapping[str, tuple[int, ...]] = MappingProxyType({})
# Operators that accept a constant without elements.
_EMPTY = {"Cast", "CastLike", "Concat", "Shape", "Size"}

# Steps that help with operators which people's files have.
_INSTEAD: Mapping[str, str] = {
    "GroupQueryAttention": "export by torch.onnx without a cache: it writes MatMul and Softmax",
}
# For an operator of ONNX Runtime's own.
_BEFORE = "convert the file that ONNX Runtime's optimiser got, or save one with ORT_ENABLE_BASIC"

_NOTHING: Mapping[str, Array] = MappingProxyType({})


def load_onnx(
    source: str | Path | bytes,
    name: str | None = None,
    shapes: Mapping[str, tuple[int, ...]] = _NO_SHAPES,
    fixed: Mapping[str, Array] = _NOTHING,
) -> Graph:
    """Read the graph of an `.onnx` file, given as a path or as its bytes.

    ``name`` is the graph's name, by default the file's. ``shapes`` sets input shapes by name. ``fixed`` makes
    inputs constant. Raises ``UsageError`` if the file cannot be read, ``CorruptModelError`` if it is damaged,
    ``UnsupportedError`` naming everything that crtgen lacks.
    """
    if isinstance(source, bytes):
        stem, where = "model", name or "model"
    else:
        stem, where = Path(source).stem, str(source)
    with budget.spending(where):
        return _loaded(source, where, identifier(name or stem, "model"), shapes, fixed)


def _loaded(
    source: str | Path | bytes,
    where: str,
    name: str,
    shapes: Mapping[str, tuple[int, ...]],
    fixed: Mapping[str, Array],
) -> Graph:
    if isinstance(source, bytes):
        file = read(source, where, None, CONVERTERS, fixed)
    else:
        path = Path(source)
        file = read(files.read(path, "the model"), where, path.parent, CONVERTERS, fixed)
    file, words = without_words(file)
    graph = with_norms_in_weights(file)
    del file
    try:
        graph = with_integer_layers(graph)
    except ValueError as error:
        raise CorruptModelError(str(error), where=where) from error
    made = _OnnxImporter(where).model(graph, name, shapes)
    return replace(made, notes=(*made.notes, words)) if words else made


class _OnnxImporter(OnnxFlow):
    # Builds graphs of the main graph and its subgraphs, node by node.

    def model(self, file: OnnxFileGraph, name: str, shapes: Mapping[str, tuple[int, ...]]) -> Graph:
        builder = GraphBuilder(self.where, Refusals(self.where), shapes, has_plain=True)
        inputs = [builder.input(file.tensors[key], f"input{n}") for n, key in enumerate(file.inputs)]
        if unknown := next((n for n in shapes if n not in {*inputs, *file.inputs}), None):
            hint = f"its inputs: {', '.join(inputs)}"
            raise UsageError(f"there is no input {unknown}", where=self.where, hint=hint)
        tensors = dict(file.tensors)
        self.nodes(file, tensors, builder)
        outputs = [builder.output(tensors[key], f"output{n}") for n, key in enumerate(file.outputs)]
        made = builder.graph(name, inputs, outputs)
        given = [file.tensors[key] for key in (*file.inputs, *file.outputs)]
        note = note_of((*self.types, *(tensor.type_name for tensor in given)))
        return replace(made, notes=tuple(filter(None, (note, _float_layers(file, made)))))

    def nodes(self, file: OnnxFileGraph, tensors: Tensors, builder: GraphBuilder) -> None:
        # Add the nodes of a graph that an output follows from.
        results = [tensors[key] for key in file.outputs]
        for node in _needed(file):
            self.count()
            self._add(node, tensors, builder, results)

    def _add(
        self, node: FileNode, tensors: Tensors, builder: GraphBuilder, results: list[NamedTensor]
    ) -> None:
        # Add a node to the graph, or what it gives to the constants.
        read = _layer(tensors, node, builder)
        outputs = [t for t in read.outputs if t is not None]
        inputs = [builder.known(tensors[key]) for key in node.reads if key]
        if is_folded(read, inputs):
            builder.guarded(
                node.place, node.code, inputs, outputs, lambda: tensors.update(folded(read, inputs))
            )
            return
        layer = replace(read, inputs=tuple(map(_held, read.inputs)))
        self.types.update(tensor.type_name for tensor in outputs)
        if node.code in FLOW:
            add = partial(self.flow, layer, tensors, builder, results)
            builder.guarded(node.place, node.code, inputs, outputs, add)
        else:
            row = CONVERTERS.get(node.code)
            stems = row.stems if row is not None else (identifier(node.code, "unknown"),)
            convert = partial(_convert, layer)
            builder.node(node.place, node.code, stems, layer.inputs, outputs, convert, results, node.name)


def _float_layers(file: OnnxFileGraph, graph: Graph) -> str:
    # Name layers with weights that are computed in float32 though the file is quantised; empty if none.
    if not any(node.code in (QUANTIZE, DEQUANTIZE, *PLACES) for node in file.nodes):
        return ""
    layers = [node for node in graph.nodes if isinstance(node.op, Weighted)]
    real = [node.name for node in layers if graph.signature(node).x.dtype is DType.FLOAT32]
    shown = ", ".join(real[:3]) + (", ..." if len(real) > 3 else "")
    what = f"{len(real)} of {len(layers)} layers with weights are computed in float32"
    return f"{what} though the file is quantised: {shown}" if real else ""


def _needed(file: OnnxFileGraph) -> list[FileNode]:
    # The nodes that an output follows from, without those of their outputs that nothing reads.
    wanted, found = set(file.outputs), []
    for node in reversed(file.nodes):
        if wanted.intersection(node.outputs):
            outputs = tuple(name if name in wanted else "" for name in node.outputs)
            found.append(replace(node, outputs=outputs))
            wanted.update(filter(None, node.reads))
    return found[::-1]


def _layer(tensors: Tensors, node: FileNode, builder: GraphBuilder) -> OnnxLayer:
    # The node with its tensors, as far as they are known by now.
    inputs = (builder.known(tensors[key]) if key else None for key in node.inputs)
    row = CONVERTERS.get(node.code)
    outputs = [tensors[key] if key else None for key in node.outputs]
    if row is not None and row.whole:
        outputs += [None] * (row.whole - len(outputs))
        outputs = [_unread(node, n) if t is None else t for n, t in enumerate(outputs)]
    if row is not None and row.is_bounded:
        outputs = [t and replace(t, shape=(-1,)) for t in outputs]
    return OnnxLayer(node, tuple(inputs), tuple(outputs))


def _held(tensor: NamedTensor | None) -> NamedTensor | None:
    # With its numbers in the type that holds them.
    if tensor is None or tensor.data is None or tensor.dtype is None:
        return tensor
    return replace(tensor, data=held(tensor.data, tensor.dtype))


def _unread(node: FileNode, position: int) -> NamedTensor:
    return NamedTensor((node.outputs, position), "unread", (-1,), "", None, None, None)


def _convert(layer: OnnxLayer) -> Result:
    # Refuses operators and types that crtgen lacks.
    row = CONVERTERS.get(layer.node.code)
    if row is None:
        theirs = layer.node.code.startswith(f"{DOMAIN}.")
        hint = _BEFORE if theirs else "docs/onnx.md lists those that are"
        hint = _INSTEAD.get(layer.node.code.removeprefix(f"{DOMAIN}."), hint)
        raise RefusedOperator("the operator is not supported", hint)
    x = layer.x
    if x.dtype not in row.types:
        names = ", ".join(sorted(d.name for d in row.types))
        raise RefusedOperator(f"{x.type_name}; supported: {names}")
    for tensor in layer.inputs:
        if tensor is None or 0 not in tensor.shape:
            continue
        if tensor.data is None or (tensor is x and layer.node.code not in _EMPTY):
            raise RefusedOperator(f"{tensor.name!r} is empty, its shape is {shape_text(tensor.shape)}")
    try:
        made = row.convert(layer)
    except (TypeError, LookupError, ArithmeticError) as error:  # of attributes and shapes that do not fit
        raise ValueError(f"the attributes or shapes of the node do not fit: {error}") from error
    if not isinstance(made, tuple):
        return made
    kept = tuple(m for m, t in zip(made, layer.outputs, strict=False) if t is not None)
    return kept if len(kept) > 1 else kept[0]
