"""Collects the tensors and operators of a `.tflite` file."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tflite import ActivationFunctionType, Padding

from crtgen.network.ir import DType, Graph, Node, Signature, Value
from crtgen.network.ops import Activation
from crtgen.network.ops import Padding as Border
from tests.tflite_builder import Operator, Options, Tensor, packed

ACTIVATIONS = {
    Activation.NONE: ActivationFunctionType.NONE,
    Activation.RELU: ActivationFunctionType.RELU,
    Activation.RELU6: ActivationFunctionType.RELU6,
    Activation.RELU_N1_1: ActivationFunctionType.RELU_N1_TO_1,
}


class Writer:
    """Collects the tensors and operators of a model."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tensors = [tensor(v) for v in graph.values.values()]
        self.operators: list[Operator] = []

    def constant(self, name: str, data: Any, dtype: str = "int32", like: Value | None = None) -> str:
        array = np.asarray(data, dtype)
        quant = like.quant if like is not None else None
        scales, zeros = (quant.scales, quant.zero_points) if quant else ((), ())
        self.tensors.append(Tensor(name, array.shape, dtype, scales, zeros, data=array))
        return name

    def add(self, node: Node, code: str, options: Options | None, extra: Sequence[str] = ()) -> None:
        """The node as the operator ``code``, which has its inputs and then ``extra``."""
        kept = {after for _, after in self.graph.states}
        outputs = [name for name in node.outputs if name not in kept]
        self.operators.append(Operator(code, [*node.inputs, *extra], outputs, options))

    def padded(self, node: Node, sig: Signature, window: tuple[int, ...]) -> tuple[int, str]:
        """TFLite's padding and the name of the input: padded by an operator of its own where it has to be."""
        op: Any = node.op
        dilation = getattr(op, "dilation", (1, 1))
        size = (sig.x.shape[1], sig.x.shape[2])
        if op.padding == Border():
            return Padding.VALID, sig.x.name
        if op.padding == Border.same(size, (window[0], window[1]), op.stride, dilation):
            return Padding.SAME, sig.x.name
        p = op.padding
        amounts = [[0, 0], [p.top, p.bottom], [p.left, p.right], [0, 0]]
        shape = tuple(d + sum(a) for d, a in zip(sig.x.shape, amounts, strict=True))
        name = f"{node.name}_padded"
        self.tensors.append(tensor(Value(name, shape, sig.x.dtype, sig.x.quant)))
        self.operators.append(Operator("PAD", [sig.x.name, self.constant(f"{name}_by", amounts)], [name]))
        return Padding.VALID, name


def tensor(value: Value) -> Tensor:
    quant = value.quant
    if value.dtype is DType.INT4:
        value = replace(value, data=packed(value.array()))
    if value.is_state:
        scales, zeros = (quant.scales, quant.zero_points) if quant else ((), ())
        return Tensor(value.name, value.shape, value.dtype.value, scales, zeros, is_variable=True)
    if quant is None:
        return Tensor(value.name, value.shape, value.dtype.value, data=value.data)
    return Tensor(
        value.name,
        value.shape,
        value.dtype.value,
        quant.scales,
        quant.zero_points,
        quant.axis or 0,
        value.data,
    )


Written = tuple[str, Options | None, list[str]]
"""The code of an operator, its options, and the names of the inputs that follow the node's."""

Write = Callable[[Writer, Node, Signature], Written]


def plain(code: str) -> Write:
    """An operator that has neither options nor further inputs."""
    return lambda writer, node, sig: (code, None, [])
