"""Converters of TFLite operators, in tables by family: the schema's name -> converter and types."""

from collections.abc import Mapping

from crtgen.network.frontends.converting import all_rows
from crtgen.network.frontends.tflite_convert.layer import TfliteConverter, TfliteLayer

__all__ = ["CONVERTERS", "TfliteConverter", "TfliteLayer", "option_fields"]

CONVERTERS: Mapping[str, TfliteConverter] = all_rows(__name__, __path__)


def option_fields() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for row in CONVERTERS.values():
        found[row.options] = tuple(dict.fromkeys((*found.get(row.options, ()), *row.fields)))
    return found
