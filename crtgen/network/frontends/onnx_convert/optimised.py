"""Operators of ONNX Runtime's own domain, which its optimiser writes."""

from collections.abc import Mapping

from crtgen.network.frontends.builder import Converted, RefusedOperator
from crtgen.network.frontends.onnx_convert.layer import (
    ANY,
    OnnxConverter,
    OnnxLayer,
    number,
    unary,
)
from crtgen.network.frontends.onnx_convert.products import multiplied
from crtgen.network.ops import Logistic, Mul
from crtgen.network.ops.function import Gelu, GeluTanh
from crtgen.network.ops.matmul import BatchMatMul

__all__ = ["CONVERTERS"]


def _gelu(layer: OnnxLayer) -> Converted:
    layer.refuse("approximate", "none", "tanh")
    return Converted(GeluTanh() if layer.text("approximate", "none") == "tanh" else Gelu(), (layer.x,))


def _quick_gelu(layer: OnnxLayer) -> Converted:
    # ``x * sigmoid(alpha * x)``.
    scaled = Converted(Mul(), (layer.x, number(layer.real("alpha", 1.702))), ("alpha",))
    return Converted(Mul(), (layer.x, Converted(Logistic(), (scaled,))))


def _matmul(layer: OnnxLayer) -> Converted:
    # ``alpha * a * b``; each may be transposed.
    if layer.whole("transBatchA") or layer.whole("transBatchB"):
        raise RefusedOperator("transposed batches", _SAVE)
    a, b = layer.tensor(0), layer.tensor(1)
    if min(len(a.shape), len(b.shape)) < 2:
        raise ValueError(f"matrices of {len(a.shape)} and {len(b.shape)} dimensions")
    turned = bool(layer.whole("transA")), bool(layer.whole("transB"))
    made = multiplied(a, b, a.shape, b.shape, BatchMatMul(*turned))
    alpha = layer.real("alpha", 1.0)
    return made if alpha == 1 else Converted(Mul(), (made, number(alpha)), ("alpha",))


_SAVE = "save the file with a session's graph_optimization_level ORT_ENABLE_BASIC, or use the one before it"


def _of_this_machine(layer: OnnxLayer) -> Converted:
    raise RefusedOperator("an operator in the layout of the computer that optimised the file", _SAVE)


_LAYOUTS = (
    "AveragePool",
    "Conv",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "MaxPool",
    "ReorderInput",
    "ReorderOutput",
)

CONVERTERS: Mapping[str, OnnxConverter] = {
    "Gelu": OnnxConverter(_gelu, ("gelu",)),
    "com.microsoft.FastGelu": OnnxConverter(unary(GeluTanh()), ("gelu",)),
    "com.microsoft.FusedMatMul": OnnxConverter(_matmul, ("matmul",)),
    "com.microsoft.Gelu": OnnxConverter(unary(Gelu()), ("gelu",)),
    "com.microsoft.QLinearConv": OnnxConverter(_of_this_machine, ("conv2d",), ANY),
    "com.microsoft.QuickGelu": OnnxConverter(_quick_gelu, ("gelu",)),
    **{f"com.microsoft.nchwc.{name}": OnnxConverter(_of_this_machine, ("layout",), ANY) for name in _LAYOUTS},
}
