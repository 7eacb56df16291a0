"""What every front end does alike: tensors become values, operators nodes, and what is wrong has its place.

A front end reads its format into ``Tensor`` objects and a converter per operator; names, constants, several
outputs, refusals and errors are the builder's business.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from crtgen.errors import CorruptModelError, UnsupportedError
from crtgen.frontends.naming import Names, identifier, layer_name
from crtgen.ir import Array, DType, Graph, Node, Op, Quant, Signature, Value, shape_text
from crtgen.ops.scheme import SCHEMES

__all__ = ["Converted", "GraphBuilder", "Refused", "Tensor"]


_QUANTISED = {scheme.activations for scheme in SCHEMES if not scheme.is_real}


class Refused(Exception):
    """An option or a type that crtgen does not have; the text says which and what there is."""


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor of a file. ``key`` is what the file's operators call it, ``name`` what people do.

    ``dtype`` is None for a type that crtgen does not have, ``type_name`` is the format's. ``data`` is there
    for a constant.
    """

    key: Hashable
    name: str
    shape: tuple[int, ...]
    type_name: str
    dtype: DType | None
    quant: Quant | None
    data: Array | None


@dataclass(frozen=True, slots=True)
class Converted:
    """An operator and what it is applied to: tensors, or constants made by the converter.

    ``roles`` names the operands after the first, for the names of constants.
    """

    op: Op
    operands: tuple[Tensor | Array, ...]
    roles: tuple[str, ...] = ()


@dataclass(slots=True)
class GraphBuilder:
    """Collects values and nodes, one operator after another; keeps what it had to refuse.

    ``where`` is what errors call the file, ``supported`` the names of the operators that there are.
    """

    where: str
    supported: Iterable[str]
    values: dict[Hashable, Value] = field(default_factory=dict)
    made: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    value_names: Names = field(default_factory=Names)
    node_names: Names = field(default_factory=Names)

    def interface(self, tensor: Tensor, default: str) -> str:
        """The name of an input or output of the model."""
        try:
            return self.value(tensor, identifier(tensor.name, default)).name
        except Refused as refusal:
            self.refused.append(f"{default} ({tensor.name!r}, tensor {tensor.key}): {refusal}")
            return default

    def node(
        self,
        place: str,
        stems: tuple[str, ...],
        outputs: Sequence[Tensor],
        convert: Callable[[], Converted],
        named: Iterable[Tensor] = (),
    ) -> None:
        """Add an operator; ``place`` is how errors call it, ``stems`` what its name begins with.

        ``named`` are the outputs of the model, which keep their names.
        """
        try:
            self._add(convert(), stems, outputs, {tensor.key for tensor in named})
        except Refused as refusal:
            self.refused.append(f"{place}: {refusal}")
        except ValueError as error:
            raise CorruptModelError(f"{place}: {error}", where=self.where) from error

    def graph(self, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> Graph:
        """The graph, verified. Raises ``UnsupportedError`` that names everything that was refused."""
        self._raise_refusals()
        try:
            return Graph.build(name, [*self.values.values(), *self.made], self.nodes, inputs, outputs)
        except CorruptModelError as error:
            raise CorruptModelError(str(error), where=self.where) from error

    def value(self, tensor: Tensor, suggestion: str) -> Value:
        """The value of a tensor, named after its first use."""
        if tensor.key not in self.values:
            if tensor.dtype is None:
                known = ", ".join(d.name for d in DType)
                raise Refused(f"a tensor of {tensor.type_name}; supported: {known}")
            name = self.value_names.unique(suggestion)
            if tensor.data is None:
                self.values[tensor.key] = Value(name, tensor.shape, tensor.dtype, tensor.quant)
            else:
                self.values[tensor.key] = Value.constant(name, tensor.data, tensor.quant)
        return self.values[tensor.key]

    def _add(
        self, made: Converted, stems: tuple[str, ...], outputs: Sequence[Tensor], named: set[Hashable]
    ) -> None:
        name = self.node_names.unique(layer_name(outputs[0].name, stems))
        roles = [f"{name}_{role}" for role in ("input", *made.roles)]
        operands = tuple(self._operand(*pair) for pair in zip(made.operands, roles, strict=True))
        shapes = made.op.infer(operands)
        if len(shapes) != len(outputs):
            count = "one" if len(shapes) == 1 else str(len(shapes))
            raise ValueError(f"it has {len(outputs)} outputs instead of {count}")
        results = tuple(self.value(t, _output_name(t, name, t.key in named)) for t in outputs)
        _check(made.op, Signature(operands, results), [shape for shape, _ in shapes])
        read, written = (tuple(v.name for v in values) for values in (operands, results))
        self.nodes.append(Node(name, made.op, read, written))

    def _operand(self, operand: Tensor | Array, name: str) -> Value:
        """A tensor's value, or a new constant."""
        if isinstance(operand, Tensor):
            return self.value(operand, name)
        self.made.append(Value.constant(self.value_names.unique(name), operand))
        return self.made[-1]

    def _raise_refusals(self) -> None:
        if not self.refused:
            return
        first, *others = self.refused
        count = f"{len(self.refused)} parts are not supported:\n  " if others else ""
        raise UnsupportedError(
            count + "\n  ".join([first, *others]),
            where=self.where,
            hint="supported operators: " + ", ".join(self.supported),
        )


def _output_name(tensor: Tensor, node: str, is_output: bool) -> str:
    return identifier(tensor.name, "output") if is_output and ";" not in tensor.name else node


def _check(op: Op, sig: Signature, shapes: Sequence[tuple[int, ...]]) -> None:
    """``ValueError`` if shapes do not fit, ``Refused`` if the quantisation is none that the operator has."""
    for value, shape in zip(sig.outputs, shapes, strict=True):
        if shape != value.shape:
            text = f"its output is {shape_text(value.shape)} but the operator gives {shape_text(shape)}"
            raise ValueError(text)
    if not any(v.dtype in _QUANTISED for v in (*sig.inputs, *sig.outputs)):
        return
    if op.moves_only and any(v.quant != sig.y.quant for v in sig.inputs):
        raise Refused("input and output are quantised differently; supported: the same scale and zero point")
    parameters = getattr(op, "parameters", None)
    if parameters is not None:
        try:
            parameters(sig)
        except ValueError as error:
            raise Refused(str(error)) from error
