"""What each ONNX operator means, as tables by family: the operator's name -> converter and types."""

from collections.abc import Mapping

from crtgen.frontends.onnx_convert import (
    affine,
    casts,
    einsum,
    elementwise,
    functions,
    image,
    index,
    integers,
    learn,
    move,
    packed,
    pool,
    products,
    quantised,
    recurrent,
    reduce,
    regions,
    resize,
    signal,
    weights,
    whole,
)
from crtgen.frontends.onnx_convert.layer import OnnxConverter, OnnxLayer

__all__ = ["CONVERTERS", "OnnxConverter", "OnnxLayer"]

_FAMILIES = (
    affine,
    casts,
    einsum,
    elementwise,
    functions,
    image,
    index,
    integers,
    learn,
    move,
    packed,
    pool,
    products,
    quantised,
    recurrent,
    reduce,
    regions,
    resize,
    signal,
    weights,
    whole,
)

CONVERTERS: Mapping[str, OnnxConverter] = {
    code: row for code, row in sorted(item for family in _FAMILIES for item in family.CONVERTERS.items())
}
