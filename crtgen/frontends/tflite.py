"""The TFLite front end: a `.tflite` file as a graph."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from crtgen import files
from crtgen.errors import CorruptModelError, UnsupportedError
from crtgen.frontends.naming import Names, identifier, layer_name
from crtgen.frontends.tflite_convert import CONVERTERS, Converted, Converter, Layer, Refused
from crtgen.frontends.tflite_file import FileModel, FileOperator, FileTensor, read
from crtgen.ir import Array, DType, Graph, Node, Op, Signature, Value, shape_text
from crtgen.ops import Concat, Pad, Reshape, ResizeNearest, StridedSlice, Transpose

__all__ = ["load_tflite"]

_MOVES_ONLY = (Concat, Pad, Reshape, ResizeNearest, StridedSlice, Transpose)


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
    return _Builder(read(data, where), where).graph(identifier(name or stem, "model"))


@dataclass(slots=True)
class _Builder:
    """Turns the operators of a file into nodes, one by one; keeps what it had to refuse."""

    model: FileModel
    where: str
    values: dict[int, Value] = field(default_factory=dict)
    extra: list[Value] = field(default_factory=list)
    value_names: Names = field(default_factory=Names)
    node_names: Names = field(default_factory=Names)
    refused: list[str] = field(default_factory=list)

    def graph(self, name: str) -> Graph:
        inputs = [self._interface(i, f"input{n}") for n, i in enumerate(self.model.inputs)]
        nodes = [node for operator in self.model.operators for node in self._nodes(operator)]
        outputs = [self._interface(i, f"output{n}") for n, i in enumerate(self.model.outputs)]
        self._raise_refusals()
        try:
            return Graph.build(name, [*self.values.values(), *self.extra], nodes, inputs, outputs)
        except CorruptModelError as error:
            raise CorruptModelError(str(error), where=self.where) from error

    def _interface(self, index: int, default: str) -> str:
        """The name of an input or output of the model."""
        tensor = self.model.tensors[index]
        try:
            return self._value(index, identifier(tensor.name, default)).name
        except Refused as refusal:
            self.refused.append(f"{default} ({tensor.name!r}, tensor {index}): {refusal}")
            return default

    def _raise_refusals(self) -> None:
        if not self.refused:
            return
        first, *others = self.refused
        count = f"{len(self.refused)} parts are not supported:\n  " if others else ""
        raise UnsupportedError(
            count + "\n  ".join([first, *others]),
            where=self.where,
            hint="supported operators: " + ", ".join(CONVERTERS),
        )

    def _nodes(self, operator: FileOperator) -> Iterator[Node]:
        """The operator's node; nothing if it is refused."""
        tensors = self.model.tensors
        inputs = tuple(None if i is None else tensors[i] for i in operator.inputs)
        layer = Layer(operator, inputs, tuple(tensors[i] for i in operator.outputs))
        try:
            yield self._node(layer)
        except Refused as refusal:
            self.refused.append(f"{_place(layer)}: {refusal}")
        except ValueError as error:
            raise CorruptModelError(f"{_place(layer)}: {error}", where=self.where) from error

    def _node(self, layer: Layer) -> Node:
        row = _row(layer)
        converted = row.convert(layer)
        name = self.node_names.unique(layer_name(layer.y.name, row.stems))
        operands = self._operands(converted, name)
        if len(layer.outputs) != 1:
            raise ValueError(f"it has {len(layer.outputs)} outputs instead of one")
        output = self._value(layer.y.index, self._output_name(layer.y, name))
        _check(converted.op, Signature(operands, (output,)))
        return Node(name, converted.op, tuple(v.name for v in operands), (output.name,))

    def _output_name(self, tensor: FileTensor, node: str) -> str:
        is_output = tensor.index in self.model.outputs
        return identifier(tensor.name, "output") if is_output and ";" not in tensor.name else node

    def _operands(self, converted: Converted, node: str) -> tuple[Value, ...]:
        names = [f"{node}_{role}" for role in ("input", *converted.roles)]
        return tuple(map(self._operand, converted.operands, names))

    def _operand(self, operand: int | Array, name: str) -> Value:
        """A tensor's value, or a new constant."""
        if isinstance(operand, int):
            return self._value(operand, name)
        self.extra.append(Value.constant(self.value_names.unique(name), operand))
        return self.extra[-1]

    def _value(self, index: int, suggestion: str) -> Value:
        """The value of a tensor, named after its first use."""
        if index not in self.values:
            tensor = self.model.tensors[index]
            if tensor.dtype is None:
                raise Refused(
                    f"a tensor of {tensor.type_name}; supported: {', '.join(d.name for d in DType)}"
                )
            name = self.value_names.unique(suggestion)
            if tensor.data is None:
                self.values[index] = Value(name, tensor.shape, tensor.dtype, tensor.quant)
            else:
                self.values[index] = Value.constant(name, tensor.data, tensor.quant)
        return self.values[index]


def _row(layer: Layer) -> Converter:
    """The converter; refuses an operator, its types, and tensors of a kind that crtgen lacks."""
    code = layer.operator.code
    row = CONVERTERS.get(code)
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
    return row


def _check(op: Op, sig: Signature) -> None:
    """``ValueError`` if shapes do not fit, ``Refused`` if the quantisation is none that the operator has."""
    ((shape, _),) = op.infer(sig.inputs)
    if shape != sig.y.shape:
        raise ValueError(
            f"its output is {shape_text(sig.y.shape)} but the operator gives {shape_text(shape)}"
        )
    if all(v.dtype is not DType.INT8 for v in (*sig.inputs, sig.y)):
        return
    if isinstance(op, _MOVES_ONLY) and any(v.quant != sig.y.quant for v in sig.inputs):
        raise Refused("input and output are quantised differently; supported: the same scale and zero point")
    parameters = getattr(op, "parameters", None)
    if parameters is not None:
        try:
            parameters(sig)
        except ValueError as error:
            raise Refused(str(error)) from error


def _place(layer: Layer) -> str:
    """How an error names a layer."""
    y = layer.y
    return f"operator {layer.operator.index} {layer.operator.code} (output {y.name!r}, tensor {y.index})"
