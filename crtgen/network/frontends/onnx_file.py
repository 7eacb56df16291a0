"""An `.onnx` file as plain, checked data, without protobuf objects.

The onnx package checks a model against the format, and infers types and shapes. Errors for which its messages
would not help a user are checked here first.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, checker, numpy_helper, shape_inference, version_converter

from crtgen.base import budget
from crtgen.base.errors import CorruptModelError, UnsupportedError, UsageError
from crtgen.network.frontends.builder import NamedTensor
from crtgen.network.frontends.onnx_checks import (
    HINT,
    MAX_ELEMENTS,
    MAX_RANK,
    check_attributes,
    check_operators,
    check_order,
    check_typed,
    free_lengths,
    label,
)
from crtgen.network.frontends.onnx_external import load_external
from crtgen.network.frontends.onnx_functions import DOMAINS, check_calls, inlined, is_function
from crtgen.network.frontends.onnx_large import check_model, without_large
from crtgen.network.frontends.onnx_older import spell_older
from crtgen.network.frontends.onnx_optimised import spell_optimised
from crtgen.network.frontends.onnx_order import sort_nodes
from crtgen.network.frontends.onnx_sparse import make_dense
from crtgen.network.frontends.onnx_types import kind_of, type_name
from crtgen.network.frontends.onnx_wire import ask_for_message
from crtgen.network.ir import Array, shape_text

__all__ = ["FileNode", "OnnxFileGraph", "constant", "read"]

_OLDEST = 7
# Bytes of a number on its way through Python's lists, where the package takes it there.
_LISTED = 40

# Operators of which the package infers a wrong shape where their inputs are constants.
_MISJUDGED = {"STFT"}

# From this version on, ONNX quantises to these types; ONNX Runtime does in older files, too.
_SHORT_OPSET = 21
_SHORT = {TensorProto.INT16, TensorProto.UINT16, TensorProto.INT4, TensorProto.UINT4}
_QUANTISING = {"QuantizeLinear", "DequantizeLinear"}

_UNKNOWN_SHAPE = (-1,)


@dataclass(frozen=True, slots=True, eq=False)
class FileNode:
    """A node. ``code`` is its operator, prefixed by the domain if it is not ONNX's own.

    ``opset`` is the version of the domain's operators. An absent optional input or output is empty. Subgraphs
    are attributes. ``proto`` is the node itself, for the onnx package.
    """

    index: int
    name: str
    code: str
    opset: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    proto: Any

    @property
    def place(self) -> str:
        output = next(name for name in self.outputs if name)
        return f"node {self.name!r}" if self.name else f"node {self.index}, output {output!r}"

    @property
    def graphs(self) -> tuple["OnnxFileGraph", ...]:
        return tuple(a for a in self.attributes.values() if isinstance(a, OnnxFileGraph))

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.inputs, *(name for graph in self.graphs for name in graph.captured))


@dataclass(frozen=True, slots=True, eq=False)
class OnnxFileGraph:
    """The main graph or a subgraph, with its tensors by name. ``inputs`` are the inputs without an
    initialiser.
    """

    name: str
    tensors: Mapping[str, NamedTensor]
    nodes: tuple[FileNode, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def captured(self) -> tuple[str, ...]:
        names = (*(name for node in self.nodes for name in node.reads), *self.outputs)
        return tuple(dict.fromkeys(name for name in names if name and name not in self.tensors))


def read(
    data: bytes, where: str, folder: Path | None, known: Collection[str], fixed: Mapping[str, Array]
) -> OnnxFileGraph:
    """Return the graph of the model in ``data``.

    ``where`` is the file's name in errors, ``folder`` has its external data, ``known`` are the operators that
    are kept: others that are functions of simpler operators are expanded. ``fixed`` are inputs that become
    constants. Raises ``CorruptModelError`` if the file is damaged, ``UnsupportedError`` if it has parts that
    crtgen lacks.
    """
    with budget.current().enforced():
        return _read(data, where, folder, known, fixed)


def _read(
    data: bytes, where: str, folder: Path | None, known: Collection[str], fixed: Mapping[str, Array]
) -> OnnxFileGraph:
    try:
        model = _parsed(data, where)
        del data
        check_calls(model)
        _fix_inputs(model, where, fixed)
        load_external(model.graph, where, folder)
        reader = _OnnxReader(model, where, {})
        make_dense(model.graph, where, reader.constant, reader.check_shape)
        sort_nodes(model.graph, where)
        spell_optimised(model)
        spell_older(model)
        model = _with_short_types(_not_too_old(model))
        model, large = without_large(model, _OnnxReader(model, where, {}).constant)
        model = _checked(model, large, where, known)
        return _OnnxReader(model, where, large).graph(model.graph, is_main=True)
    except (ValueError, TypeError, LookupError, OverflowError, RuntimeError) as error:
        raise CorruptModelError(f"the file is damaged: {_line(error)}", where=where, hint=HINT) from error
    except MemoryError as error:  # of the package, which computes with the shapes that a file has
        reason = "the onnx package takes more memory for it than there is"
        hint = "crtgen --limit-memory BYTES allows more"
        raise UnsupportedError(reason, where=where, hint=hint) from error


def _parsed(data: bytes, where: str) -> Any:
    ask_for_message(data, budget.current())
    try:
        model = onnx.load_model_from_string(data)
    except (DecodeError, ValueError, RuntimeError) as error:
        reason = "the file is not an ONNX model, or only a part of one"
        raise CorruptModelError(f"{reason}: {_line(error)}", where=where, hint=HINT) from error
    if not model.HasField("graph") or not model.opset_import:
        lacking = "graph" if model.opset_import else "opset version"
        raise CorruptModelError(f"the file is not an ONNX model: it has no {lacking}", where=where, hint=HINT)
    return model


def _line(error: Exception) -> str:
    # The message of the onnx package in one line.
    return " ".join(str(error).split())[:300] or type(error).__name__


def _fix_inputs(model: Any, where: str, fixed: Mapping[str, Array]) -> None:
    names = [i.name for i in model.graph.input]
    defaults = model.graph.initializer
    for name, array in fixed.items():
        if name not in names:
            raise UsageError(f"there is no input {name}", where=where, hint=f"its inputs: {', '.join(names)}")
        for default in [t for t in defaults if t.name == name]:
            defaults.remove(default)
        defaults.append(numpy_helper.from_array(np.asarray(array), name))
        del model.graph.input[names.index(name)]
        names.remove(name)


def _checked(model: Any, large: Mapping[str, Array], where: str, known: Collection[str]) -> Any:
    # The model with functions replaced and with types inferred.
    opset = _opset(model, where)
    check_order(model.graph, where)
    check_operators(model, where, opset)
    check_attributes(model.graph, where)
    free_lengths(model.graph, where)
    check_typed(model, where)
    try:
        check_model(model, large)
        _check_types(model)
        model = inlined(model, known)
    except (checker.ValidationError, shape_inference.InferenceError) as error:
        raise CorruptModelError(_line(error), where=where, hint=HINT) from error
    check_order(model.graph, where)  # also of what functions are made of
    return model


def _not_too_old(model: Any) -> Any:
    # The model in the oldest version that is known, if the package can convert it.
    versions = [i.version for i in model.opset_import if i.domain in DOMAINS]
    if not versions or versions[0] >= _OLDEST:
        return model
    try:
        checker.check_model(model)
        _give_slopes_axes(model)
        return version_converter.convert_version(model, _OLDEST)
    except Exception:  # the package raises what its converters happen to raise
        return model


def _with_short_types(model: Any) -> Any:
    # The model in the version that quantises to 4 and 16 bits if it does so, if the package can convert it.
    kinds = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    versions = [i.version for i in model.opset_import if i.domain in DOMAINS]
    given = [n.input[2] for n in model.graph.node if n.op_type in _QUANTISING and len(n.input) > 2]
    if not versions or versions[0] >= _SHORT_OPSET or not any(kinds.get(name) in _SHORT for name in given):
        return model
    try:
        return version_converter.convert_version(model, _SHORT_OPSET)
    except Exception:  # the package raises what its converters happen to raise
        return model


def _give_slopes_axes(model: Any) -> None:
    # Slopes of channels get the shape from which opset 7 repeats them, which the package forgets.
    known = shape_inference.infer_shapes(model).graph
    ranks = {v.name: len(v.type.tensor_type.shape.dim) for v in (*known.value_info, *known.input)}
    slopes = {n.input[1]: n.input[0] for n in model.graph.node if n.op_type == "PRelu" and len(n.input) > 1}
    for tensor in (t for t in model.graph.initializer if t.name in slopes and len(t.dims) == 1):
        tensor.dims.extend([1] * (ranks.get(slopes[tensor.name], 2) - 2))
    for value in (v for v in model.graph.input if v.name in slopes):
        for _ in range(ranks.get(slopes[value.name], 2) - 2):
            value.type.tensor_type.shape.dim.add().dim_value = 1


def _check_types(model: Any) -> None:
    # ``InferenceError`` if types or shapes do not fit, unless it is an operator's own definition that the
    # package finds at fault, as of MeanVarianceNormalization in version 1.23. Shapes that a file states
    # wrongly, as skl2onnx does for some models, are forgotten: ONNX Runtime takes no notice of them.
    try:
        shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except shape_inference.InferenceError as error:
        if "existing shape differ" in str(error) and _forget_shapes(model):
            return _check_types(model)
        named = re.findall(r"op_type:(\w+)", str(error))
        if not any(is_function(name) or name in _MISJUDGED for name in named):
            raise


def _forget_shapes(model: Any) -> bool:
    # Take from a model the shapes that follow from its inputs; return whether there was one.
    stated = [
        v for v in (*model.graph.value_info, *model.graph.output) if v.type.tensor_type.HasField("shape")
    ]
    before = [deepcopy(v.type.tensor_type.shape) for v in stated]
    for value in stated:
        value.type.tensor_type.ClearField("shape")
    made = shape_inference.infer_shapes(model).graph
    known = {v.name for v in (*made.value_info, *made.output) if v.type.tensor_type.HasField("shape")}
    for value, shape in zip(stated, before, strict=True):
        if value.name not in known:
            value.type.tensor_type.shape.CopyFrom(shape)
    return any(value.name in known for value in stated)


def _opset(model: Any, where: str) -> int:
    versions = [i.version for i in model.opset_import if i.domain in DOMAINS]
    newest = onnx.defs.onnx_opset_version()
    if versions and not _OLDEST <= versions[0] <= newest:
        hint = "pip install --upgrade onnx" if versions[0] > newest else "onnx.version_converter converts it"
        text = f"opset {versions[0]}; supported: {_OLDEST} to {newest}"
        raise UnsupportedError(text, where=where, hint=hint)
    return int(versions[0]) if versions else newest


@dataclass(frozen=True, slots=True)
class _OnnxReader:
    model: Any
    where: str
    large: Mapping[str, Array]

    def graph(self, graph: Any, is_main: bool = False) -> OnnxFileGraph:
        # The graph; of the main one, a batch of an input that is not fixed is 1.
        large = self.large if is_main else {}
        data = {t.name: large[t.name] if t.name in large else self.constant(t) for t in graph.initializer}
        if graph.sparse_initializer:
            name = graph.sparse_initializer[0].values.name
            raise UnsupportedError(
                f"the tensor {name!r} is sparse; only dense tensors are supported", where=self.where
            )
        inputs = tuple(v.name for v in graph.input if v.name not in data)
        tensors = {name: constant(name, array) for name, array in data.items()}
        nodes = tuple(self._node(i, node) for i, node in enumerate(graph.node))
        made = dict.fromkeys((*inputs, *(n for node in nodes for n in node.outputs if n)))
        known = {v.name: v for v in (*graph.value_info, *graph.output, *graph.input)}
        for name in made:
            value = known.get(name)
            tensors[name] = (
                _untyped(name) if value is None else self._tensor(value, is_main and name in inputs)
            )
        return OnnxFileGraph(graph.name, tensors, nodes, inputs, tuple(v.name for v in graph.output))

    def _tensor(self, value: Any, is_input: bool) -> NamedTensor:
        # A tensor with -1 for a length that is not fixed.
        kind = value.type.WhichOneof("value")
        if kind != "tensor_type":
            name = (kind or "unknown").removesuffix("_type")
            return NamedTensor(value.name, value.name, _UNKNOWN_SHAPE, name.upper(), None, None, None)
        tensor = value.type.tensor_type
        shape: tuple[int, ...] = _UNKNOWN_SHAPE
        if tensor.HasField("shape"):
            shape = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim)
        if is_input and len(shape) > 1 and shape[0] == -1:
            shape = (1, *shape[1:])
        self.check_shape(value.name, shape)
        return _typed(value.name, shape, tensor.elem_type, None)

    def constant(self, tensor: Any) -> Array:
        # The numbers of a tensor; ``CorruptModelError`` if it has not as many as its shape says.
        self.check_shape(tensor.name, tuple(tensor.dims))
        spending = budget.current()
        spending.take(_bytes(tensor), f"the constant {tensor.name!r}")
        if not tensor.raw_data:
            spending.hold(_LISTED * math.prod(tensor.dims), f"the constant {tensor.name!r}")
        try:
            return numpy_helper.to_array(tensor)
        except (ValueError, TypeError) as error:
            reason = f"{tensor.name!r} has not the data that its shape says: {_line(error)}"
            raise CorruptModelError(reason, where=self.where, hint=HINT) from error

    def check_shape(self, name: str, shape: Sequence[int]) -> None:
        """Raise ``UnsupportedError`` for more dimensions or elements than any board can hold."""
        most = min(MAX_ELEMENTS, budget.memory_limit(8))
        if len(shape) > MAX_RANK or math.prod(abs(d) for d in shape) > most:
            text = f"at most {MAX_RANK} dimensions and {most:,} elements"
            reason = f"{name!r} has shape {shape_text(shape)}; supported: {text}"
            raise UnsupportedError(reason, where=self.where)
        if any(d < -1 for d in shape):
            reason = f"{name!r} has shape {shape_text(shape)}"
            raise CorruptModelError(reason, where=self.where, hint=HINT)

    def _node(self, index: int, node: Any) -> FileNode:
        own = node.domain in DOMAINS
        versions = [
            i.version for i in self.model.opset_import if i.domain in (DOMAINS if own else (node.domain,))
        ]
        attributes = {a.name: self._attribute(node, index, a) for a in node.attribute}
        code = node.op_type if own else f"{node.domain}.{node.op_type}"
        inputs, outputs = _trimmed(node.input), _trimmed(node.output)
        return FileNode(index, node.name, code, int(versions[0]), inputs, outputs, attributes, node)

    def _attribute(self, node: Any, index: int, attribute: Any) -> Any:
        if attribute.ref_attr_name:
            reason = (
                f"{label(node, index)} refers to the attribute {attribute.ref_attr_name!r} of no function"
            )
            raise CorruptModelError(reason, where=self.where, hint=HINT)
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, onnx.GraphProto):
            return self.graph(value)
        if isinstance(value, onnx.TensorProto):
            return self.constant(value)
        return value.decode(errors="replace") if isinstance(value, bytes) else value


def _bytes(tensor: Any) -> int:
    # Bytes of a tensor's elements.
    known = tensor.data_type in onnx.TensorProto.DataType.values() and tensor.data_type
    itemsize = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize if known else 1
    return int(math.prod(tensor.dims) * itemsize)


def _untyped(name: str) -> NamedTensor:
    # A tensor of which the file says nothing.
    return NamedTensor(name, name, _UNKNOWN_SHAPE, "", None, None, None)


def _trimmed(names: Iterable[str]) -> tuple[str, ...]:
    # Names without the empty ones at the end.
    found = list(names)
    while found and not found[-1]:
        found.pop()
    return tuple(found)


def constant(name: str, array: Array) -> NamedTensor:
    kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return _typed(name, tuple(array.shape), kind, array)


def _typed(name: str, shape: tuple[int, ...], number: int, array: Array | None) -> NamedTensor:
    # A tensor of the type with that number, with its data as the file has it.
    kind = kind_of(number)
    dtype = None if kind is None else kind.dtype
    return NamedTensor(name, name, shape, type_name(number), dtype, None, array)
