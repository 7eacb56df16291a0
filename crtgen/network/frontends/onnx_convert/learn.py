"""ONNX's operators for classical machine learning (``ai.onnx.ml``), as scikit-learn's exporter writes
them.
"""

from collections.abc import Mapping

import numpy as np

from crtgen.network.frontends.builder import Converted, RefusedOperator
from crtgen.network.frontends.onnx_convert.layer import (
    OnnxConverter,
    OnnxLayer,
    Operand,
    cast,
    number,
    reshaped,
)
from crtgen.network.ir import Array, DType
from crtgen.network.ops import FullyConnected, Logistic, Mul, Softmax, Sub
from crtgen.network.ops.arithmetic import Div
from crtgen.network.ops.compare import Equal, Greater, Maximum, NotEqual, Select
from crtgen.network.ops.function import Abs, Sqrt, Square
from crtgen.network.ops.gather import Gather
from crtgen.network.ops.reduce import ArgMax, ReduceMax, Sum

__all__ = ["CONVERTERS"]

_MOST_KEYS = 4096
_LABELS = frozenset({DType.FLOAT32, DType.INT32, DType.INT64})


def _reals(layer: OnnxLayer, name: str, default: float, length: int) -> Array:
    # An attribute that is a vector, or one number for all.
    given = np.array(layer.attribute(name) or [default], np.float32)
    if given.size not in (1, length):
        raise ValueError(f"{name} has {given.size} numbers for {length}")
    return given if given.size > 1 else given.reshape(())


def _scaler(layer: OnnxLayer) -> Converted:
    length = layer.x.shape[-1]
    centred = Converted(Sub(), (layer.x, _reals(layer, "offset", 0.0, length)), ("offset",))
    return Converted(Mul(), (centred, _reals(layer, "scale", 1.0, length)), ("scale",))


def _feature(layer: OnnxLayer) -> Converted:
    # The elements of the last axis at some places.
    places, rank = layer.tensor(1), layer.rank
    made = Converted(
        Gather(rank - 1), (layer.x, reshaped(places, (int(np.prod(places.shape)),))), ("places",)
    )
    return made if rank > 1 else reshaped(made, (1, int(np.prod(places.shape))))


def _rows(layer: OnnxLayer) -> tuple[int, int]:
    if layer.rank != 2:
        raise ValueError(f"an input of {layer.rank} dimensions instead of 2")
    return layer.x.shape[0], layer.x.shape[1]


def _scores(layer: OnnxLayer, outputs: int, coefficients: str) -> Converted:
    # The product with coefficients ``[outputs, features]``, and what is added to it.
    weights = np.array(layer.attribute(coefficients) or [], np.float32)
    _, features = _rows(layer)
    if weights.size != outputs * features:
        raise ValueError(f"{weights.size} coefficients for {outputs} outputs of {features} features")
    start = np.array(layer.attribute("intercepts") or [0.0] * outputs, np.float32)
    operands = (layer.x, weights.reshape(outputs, features), start)
    return Converted(FullyConnected(), operands, ("weights", "bias"))


def _regressor(layer: OnnxLayer) -> Converted:
    layer.refuse("post_transform", "NONE")
    return _scores(layer, layer.whole("targets", 1), "coefficients")


def _classifier(layer: OnnxLayer) -> tuple[Converted, ...]:
    # The label of the greatest score, and the scores.
    labels = np.array(layer.attribute("classlabels_ints") or [], np.int64)
    words = layer.attribute("classlabels_strings") or []
    if not labels.size and layer.node.outputs[0]:
        raise RefusedOperator("labels that are words", "number the classes before training")
    labels = labels if labels.size else np.arange(len(words))
    scores = _scores(layer, labels.size, "coefficients")
    best = Converted(ArgMax(1), (scores,))
    label = Converted(Gather(0), (labels, best), ("labels",))
    kind = layer.text("post_transform", "NONE")
    if kind == "NONE":
        return label, reshaped(scores, (_rows(layer)[0], labels.size))
    if kind not in ("SOFTMAX", "LOGISTIC"):
        raise RefusedOperator(f"post_transform {kind}; supported: NONE, SOFTMAX, LOGISTIC")
    return label, Converted(Softmax() if kind == "SOFTMAX" else Logistic(), (scores,))


def _normalizer(layer: OnnxLayer) -> Converted:
    # Each row by its greatest magnitude, or by the sum or the root of the squares of its elements.
    norm, axis = layer.text("norm", "MAX"), (layer.rank - 1,)
    if norm == "L2":
        length: Operand = Converted(Sqrt(), (Converted(Sum(axis, True), (Converted(Square(), (layer.x,)),)),))
    elif norm == "L1":
        length = Converted(Sum(axis, True), (Converted(Abs(), (layer.x,)),))
    else:
        length = Converted(ReduceMax(axis, True), (layer.x,))
    if norm != "MAX":
        length = Converted(Maximum(), (length, number(float(np.finfo(np.float32).tiny))), ("least",))
    return Converted(Div(), (layer.x, length), ("length",))


def _binarizer(layer: OnnxLayer) -> Converted:
    above = Converted(Greater(), (layer.x, number(layer.real("threshold", 0.0))), ("threshold",))
    return cast(above, DType.FLOAT32)


def _imputer(layer: OnnxLayer) -> Converted:
    # The number that stands for a missing one, often NaN, is replaced.
    values = _reals(layer, "imputed_value_floats", 0.0, layer.x.shape[-1])
    missing = layer.real("replaced_value_float", 0.0)
    if np.isnan(missing):
        is_missing = Converted(NotEqual(), (layer.x, layer.x), ("again",))
    else:
        is_missing = Converted(Equal(), (layer.x, number(missing)), ("missing",))
    return Converted(Select(), (is_missing, values, layer.x), ("imputed", "given"))


def _one_hot(layer: OnnxLayer) -> Converted:
    # A row of zeros with a one at the place of the category; without a one for any other number.
    categories = np.array(layer.attribute("cats_int64s") or [], np.int32)
    if not categories.size:
        raise RefusedOperator("categories that are words", "number the categories before training")
    x = reshaped(cast(layer.x, DType.INT32), (*layer.x.shape, 1))
    return cast(Converted(Equal(), (x, categories), ("categories",)), DType.FLOAT32)


def _label_encoder(layer: OnnxLayer) -> Converted:
    # The value of the key that is equal; the default for any other number.
    keys, values = (_table(layer, name) for name in ("keys", "values"))
    if keys.size != values.size:
        raise ValueError(f"{keys.size} keys and {values.size} values")
    if np.isnan(keys.astype(np.float64)).any() or keys.size > _MOST_KEYS:
        raise RefusedOperator(f"{keys.size} keys, or one that is no number; supported: {_MOST_KEYS} numbers")
    dtype = layer.x.dtype
    assert dtype is not None
    apart = reshaped(layer.x, (*layer.x.shape, 1))
    equal = cast(Converted(Equal(), (apart, keys.astype(dtype.numpy)), ("keys",)), DType.FLOAT32)
    found = Converted(Greater(), (Converted(ReduceMax((layer.rank,)), (equal,)), number(0.5)), ("half",))
    value = Converted(Gather(0), (values, Converted(ArgMax(layer.rank), (equal,))), ("values",))
    return Converted(Select(), (found, value, _default(layer, values)), ("found", "default"))


def _table(layer: OnnxLayer, name: str) -> Array:
    # Keys or values, of integers or floats.
    for kind, dtype in (("int64s", np.int64), ("floats", np.float32), ("tensor", None)):
        given = layer.attribute(f"{name}_{kind}")
        if given is not None and len(given):
            array = np.asarray(given, dtype).reshape(-1)
            if array.dtype.kind not in "iuf":
                break
            return array.astype(np.int64 if array.dtype.kind in "iu" else np.float32)
    raise RefusedOperator(f"{name} that are words", "number the categories before training")


def _default(layer: OnnxLayer, values: Array) -> Array:
    given = layer.attribute("default_tensor")
    if given is not None:
        return np.asarray(given, values.dtype).reshape(())
    is_whole = values.dtype == np.int64
    return np.array(
        layer.whole("default_int64", -1) if is_whole else layer.real("default_float", -0.0), values.dtype
    )


def _zip_map(layer: OnnxLayer) -> Converted:
    raise RefusedOperator("dictionaries", "export with options={'zipmap': False}")


CONVERTERS: Mapping[str, OnnxConverter] = {
    "ai.onnx.ml.ArrayFeatureExtractor": OnnxConverter(_feature, ("feature",), _LABELS),
    "ai.onnx.ml.Binarizer": OnnxConverter(_binarizer, ("binarizer",)),
    "ai.onnx.ml.Imputer": OnnxConverter(_imputer, ("imputer",)),
    "ai.onnx.ml.LabelEncoder": OnnxConverter(_label_encoder, ("label_encoder",), _LABELS),
    "ai.onnx.ml.LinearClassifier": OnnxConverter(_classifier, ("classifier",), whole=2),
    "ai.onnx.ml.LinearRegressor": OnnxConverter(_regressor, ("regressor",)),
    "ai.onnx.ml.Normalizer": OnnxConverter(_normalizer, ("normalizer",)),
    "ai.onnx.ml.OneHotEncoder": OnnxConverter(_one_hot, ("one_hot",), _LABELS),
    "ai.onnx.ml.Scaler": OnnxConverter(_scaler, ("scaler",)),
    "ai.onnx.ml.ZipMap": OnnxConverter(_zip_map, ("zip_map",)),
}
