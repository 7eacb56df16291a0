"""The TFLite front end: a `.tflite` file as a graph."""

from functools import partial
from pathlib import Path

from crtgen import files
from crtgen.frontends.builder import Converted, GraphBuilder, Refused
from crtgen.frontends.naming import identifier
from crtgen.frontends.tflite_convert import CONVERTERS, Layer, option_fields
from crtgen.frontends.tflite_file import FileModel, FileOperator, read
from crtgen.ir import Graph

__all__ = ["load_tflite"]


def load_tflite(source: str | Path | bytes, name: str | None = None) -> Graph:
    """The graph of a `.tflite` file, given as a path or as its bytes.

    ``name`` is the graph's name; without one, the file's. Raises ``UsageError`` if the file cannot be read,
    ``CorruptModelError`` if it is damaged, ``UnsupportedError`` naming every layer that crtgen lacks.
    """
    if isinstance(source, bytes):
        data, stem, where = source, "model", name or "model"
    else:
        path = Path(source)
        data, stem, where = files.read(path, "the model"), path.stem, str(path)
    return _graph(read(data, where, option_fields()), identifier(name or stem, "model"), where)


def _graph(model: FileModel, name: str, where: str) -> Graph:
    builder = GraphBuilder(where, CONVERTERS)
    given = [model.tensors[i] for i in model.inputs]
    results = [model.tensors[i] for i in model.outputs]
    inputs = [builder.interface(tensor, f"input{n}") for n, tensor in enumerate(given)]
    for operator in model.operators:
        layer = _layer(model, operator)
        row = CONVERTERS.get(operator.code)
        stems = row.stems if row is not None else ("unknown",)
        builder.node(_place(layer), stems, layer.outputs, partial(_convert, layer), results)
    outputs = [builder.interface(tensor, f"output{n}") for n, tensor in enumerate(results)]
    return builder.graph(name, inputs, outputs)


def _layer(model: FileModel, operator: FileOperator) -> Layer:
    inputs = tuple(None if i is None else model.tensors[i] for i in operator.inputs)
    return Layer(operator, inputs, tuple(model.tensors[i] for i in operator.outputs))


def _convert(layer: Layer) -> Converted:
    """What the operator means; refuses an operator, its types, and tensors of a kind that crtgen lacks."""
    row = CONVERTERS.get(layer.operator.code)
    if row is None:
        raise Refused("the operator is not supported")
    if layer.operator.table not in ("NONE", row.options) and row.options:
        raise ValueError(f"it has {layer.operator.table} instead of {row.options}")
    types = (layer.x.dtype, layer.y.dtype)
    if types not in row.types:
        pairs = ", ".join(sorted(f"{a.name} to {b.name}" for a, b in row.types))
        raise Refused(f"{layer.x.type_name} to {layer.y.type_name}; supported: {pairs}")
    for tensor in (*layer.inputs, *layer.outputs):
        if tensor is not None and (tensor.is_sparse or tensor.is_variable):
            kind = "sparse" if tensor.is_sparse else "variable"
            raise Refused(f"the {kind} tensor {tensor.name!r}; supported: dense, not variable")
    return row.convert(layer)


def _place(layer: Layer) -> str:
    """How an error names a layer."""
    y = layer.y
    return f"operator {layer.operator.index} {layer.operator.code} (output {y.name!r}, tensor {y.key})"
