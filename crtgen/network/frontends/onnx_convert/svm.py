"""Support vector machines of ``ai.onnx.ml``: regression, novelty detection, and classification by votes.

``y = sum(coefficient * kernel(x, support vector)) + rho``. The kernels are ``x . s``, ``exp(-gamma * |x -
s|^2)``, ``(gamma * x . s + c)^degree`` and ``tanh(gamma * x . s + c)``; the distances to all vectors are
computed by one layer.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from crtgen.network.frontends.builder import Converted, RefusedOperator
from crtgen.network.frontends.onnx_convert.layer import (
    OnnxConverter,
    OnnxLayer,
    Operand,
    cast,
    number,
    power,
    reshaped,
)
from crtgen.network.ir import Array, DType
from crtgen.network.ops import FullyConnected, Mul, Tanh
from crtgen.network.ops.arithmetic import SquaredDifference
from crtgen.network.ops.compare import Greater, Select
from crtgen.network.ops.function import Exp
from crtgen.network.ops.gather import Gather
from crtgen.network.ops.reduce import ArgMax, Sum

__all__ = ["CONVERTERS"]


def _dense(x: Operand | OnnxLayer, weights: Array, bias: Array) -> Converted:
    operand = x.x if isinstance(x, OnnxLayer) else x
    return Converted(FullyConnected(), (operand, weights, bias), ("weights", "bias"))


def _kernels(layer: OnnxLayer, vectors: Array) -> Operand:
    # Return ``[N, vectors]``: the kernel function of each row with each support vector.
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


def _classifier(layer: OnnxLayer) -> tuple[Converted, ...]:
    """Convert to the label with the most votes, and the decision values.

    Each pair of classes has a decision value, ``sum(coefficient * kernel(x, support vector)) + rho`` over the
    vectors of both; if it is positive, the first class of the pair gets a vote, otherwise the second. This
    follows ONNX Runtime and libsvm.
    """
    layer.refuse("post_transform", "NONE")
    if layer.attribute("prob_a"):
        raise RefusedOperator(
            "probabilities of classes, which ONNX Runtime finds by an iteration that stops early",
            "train it without probability=True: the label and the decision values stay",
        )
    sizes = [int(n) for n in layer.attribute("vectors_per_class") or []]
    labels = np.array(layer.attribute("classlabels_ints") or [], np.int64)
    words = layer.attribute("classlabels_strings") or []
    if not labels.size and layer.node.outputs[0]:
        raise RefusedOperator("labels that are words", "number the classes before training")
    labels = labels if labels.size else np.arange(len(words))
    if not sizes:
        raise RefusedOperator("a classifier without support vectors", "use a linear model")
    values = _decisions(layer, sizes)
    pairs = [*combinations(range(len(sizes)), 2)]
    if labels.size != len(sizes) or len(sizes) < 2:
        raise ValueError(f"{labels.size} labels for vectors of {len(sizes)} classes")
    votes = np.zeros((len(sizes), len(pairs)), np.float32)
    for n, (first, second) in enumerate(pairs):
        votes[first, n], votes[second, n] = 1, -1
    above = cast(Converted(Greater(), (values, number(0.0)), ("threshold",)), DType.FLOAT32)
    best = Converted(ArgMax(1), (_dense(above, votes, (votes < 0).sum(axis=1).astype(np.float32)),))
    label = Converted(Gather(0), (labels, best), ("labels",))
    if len(sizes) > 2:
        return label, values
    return label, _dense(values, np.array([[-1], [1]], np.float32), np.zeros(2, np.float32))


def _decisions(layer: OnnxLayer, sizes: Sequence[int]) -> Converted:
    # ``[N, pairs]``: the decision values.
    if layer.rank != 2:
        raise ValueError(f"an input of {layer.rank} dimensions instead of 2")
    count, features, classes = sum(sizes), layer.x.shape[1], len(sizes)
    vectors = np.array(layer.attribute("support_vectors") or [], np.float32)
    coefficients = np.array(layer.attribute("coefficients") or [], np.float32)
    start = np.array(layer.attribute("rho") or [], np.float32)
    pairs = [*combinations(range(classes), 2)]
    if vectors.size != count * features:
        raise ValueError(f"{vectors.size} numbers for {count} vectors of {features} features")
    if coefficients.size != (classes - 1) * count or start.size != len(pairs):
        raise ValueError(f"{coefficients.size} coefficients and {start.size} rhos for {classes} classes")
    coefficients = coefficients.reshape(classes - 1, count)
    ends = np.cumsum([0, *sizes])
    weights = np.zeros((len(pairs), count), np.float32)
    for n, (first, second) in enumerate(pairs):
        for own, other in ((first, second - 1), (second, first)):
            weights[n, ends[own] : ends[own + 1]] = coefficients[other, ends[own] : ends[own + 1]]
    return _dense(_kernels(layer, vectors.reshape(count, features)), weights, start)


CONVERTERS: Mapping[str, OnnxConverter] = {
    "ai.onnx.ml.SVMClassifier": OnnxConverter(_classifier, ("svm",), whole=2),
    "ai.onnx.ml.SVMRegressor": OnnxConverter(_regressor, ("svm",)),
}
