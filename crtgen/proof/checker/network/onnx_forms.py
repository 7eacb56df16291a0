"""Operators of quantised ONNX networks; where quantised ones (QOperator) have scales and zero points."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.shape_inference

from crtgen.proof.checker.network.real_functions import FunctionOfOne

__all__ = ["FORMS", "STANDARD", "OnnxOperator", "QuantisedForm", "Scaled", "shapes_of"]


@dataclass(frozen=True, slots=True)
class Scaled:
    """Integers with one scale, or with one scale per index of an axis; ``data`` is set for a constant."""

    scales: Any
    zero: int
    data: Any = None
    axis: int = 0


@dataclass(frozen=True, slots=True)
class OnnxOperator:
    """An operator. ``inputs`` are tensors by index; ``constants`` are the other operands, by position.
    ``function`` is that of a chain of float operators.
    """

    number: int
    code: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: dict[str, Any]
    constants: dict[int, Scaled] = field(default_factory=dict)
    limits: tuple[float, float] = (-np.inf, np.inf)
    """Limits in float32 that its results are clamped to."""
    function: FunctionOfOne | None = None

    @property
    def name(self) -> str:
        return self.function.name if self.function else self.code

    @property
    def output(self) -> int:
        return self.outputs[0]


@dataclass(frozen=True, slots=True)
class QuantisedForm:
    """A quantised operator: the float operator that it stands for, the number of its operands, each with
    scale and zero point, and the places of the result's scale and of the bias.
    """

    code: str
    operands: int
    result: int
    bias: int = -1


FORMS = {
    "QLinearConv": QuantisedForm("Conv", 2, 6, bias=8),
    "QLinearMatMul": QuantisedForm("MatMul", 2, 6),
    "QGemm": QuantisedForm("Gemm", 2, 7, bias=6),
    "QLinearAdd": QuantisedForm("Add", 2, 6),
    "QLinearMul": QuantisedForm("Mul", 2, 6),
    "QLinearSigmoid": QuantisedForm("Sigmoid", 1, 3),
    "QLinearLeakyRelu": QuantisedForm("LeakyRelu", 1, 3),
    "QLinearGlobalAveragePool": QuantisedForm("GlobalAveragePool", 1, 3),
    "QLinearAveragePool": QuantisedForm("AveragePool", 1, 3),
}
STANDARD = frozenset(("", "ai.onnx"))


def shapes_of(model: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all tensors. ONNX derives none behind operators of other domains: here the float
    operator, which has the same shapes, takes the place of each.
    """
    shadow = onnx.ModelProto()
    shadow.CopyFrom(model)
    for node in shadow.graph.node:
        if node.op_type == "QLinearConcat":
            node.op_type, node.domain = "Concat", ""
            node.input[:] = node.input[2::3]
        form = FORMS.get(node.op_type)
        if form is not None and node.domain not in STANDARD:
            operands = [node.input[3 * i] for i in range(form.operands)]
            kept = [a for a in node.attribute if a.name != "channels_last"]
            node.op_type, node.domain = form.code, ""
            node.input[:] = operands
            del node.attribute[:]
            node.attribute.extend(kept)
    graph = onnx.shape_inference.infer_shapes(shadow).graph
    return {
        v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim)
        for v in (*graph.input, *graph.value_info, *graph.output)
    }
