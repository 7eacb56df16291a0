"""Estimates the memory of a parsed `.onnx` file from its bytes alone.

In protobuf, a field begins with a varint whose last three bits tell the wire type, followed by a length for
some types: https://protobuf.dev/programming-guides/encoding. Field numbers are those of ``onnx.proto``.
"""

from collections.abc import Mapping

from crtgen.base.budget import Budget

__all__ = ["ask_for_message"]

# The messages within messages that may be large, or many.
_INSIDE: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph"},
    "tensor": {},
}

# Memory per byte of packed numbers in the file.
_WIDER: Mapping[str, Mapping[int, int]] = {
    "tensor": {1: 8, 4: 1, 5: 4, 7: 8, 9: 1, 10: 1, 11: 8},
    "attribute": {4: 1, 7: 1, 8: 8},
}

_OTHERS_WIDER = 16
# Bytes of a message or a field by itself.
_FIELD = 250

_FIXED = {1: 8, 5: 4}
_WITH_LENGTH = 2
# The bit of a byte that says that the number goes on in the next one.
_MORE = 1 << 7


def ask_for_message(data: bytes, spending: Budget) -> None:
    """Ask the budget for the memory of the parsed message. Errors in the file are left to the parser."""
    waiting = [("model", 0, len(data))]
    while waiting:
        kind, at, end = waiting.pop()
        while at < end:
            spending.take(_FIELD, "what the file says")
            key, at = _varint(data, at, end)
            number, wire = key >> 3, key & 7
            if wire == _WITH_LENGTH:
                length, at = _varint(data, at, end)
                inner = _INSIDE[kind].get(number)
                if inner is not None:
                    waiting.append((inner, at, min(at + length, end)))
                else:
                    wider = _WIDER.get(kind, {}).get(number, _OTHERS_WIDER)
                    spending.take(wider * min(length, end - at), "what the file says")
                at += length
            elif wire == 0:
                _, at = _varint(data, at, end)
            elif wire in _FIXED:
                at += _FIXED[wire]
            else:
                return


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    # A number, and where the next one begins; the end where there is none.
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        value |= (byte & ~_MORE) << shift
        at, shift = at + 1, shift + 7
        if not byte & _MORE:
            return value, at
    return 0, end
