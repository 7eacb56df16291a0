"""Names and byte arrays in C syntax."""

import re

from crtgen.base.errors import CorruptModelError

__all__ = ["c_bytes", "check_c_name"]

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PER_LINE = 20


def check_c_name(name: str, where: str) -> str:
    """Return the name if it is a C identifier; otherwise raise an error, because it would be written into C
    unchanged.
    """
    if _IDENTIFIER.fullmatch(name) is None:
        raise CorruptModelError(f"{name!r} is not the name of a C function", where=where)
    return name


def c_bytes(data: bytes) -> tuple[str, ...]:
    """Return the lines of an initialiser of ``uint8_t``; an empty array gets one byte, since C has no empty
    arrays.
    """
    rows = [data[i : i + _PER_LINE] for i in range(0, len(data), _PER_LINE)] or [b"\0"]
    return tuple(", ".join(f"0x{byte:02x}" for byte in row) + "," for row in rows)
