"""Reductions."""

from collections.abc import Mapping

from crtgen.frontends.builder import Converted
from crtgen.frontends.tflite_convert.layer import Converter, Layer
from crtgen.ops import Mean

__all__ = ["CONVERTERS"]


def _mean(layer: Layer) -> Converted:
    rank = len(layer.x.shape)
    axes = sorted({a + rank if a < 0 else a for a in layer.integers(1, "axes")})
    return Converted(Mean(tuple(axes), bool(layer.option("KeepDims"))), (layer.x,))


CONVERTERS: Mapping[str, Converter] = {
    "MEAN": Converter(_mean, ("mean", "global_average_pooling2d"), "ReducerOptions", ("KeepDims",)),
}
