"""Support vector machines of ``ai.onnx.ml`` that give a number: regression, and novelty detection.

``y = sum(coefficient * kernel(x, support vector)) + rho``. The kernels are ``x . s``,
``exp(-gamma * |x - s|^2)``, ``(gamma * x . s + c)^degree`` and ``tanh(gamma * x . s + c)``; distances to all
vectors are one layer.
"""

from collections.abc import Mapping

import numpy as np

from crtgen.network.frontends.builder import Converted, RefusedOperator
from crtgen.network.frontends.onnx_convert.layer import (
    ANY,
    OnnxConverter,
    OnnxLayer,
    Operand,
    number,
    power,
    reshaped,
)
from crtgen.network.ir import Array
from crtgen.network.ops import FullyConnected, Mul, Tanh
from crtgen.network.ops.arithmetic import SquaredDifference
from crtgen.network.ops.compare import Greater, Select
from crtgen.network.ops.function import Exp
from crtgen.network.ops.reduce import Sum

__all__ = ["CONVERTERS"]


def _dense(x: Operand | OnnxLayer, weights: Array, bias: Array) -> Converted:
    operand = x.x if isinstance(x, OnnxLayer) else x
    return Converted(FullyConnected(), (operand, weights, bias), ("weights", "bias"))


def _kernels(layer: OnnxLayer, vectors: Array) -> Operand:
    """``[N, vectors]``: the kernel of each row with each support vector."""
    kind = layer.text("kernel_type", "LINEAR")
    given = [float(p) for p in layer.attribute("kernel_params") or []]
    gamma, constant, degree = [*given, *(0.0, 0.0, 0.0)][:3]
    count, features = vectors.shape
    if kind == "RBF":
        rows = reshaped(layer.x, (layer.x.shape[0], 1, features))
        apart = Converted(SquaredDifference(), (rows, vectors.reshape(1, count, features)), ("vectors",))
        lengths = Converted(Sum((2,)), (apart,))
        return Converted(Exp(), (Converted(Mul(), (lengths, number(-gamma)), ("gamma",)),))
    if kind == "LINEAR":
        return _dense(layer, vectors, np.zeros(count, np.float32))
    if kind not in ("POLY", "SIGMOID"):
        raise RefusedOperator(f"kernel_type {kind}; supported: LINEAR, POLY, RBF, SIGMOID")
    weights = (vectors.astype(np.float32) * np.float32(gamma)).astype(np.float32)
    scaled = _dense(layer, weights, np.full(count, constant, np.float32))
    return Converted(Tanh(), (scaled,)) if kind == "SIGMOID" else power(scaled, degree)


def _regressor(layer: OnnxLayer) -> Converted:
    layer.refuse("post_transform", "NONE")
    if layer.rank != 2:
        raise ValueError(f"an input of {layer.rank} dimensions instead of 2")
    coefficients = np.array(layer.attribute("coefficients") or [], np.float32)
    start = np.array(layer.attribute("rho") or [0.0], np.float32)[:1]
    features, count = layer.x.shape[1], layer.whole("n_supports")
    if count:
        vectors = np.array(layer.attribute("support_vectors") or [], np.float32)
        if vectors.size != count * features or coefficients.size != count:
            raise ValueError(f"{vectors.size} numbers for {count} vectors of {features} features")
        made = _dense(_kernels(layer, vectors.reshape(count, features)), coefficients.reshape(1, -1), start)
    else:
        if coefficients.size != features:
            raise ValueError(f"{coefficients.size} coefficients for {features} features")
        made = _dense(layer, coefficients.reshape(1, -1), start)
    if not layer.whole("one_class"):
        return made
    above = Converted(Greater(), (made, number(0.0)), ("threshold",))
    return Converted(Select(), (above, number(1.0), number(-1.0)), ("inside", "outside"))


def _classifier(layer: OnnxLayer) -> Converted:
    raise RefusedOperator(
        "classes by votes of support vectors; supported: SVMRegressor",
        "use trees, a linear model or a perceptron",
    )


CONVERTERS: Mapping[str, OnnxConverter] = {
    "ai.onnx.ml.SVMClassifier": OnnxConverter(_classifier, ("svm",), ANY),
    "ai.onnx.ml.SVMRegressor": OnnxConverter(_regressor, ("svm",)),
}
