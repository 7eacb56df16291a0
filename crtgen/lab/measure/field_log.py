"""Black boxes and counts in a text log: the lines of ``crt_field_send`` (``crt/field.h``, SPEC.md section 9).

A line is ``crt KIND MODEL TOTAL OFFSET BYTES CRC``: the model's name, hexadecimal numbers, and the CRC-32 of
the text before the last space. Other text, such as a time stamp, may precede it, and other lines may come
between. A device sends the same box repeatedly; the last complete one is used.
"""

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crtgen.base import files
from crtgen.base.errors import UsageError

__all__ = ["FieldLine", "FieldLog", "field_lines", "read_field_log"]

_LINE = re.compile(
    rb"crt (box|drift|take) ([A-Za-z_]\w{0,31}) ([0-9a-f]{8}) ([0-9a-f]{8}) "
    rb"((?:[0-9a-f]{2}){1,32}) ([0-9a-f]{8})(?![0-9a-f])"
)
_MOST = 1 << 24  # bytes of a black box
_BOX = b"CRTB"  # how the memory itself begins, if crt_record_dump wrote the file


@dataclass(frozen=True, slots=True)
class FieldLine:
    kind: str
    model: str
    total: int
    offset: int
    data: bytes


class FieldLog:
    """The last complete black box and the last complete counts of each model, by name."""

    def __init__(self) -> None:
        self.boxes: dict[str, bytes] = {}
        self.counts: dict[str, bytes] = {}
        self.damaged = 0
        self._open: dict[tuple[str, str], bytearray] = {}

    def take(self, line: FieldLine) -> None:
        """Add a line. A line that does not continue the previous one leaves its box incomplete."""
        key = (line.kind, line.model)
        if line.offset == 0:
            self._open[key] = bytearray()
        part = self._open.get(key)
        if part is None or len(part) != line.offset or line.offset + len(line.data) > min(line.total, _MOST):
            self._open.pop(key, None)
            return
        part += line.data
        if len(part) == line.total:
            (self.boxes if line.kind == "box" else self.counts)[line.model] = bytes(self._open.pop(key))


def read_field_log(path: Path, model: str) -> FieldLog:
    """Read a log, or the memory of a black box of ``model`` that ``crt_record_dump`` wrote.

    Raises ``UsageError`` if it contains no complete black box.
    """
    data = files.read(path, "the log")
    log = FieldLog()
    if data.startswith(_BOX):
        log.boxes[model] = data
        return log
    lines, log.damaged = field_lines(data)
    for line in lines:
        if line.kind != "take":
            log.take(line)
    if model not in log.boxes:
        text = f"the log has no complete black box of {model}"
        if log.damaged:
            text += f"; {log.damaged} lines are damaged"
        hint = "let the device call crt_field_send, and keep every line that it writes"
        raise UsageError(text, where=str(path), hint=hint)
    return log


def field_lines(data: bytes) -> tuple[Sequence[FieldLine], int]:
    found, damaged = [], 0
    for match in _LINE.finditer(data):
        kind, model, total, offset, part, crc = match.groups()
        if zlib.crc32(match[0][: -len(crc) - 1]) != int(crc, 16):
            damaged += 1
            continue
        numbers = int(total, 16), int(offset, 16)
        found.append(FieldLine(kind.decode(), model.decode(), *numbers, bytes.fromhex(part.decode())))
    return found, damaged
