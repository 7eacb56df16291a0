"""CBOR (RFC 8949) as devices send it: non-negative integers, texts, arrays and maps of definite length."""

from typing import Any

__all__ = ["parse_cbor"]

_DEEPEST = 8
_SIZES = {24: 1, 25: 2, 26: 4}


def parse_cbor(data: bytes) -> Any:
    """Parse ``data``, which must be a single item. Raises ``ValueError`` for anything else and for more than
    eight levels of nesting.

    Every item takes at least a byte, so memory is bounded by the length of ``data``.
    """
    found, end = _item(data, 0, 0)
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes follow the item")
    return found


def _item(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    if depth > _DEEPEST:
        raise ValueError("arrays in arrays are nested too deeply")
    if at >= len(data):
        raise ValueError("the CBOR data end too early")
    kind, short = data[at] >> 5, data[at] & 31
    size = _SIZES.get(short, 0)
    if short > 26 or kind not in (0, 3, 4, 5):
        raise ValueError(f"an item of another kind, {data[at]:#04x}")
    number = int.from_bytes(data[at + 1 : at + 1 + size], "big") if size else short
    at += 1 + size
    if kind == 0 and at <= len(data):
        return number, at
    count = number * (2 if kind == 5 else 1)
    if at + count > len(data) or kind == 0:
        raise ValueError("the CBOR data end too early")
    if kind == 3:
        return data[at : at + count].decode("ascii"), at + count
    items = []
    for _ in range(count):
        item, at = _item(data, at, depth + 1)
        items.append(item)
    if kind == 4:
        return items, at
    if not all(isinstance(key, str) for key in items[::2]):
        raise ValueError("the key of a map is no text")
    return dict(zip(items[::2], items[1::2], strict=True)), at
