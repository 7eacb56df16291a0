"""Names and bytes as C writes them."""

import re

from crtgen.errors import CorruptModelError

__all__ = ["c_bytes", "c_comment", "c_name", "c_string", "check_c_name"]

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PER_LINE = 20


def c_name(name: str) -> str:
    """An identifier made of a name: what C does not allow becomes ``_``."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    return text if _IDENTIFIER.fullmatch(text) else f"_{text}"


def check_c_name(name: str, where: str) -> str:
    """The name itself if it is an identifier, else an error: it would be written into C as it is."""
    if _IDENTIFIER.fullmatch(name) is None:
        raise CorruptModelError(f"{name!r} is no name of a C function", where=where)
    return name


def c_string(text: str) -> str:
    """A string literal: the text in UTF-8, whatever is not plain ASCII as octal escapes."""
    plain = set(range(0x20, 0x7F)) - set(b'"\\?')
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in text.encode()) + '"'


def c_comment(text: str) -> str:
    """The text as it may stand in a comment, on one line."""
    return "".join(c if c.isprintable() else " " for c in text).replace("*/", "* /").replace("/*", "/ *")


def c_bytes(data: bytes) -> tuple[str, ...]:
    """The lines of an initializer of ``uint8_t``; an array of no bytes gets one, as C has no empty arrays."""
    rows = [data[i : i + _PER_LINE] for i in range(0, len(data), _PER_LINE)] or [b"\0"]
    return tuple(", ".join(f"0x{byte:02x}" for byte in row) + "," for row in rows)
