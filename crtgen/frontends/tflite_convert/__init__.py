"""What each TFLite operator means, as tables by family: the schema's name -> converter and types."""

from collections.abc import Mapping

from crtgen.frontends.tflite_convert import (
    arrange,
    beyond,
    binarized,
    detection,
    elementwise,
    move,
    recurrent,
    reduce,
    signal,
    tables,
    weights,
)
from crtgen.frontends.tflite_convert.layer import TfliteConverter, TfliteLayer

__all__ = ["CONVERTERS", "TfliteConverter", "TfliteLayer", "option_fields"]

_FAMILIES = (
    arrange,
    beyond,
    binarized,
    detection,
    elementwise,
    move,
    recurrent,
    reduce,
    signal,
    tables,
    weights,
)

CONVERTERS: Mapping[str, TfliteConverter] = {
    code: row for code, row in sorted(item for family in _FAMILIES for item in family.CONVERTERS.items())
}


def option_fields() -> Mapping[str, tuple[str, ...]]:
    """What is read of each table of options."""
    found: dict[str, tuple[str, ...]] = {}
    for row in CONVERTERS.values():
        found[row.options] = tuple(dict.fromkeys((*found.get(row.options, ()), *row.fields)))
    return found
