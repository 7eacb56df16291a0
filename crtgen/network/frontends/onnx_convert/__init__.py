"""Converters of ONNX operators, in tables by family: operator name -> converter and types."""

from collections.abc import Mapping

from crtgen.network.frontends.converting import all_rows
from crtgen.network.frontends.onnx_convert.layer import OnnxConverter, OnnxLayer

__all__ = ["CONVERTERS", "OnnxConverter", "OnnxLayer"]

CONVERTERS: Mapping[str, OnnxConverter] = all_rows(__name__, __path__)
