"""The TFLite front end: a `.tflite` file as a graph."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

from crtgen.base import budget, files
from crtgen.base.errors import UsageError
from crtgen.network.frontends.builder import GraphBuilder, RefusedOperator, Result
from crtgen.network.frontends.naming import identifier
from crtgen.network.frontends.refusals import Refusals
from crtgen.network.frontends.tflite_complex import paired
from crtgen.network.frontends.tflite_compressed import decoded
from crtgen.network.frontends.tflite_convert import CONVERTERS, TfliteLayer, option_fields
from crtgen.network.frontends.tflite_file import FileOperator, TfliteFileGraph, read
from crtgen.network.frontends.tflite_flow import FLOW, TfliteFlow, flow_fields, needed
from crtgen.network.frontends.tflite_lists import with_updates
from crtgen.network.frontends.tflite_signed import signed
from crtgen.network.frontends.tflite_windows import with_reductions
from crtgen.network.ir import Graph

__all__ = ["load_tflite"]

_NO_SHAPES: Mapping[str, tuple[int, ...]] = MappingProxyType({})
_LISTED = "docs/operators.md lists those that are"
# Steps that help with operators which people's files have.
_INSTEAD: Mapping[str, str] = {
    "ATAN2": "make y and x outputs of the network, and call atan2f in the application",
    "CUSTOM FlexMaxPool3D": "replace MaxPooling3D by two MaxPooling2D, the second over depth, which is equal",
}


def load_tflite(
    source: str | Path | bytes,
    name: str | None = None,
    shapes: Mapping[str, tuple[int, ...]] = _NO_SHAPES,
) -> Graph:
    """Read the graph of a `.tflite` file, given as a path or as its bytes.

    ``name`` is the graph's name, by default the file's. ``shapes`` sets input shapes by name. Raises
    ``UsageError`` if the file cannot be read, ``CorruptModelError`` if it is damaged, ``UnsupportedError``
    naming everything that crtgen lacks.
    """
    if isinstance(source, bytes):
        stem, where = "model", name or "model"
    else:
        stem, where = Path(source).stem, str(source)
    with budget.spending(where):
        data = source if isinstance(source, bytes) else files.read(Path(source), "the model")
        found = read(data, where, {**option_fields(), **flow_fields()})
        named = (with_reductions(graph, found) for graph in found)
        graphs = tuple(with_updates(paired(signed(decoded(graph, where)))) for graph in named)
        return _TfliteImporter(graphs, where).model(identifier(name or stem, "model"), shapes)


class _TfliteImporter(TfliteFlow):
    def model(self, name: str, shapes: Mapping[str, tuple[int, ...]]) -> Graph:
        # The first subgraph, which is the model.
        file = self.graphs[0]
        builder = GraphBuilder(self.where, Refusals(self.where), shapes)
        inputs = [builder.input(file.tensors[i], f"input{n}") for n, i in enumerate(file.inputs)]
        known = {*inputs, *(file.tensors[i].name for i in file.inputs)}
        if unknown := next((name for name in shapes if name not in known), None):
            hint = f"its inputs: {', '.join(inputs)}"
            raise UsageError(f"there is no input {unknown}", where=self.where, hint=hint)
        self.operators(0, builder)
        outputs = [builder.output(file.tensors[i], f"output{n}") for n, i in enumerate(file.outputs)]
        return builder.graph(name, inputs, outputs)

    def operators(self, number: int, builder: GraphBuilder) -> None:
        # Add the operators of a subgraph that anything needs.
        file = self.graphs[number]
        results = [file.tensors[i] for i in file.outputs]
        for operator in needed(file):
            self.count()
            layer = _layer(file, operator, builder)
            place, subject = _place(number, layer), operator.code
            if operator.code in FLOW:
                add = partial(self.flow, number, layer, builder)
                builder.guarded(place, subject, layer.inputs, layer.outputs, add)
                continue
            row = CONVERTERS.get(operator.code)
            stems = row.stems if row is not None else ("unknown",)
            convert = partial(_convert, layer)
            builder.node(place, subject, stems, layer.inputs, layer.outputs, convert, results)


def _layer(file: TfliteFileGraph, operator: FileOperator, builder: GraphBuilder) -> TfliteLayer:
    # The operator with its tensors, as far as they are known by now.
    inputs = (None if i is None else builder.known(file.tensors[i]) for i in operator.inputs)
    return TfliteLayer(operator, tuple(inputs), tuple(file.tensors[i] for i in operator.outputs))


def _convert(layer: TfliteLayer) -> Result:
    # Refuses operators, types and kinds of tensors that crtgen lacks.
    row = CONVERTERS.get(layer.operator.code)
    if row is None:
        raise RefusedOperator("the operator is not supported", _INSTEAD.get(layer.operator.code, _LISTED))
    if layer.operator.table not in ("NONE", row.options) and row.options:
        raise ValueError(f"the operator has {layer.operator.table} instead of {row.options}")
    if not layer.outputs:
        raise ValueError("the operator has no output")
    types = (layer.x.dtype, layer.y.dtype)
    if types not in row.types:
        pairs = ", ".join(sorted(f"{a.name} to {b.name}" for a, b in row.types))
        raise RefusedOperator(f"{layer.x.type_name} to {layer.y.type_name}; supported: {pairs}")
    return row.convert(layer)


def _place(number: int, layer: TfliteLayer) -> str:
    # Position of an operator for error messages.
    within = f"subgraph {number} " if number else ""
    output = f", output {layer.y.name!r}, tensor {layer.y.key}" if layer.outputs else ""
    return f"{within}operator {layer.operator.index}{output}"
