"""Evaluates constant nodes, which exporters leave in `.onnx` files.

Operators with which exporters compute shapes are evaluated here. Others whose cost is proportional to their
elements use the onnx package's definition. All others are converted as if their inputs were not constant, and
evaluated by the reference of the resulting operators. The cost is estimated first.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from crtgen.base import budget
from crtgen.network.frontends.builder import NamedTensor, RefusedOperator
from crtgen.network.frontends.onnx_convert import OnnxLayer
from crtgen.network.frontends.onnx_file import FileNode, constant
from crtgen.network.frontends.onnx_shapes import COMPUTED, length_of
from crtgen.network.ir import Array

__all__ = ["compute", "evaluated", "folded", "is_folded"]

_RANDOM = {
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}

# fmt: off
# Operators that the package computes, element by element of inputs that are repeated to one shape.
_EACH_ELEMENT = frozenset(
    (
        "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitShift", "BitwiseAnd", "BitwiseNot",
        "BitwiseOr", "BitwiseXor", "Ceil", "Celu", "Clip", "Constant", "Cos", "Cosh", "DequantizeLinear",
        "Elu", "Erf", "Exp", "Flatten", "Floor", "Gelu", "HardSigmoid", "HardSwish", "IsInf", "IsNaN",
        "LeakyRelu", "Log", "Max", "Mean", "Min", "Mish", "Neg", "NonZero", "Optional", "OptionalGetElement",
        "OptionalHasElement", "Or", "Pow", "PRelu", "QuantizeLinear", "Reciprocal", "ReduceL1", "ReduceL2",
        "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
        "ReduceSumSquare", "Relu", "Round", "Selu", "SequenceConstruct", "SequenceEmpty", "Sigmoid", "Sign",
        "Sin", "Sinh", "Softplus", "Softsign", "Split", "Sqrt", "Sum", "Swish", "Tan", "Tanh",
        "ThresholdedRelu", "Xor",
    )
)
# fmt: on

# Operators that the package computes for lengths that are their inputs.
_SIZED = {"BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix"}

# Operations that the package needs per element.
_PER_ELEMENT = 40

# Calls that it needs per node.
_SETTING_UP = 20

# The first version of DequantizeLinear that the package computes; older ones mean the same.
_WITH_QUANTISED = 19


def is_folded(layer: OnnxLayer, inputs: Sequence[NamedTensor]) -> bool:
    """Return True if all inputs are constant, so that the results can be computed now."""
    code = layer.node.code
    known = code in COMPUTED or code in _EACH_ELEMENT or code in _SIZED or code in _RANDOM
    return known and not layer.node.graphs and all(t.data is not None for t in inputs)


def folded(layer: OnnxLayer, inputs: Sequence[NamedTensor]) -> dict[str, NamedTensor]:
    if layer.node.code in _RANDOM:
        raise RefusedOperator("random numbers", "export the model for inference")
    results = _own(layer) if layer.node.code in COMPUTED else _by_package(layer, inputs)
    found = {}
    made = (tensor for tensor in layer.outputs if tensor is not None)
    for name, tensor, array in zip((n for n in layer.node.outputs if n), made, results, strict=True):
        if not isinstance(array, np.ndarray | np.generic):
            raise RefusedOperator("constants that are no tensors")
        budget.current().take(array.nbytes, f"the constant {name!r}")
        found[name] = replace(constant(name, np.asarray(array)), key=tensor.key)
    return found


def _own(layer: OnnxLayer) -> list[Array]:
    # By crtgen's own definition of the operator.
    arrays = [t.data for t in layer.inputs if t is not None and t.data is not None]
    try:
        length = length_of(layer, arrays)
        _ask(budget.CALL + 4 * length, max(array.itemsize for array in (*arrays, np.zeros(0))) * length)
        with np.errstate(all="ignore"):
            return [
                np.ascontiguousarray(made).reshape(made.shape) for made in COMPUTED[layer.node.code](layer)
            ]
    except (TypeError, LookupError, ArithmeticError) as error:
        raise ValueError(f"the node cannot be computed from its constants: {error}") from error


def _by_package(layer: OnnxLayer, inputs: Sequence[NamedTensor]) -> list[Any]:
    # By the package's definition.
    names = (name for name in layer.node.reads if name)
    feeds = {name: tensor.data for name, tensor in zip(names, inputs, strict=True)}
    return compute(layer.node, feeds)


def compute(node: FileNode, feeds: Mapping[str, Any]) -> list[Any]:
    """Evaluate a node on named constants, within the budget. Raises ``ValueError`` if it gives no result."""
    arrays = [array for array in feeds.values() if isinstance(array, np.ndarray)]
    if node.code in _SIZED:
        length = math.prod(int(abs(a.reshape(-1)[0])) + 1 for a in arrays[:2] if a.size)
    else:
        length = _repeated(arrays)
    _ask(_SETTING_UP * budget.CALL + _PER_ELEMENT * length, 4 * 8 * length)
    return evaluated(node, feeds)


def _repeated(arrays: Sequence[Array]) -> int:
    # The elements of these arrays, and of the shape that they are repeated to if there is one.
    together = sum(array.size for array in arrays)
    try:
        return together + math.prod(np.broadcast_shapes(*(array.shape for array in arrays)))
    except ValueError:
        return together


def _ask(operations: int, nbytes: int) -> None:
    spending = budget.current()
    spending.hold(nbytes, "computing a constant")
    spending.compute(operations, "computing constants")


def evaluated(node: FileNode, feeds: Mapping[str, Any]) -> list[Any]:
    """Evaluate a node on named inputs. Raises ``ValueError`` if that fails."""
    try:
        return _run(node, feeds)
    except Exception as error:  # the package raises what its Python code happens to raise
        raise ValueError(f"the node cannot be computed from its constants: {error}") from error


def _run(node: FileNode, feeds: Mapping[str, Any]) -> list[Any]:
    made = [name for name in node.outputs if name]
    graph = onnx.helper.make_graph(
        [_proto(node)],
        "constants",
        [
            onnx.helper.make_tensor_value_info(k, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for k, v in feeds.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in made],
    )
    opset = max(node.opset, _WITH_QUANTISED) if node.code == "DequantizeLinear" else node.opset
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    with np.errstate(all="ignore"):
        return list(ReferenceEvaluator(model).run(None, dict(feeds)))


def _proto(node: FileNode) -> Any:
    # The node for the package, with the names and the axis of a pass that changed them.
    made = type(node.proto)()
    made.CopyFrom(node.proto)
    for field, names in ((made.input, node.inputs), (made.output, node.outputs)):
        del field[:]
        field.extend(names)
    axes = [a for a in made.attribute if a.name == "axis"]
    if node.code == "DequantizeLinear" and "axis" in node.attributes:
        for axis in axes:
            made.attribute.remove(axis)
        made.attribute.append(onnx.helper.make_attribute("axis", node.attributes["axis"]))
    return made
