"""Reads the commands of a stream, and checks each of them.

A command is one word: its code in bits 0 to 9, zeros in bits 10 to 13, the number of payload words (0 or 1)
in bits 14 and 15, and its parameter in bits 16 to 31.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from crtgen.npu.errors import StreamError
from crtgen.npu.registers import LONG, SHORT

__all__ = ["Command", "commands"]


@dataclass(frozen=True, slots=True)
class Command:
    """A command: ``value`` is the payload, extended by the parameter if it is an address; without a payload,
    the parameter.

    ``offset`` is in bytes from the stream's start.
    """

    offset: int
    name: str
    parameter: int
    value: int


def commands(stream: bytes) -> Iterator[Command]:
    """Yield the commands up to STOP. Raises ``StreamError`` at the first wrong one, or if STOP is missing."""
    if len(stream) % 4:
        raise StreamError(
            f"the stream has {len(stream)} bytes, expected whole words of 4", offset=len(stream)
        )
    at = 0
    while at < len(stream):
        word = int.from_bytes(stream[at : at + 4], "little")
        command = _long(stream, at, word) if word >> 14 & 3 else _short(at, word)
        yield command
        if command.name == "STOP":
            return
        at += 8 if word >> 14 & 3 else 4
    raise StreamError("the stream ends without STOP; it was cut", offset=len(stream))


def _short(at: int, word: int) -> Command:
    register = SHORT.get(word & 0x3FF)
    parameter = word >> 16
    if register is None or word >> 10 & 0xF:
        raise StreamError(f"{word:#010x} is not a command", offset=at)
    _check(at, register.name, parameter, register.allowed)
    return Command(at, register.name, parameter, parameter)


def _long(stream: bytes, at: int, word: int) -> Command:
    register = LONG.get(word & 0x3FF)
    parameter = word >> 16
    if register is None or word >> 10 & 0x3F != 0x10:
        raise StreamError(f"{word:#010x} is not a command with a payload", offset=at)
    if at + 8 > len(stream):
        raise StreamError(f"the payload of {register.name} is missing; the stream was cut", offset=at)
    _check(at, register.name, parameter, register.allowed)
    payload = int.from_bytes(stream[at + 4 : at + 8], "little")
    high = parameter if register.allowed == 0xFF else 0
    return Command(at, register.name, parameter, high << 32 | payload)


def _check(at: int, name: str, parameter: int, allowed: int) -> None:
    if parameter & ~allowed:
        raise StreamError(
            f"{name} has the parameter {parameter:#x}; bits {parameter & ~allowed:#x} are reserved", offset=at
        )
