import re
from collections.abc import Mapping
from typing import Any

from crtgen.base.toml import TomlTable, text
from crtgen.boards.chip import Errata, Erratum, RegisterStep
from crtgen.boards.values import address

__all__ = ["parse_errata", "parse_step"]

# Operations of a step by the key that selects them.
_OPERATIONS: Mapping[str, str] = {
    "write": "write",
    "set": "change",
    "clear": "change",
    "wait": "wait",
    "if": "if",
    "unless": "unless",
    "pairs": "pairs",
}


def parse_step(table: TomlTable) -> RegisterStep:
    given = {key: table.get(key, address) for key in _OPERATIONS if table.has(key)}
    register, place = table.get("register", _register), table.get("address", address)
    bits, note = table.get("bits", _bits, 32), table.get("note", _comment, "")
    wanted = table.get("for", address, None)
    then = tuple(parse_step(inner) for inner in table.tables("then"))
    table.finish()
    operations = {_OPERATIONS[key] for key in given}
    if len(operations) != 1 or not any((*given.values(), "write" in given)):
        raise table.error("register", "expected one of write, wait, if, unless, pairs, or set with clear")
    (operation,) = operations
    asks = operation in ("if", "unless")
    if asks != bool(then):
        raise table.error("then", "steps belong to if and unless, and these to steps")
    if wanted is not None and not asks and operation != "wait":
        raise table.error("for", "it belongs to wait, if and unless")
    mask, value = _bits_of(operation, given, bits)
    value = value if wanted is None else wanted
    return RegisterStep(register, place, operation, mask, value, bits, note, then)


def _bits_of(operation: str, given: Mapping[str, int], bits: int) -> tuple[int, int]:
    # The bits that a step looks at or changes, and what they become.
    if operation == "write":
        return (1 << bits) - 1, given["write"]
    if operation == "change":
        ones = given.get("set", 0)
        return ones | given.get("clear", 0), ones
    if operation == "pairs":
        return (1 << bits) - 1, given["pairs"]
    (mask,) = given.values()
    return mask, mask


def parse_errata(table: TomlTable) -> Errata:
    listed = []
    for inner in table.tables("list"):
        listed.append(Erratum(inner.get("erratum", text), inner.get("about", text), inner.get("done", text)))
        inner.finish()
    return Errata(table.get("sheet", text), tuple(listed))


def _register(value: Any) -> str:
    name = text(value)
    if not re.fullmatch(r"[A-Z][A-Z0-9_]*(\[\d+\])*(\.[A-Z][A-Z0-9_]*(\[\d+\])*)*", name):
        raise ValueError(f'"{name}" is no register: write "RCC.AHB2ENR"')
    return name


def _bits(value: Any) -> int:
    if value not in (8, 16, 32):
        raise ValueError("expected 8, 16 or 32")
    return int(value)


def _comment(value: Any) -> str:
    # A text that can stand in a comment of C.
    note = text(value)
    if not note.isprintable() or "*/" in note or "/*" in note or len(note) > 100:
        raise ValueError("expected at most 100 printable characters without /* and */")
    return note
