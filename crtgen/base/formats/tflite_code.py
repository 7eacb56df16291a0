"""The operator code in a `.tflite` file."""

from typing import Any

from flatbuffers import number_types

__all__ = ["operator_number"]

_BUILTIN_CODE = 10  # the field's place in the table


def operator_number(code: Any) -> int:
    """Return the larger of the two code fields of an ``OperatorCode``.

    Old files store the code in a one-byte field; ai-edge-quantizer writes only the newer field. For codes
    below 127 the tflite package returns the byte even if only the newer field is set, so DEQUANTIZE would be
    read as ADD.
    """
    table = code._tab
    offset = table.Offset(_BUILTIN_CODE)
    number = int(table.Get(number_types.Int32Flags, offset + table.Pos)) if offset else 0
    return max(number, int(code.DeprecatedBuiltinCode()))
