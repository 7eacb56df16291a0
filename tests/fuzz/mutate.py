"""Mutations: of bytes, and of JSON as a tree."""

import copy
import json
import struct
from random import Random
from typing import Any

__all__ = ["mutate_bytes", "mutate_json"]

_NUMBERS = (0, 1, 2, 127, 128, 255, 256, 32767, 65535, 65536, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
_LEAVES: tuple[Any, ...] = (
    *(
        -1,
        0,
        1,
        7,
        1 << 31,
        1 << 32,
        1 << 63,
        10**30,
        1e308,
        float("nan"),
        float("inf"),
        True,
        None,
        "",
        [],
        {},
    ),
    *("../../evil.c", "/tmp/evil.c", "a\\..\\b.c", "C:evil.c", "nul", ".", "..", "a/../../b.c"),
    *(
        "x.c)\nexecute_process(COMMAND touch owned)\n#",
        "$ENV{HOME}",
        "a;b",
        '"',
        "*/ int evil; /*",
        "f(); int g",
    ),
    *("\0", "\x1b[2J", "\u202e", "\ud800", "x" * 5000, "1" * 5000, "é", "-x", "%s%n", "__proto__"),
)


def mutate_bytes(random: Random, data: bytes, other: bytes = b"") -> bytes:
    """A few changes of the kinds that break readers: bits, numbers of 1 to 8 bytes, cuts, copies."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        if not changed:
            break
        _KINDS[random.randrange(len(_KINDS))](random, changed, other or data)
    return bytes(changed)


def _bit(random: Random, data: bytearray, other: bytes) -> None:
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _byte(random: Random, data: bytearray, other: bytes) -> None:
    data[random.randrange(len(data))] = random.randrange(256)


def _number(random: Random, data: bytearray, other: bytes) -> None:
    layout = random.choice(("<H", "<I", "<I", "<I", "<Q", "<f"))
    size = struct.calcsize(layout)
    if len(data) < size:
        return
    at = random.randrange(0, len(data) - size + 1)
    at -= at % min(size, 4)
    number = random.choice(_NUMBERS) + random.choice((-1, 0, 0, 1))
    if layout == "<f":
        number_bytes = struct.pack(
            layout, random.choice((0.0, -1.0, 1e-40, 1e38, float("nan"), float("inf")))
        )
    else:
        number_bytes = (number % (1 << (8 * size))).to_bytes(size, "little")
    data[at : at + size] = number_bytes


def _nudge(random: Random, data: bytearray, other: bytes) -> None:
    if len(data) >= 4:
        at = random.randrange(0, len(data) - 3) & ~3
        number = int.from_bytes(data[at : at + 4], "little") + random.choice((-8, -4, -2, -1, 1, 2, 4, 8))
        data[at : at + 4] = (number % (1 << 32)).to_bytes(4, "little")


def _cut(random: Random, data: bytearray, other: bytes) -> None:
    at = random.randrange(len(data))
    del data[at : at + random.choice((1, 4, 16, len(data)))]


def _copy(random: Random, data: bytearray, other: bytes) -> None:
    if other:
        start = random.randrange(len(other))
        piece = other[start : start + random.choice((1, 4, 16, 64))]
        at = random.randrange(len(data) + 1)
        data[at : at + (len(piece) if random.random() < 0.7 else 0)] = piece


_KINDS = (_bit, _byte, _number, _number, _number, _nudge, _nudge, _cut, _copy)


def mutate_json(random: Random, text: bytes) -> bytes:
    """The document with some of its values replaced, removed or swapped; sometimes its bytes as well."""
    document = json.loads(text)
    for _ in range(random.choice((1, 1, 2, 3))):
        document = _changed(random, document)
    try:
        data = json.dumps(document, indent=random.choice((None, 1))).encode()
    except ValueError:
        return text
    return mutate_bytes(random, data) if random.random() < 0.1 else data


def _changed(random: Random, document: Any) -> Any:
    places = list(_places(document))
    if not places:
        return random.choice(_LEAVES)
    parent, key = random.choice(places)
    kind = random.randrange(8)
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, dict):
        parent[random.choice([x for x in _LEAVES if isinstance(x, str)])] = parent.pop(key)
    elif kind == 2:
        other, name = random.choice(places)
        parent[key] = copy.deepcopy(other[name]) if name in _keys(other) else None
    elif kind == 3 and isinstance(parent[key], int) and not isinstance(parent[key], bool):
        parent[key] += random.choice((-4, -1, 1, 4, 1 << 16))
    elif kind == 4 and isinstance(parent[key], list):
        parent[key] = parent[key] * random.choice((0, 2, 100))
    else:
        parent[key] = copy.deepcopy(random.choice(_LEAVES))
    return document


def _keys(parent: Any) -> Any:
    return parent if isinstance(parent, dict) else range(len(parent))


def _places(value: Any) -> Any:
    """Every value within a document, as its parent and its key."""
    for key in list(_keys(value)) if isinstance(value, dict | list) else ():
        yield value, key
        yield from _places(value[key])
