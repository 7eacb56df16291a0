"""Framing of packets on a byte stream, sans-IO: bytes in, events out.

A packet is ``FF FD``, then the length (u32), the payload and a CRC-16 (polynomial 0x1021, start 0xFFFF), each
little-endian and with every FF doubled. The CRC covers the bytes as they are on the wire, from the leading FF
to the last byte of the payload.
"""

import re
from binascii import crc_hqx
from dataclasses import dataclass
from enum import Enum

__all__ = [
    "DEFAULT_MAX_PAYLOAD",
    "LEAD_IN",
    "BadEscape",
    "CrcMismatch",
    "Decoder",
    "Event",
    "FrameError",
    "Oversize",
    "Packet",
    "ShortPacket",
    "encode",
]

DEFAULT_MAX_PAYLOAD = 1 << 20
LEAD_IN = b"\xfe"
"""Bytes that a sender emits first after a reset: they complete an escape that was cut in half."""

_ESCAPE = b"\xff"
_LITERAL = b"\xff\xff"
_NOP = b"\xff\xfe"
_START = b"\xff\xfd"
_START_CRC = crc_hqx(_START, 0xFFFF)
_WELL_ESCAPED = re.compile(rb"(?:[^\xff]++|\xff[\xfe\xff])*+")


@dataclass(frozen=True, slots=True)
class Packet:
    payload: bytes


@dataclass(frozen=True, slots=True)
class CrcMismatch:
    expected: int
    received: int

    def __str__(self) -> str:
        return f"CRC 0x{self.received:04x} instead of 0x{self.expected:04x}"


@dataclass(frozen=True, slots=True)
class ShortPacket:
    """A new packet started while ``missing`` bytes of this one had not arrived."""

    missing: int

    def __str__(self) -> str:
        return f"short packet, at least {self.missing} bytes missing"


@dataclass(frozen=True, slots=True)
class Oversize:
    """A packet announced more bytes than the receiver accepts."""

    length: int

    def __str__(self) -> str:
        return f"oversize packet of {self.length} bytes"


@dataclass(frozen=True, slots=True)
class BadEscape:
    byte: int

    def __str__(self) -> str:
        return f"invalid escape ff {self.byte:02x}"


FrameError = CrcMismatch | ShortPacket | Oversize | BadEscape
Event = Packet | FrameError


def encode(payload: bytes) -> bytes:
    body = (len(payload).to_bytes(4, "little") + payload).replace(_ESCAPE, _LITERAL)
    crc = crc_hqx(body, _START_CRC).to_bytes(2, "little")
    return b"".join((_START, body, crc.replace(_ESCAPE, _LITERAL)))


def _unescape(wire: bytes) -> bytes:
    # Well-escaped wire bytes without their escapes: a split runs left to right, so pairs stay aligned.
    if _ESCAPE not in wire:
        return wire
    return _ESCAPE.join(piece.replace(_NOP, b"") for piece in wire.split(_LITERAL))


def _well_escaped(wire: bytes) -> bytes:
    # The longest prefix that holds no start, no invalid escape and no half of an escape.
    prefix = _WELL_ESCAPED.match(wire)
    return prefix[0] if prefix else b""


class _Field(Enum):
    # Field of the packet that the receiver expects next.
    OUTSIDE = 0
    LENGTH = 1
    PAYLOAD = 2
    CRC = 3


class Decoder:
    """Finds packets in a byte stream, however the stream is split into pieces.

    After any error the partial payload is dropped and the next packet is delivered intact, with one exception
    that the format does not allow to detect: a packet cut between the two bytes of an escape hides the start
    of the next one, unless the sender emitted ``LEAD_IN`` in between.
    """

    def __init__(self, max_payload: int = DEFAULT_MAX_PAYLOAD) -> None:
        self._max_payload = max_payload
        self._wire = bytearray()
        self._field = _Field.OUTSIDE
        self._missing = 0
        self._plain = bytearray()
        self._crc = 0
        self._payload = b""
        self._expected_crc = 0

    def feed(self, data: bytes) -> list[Event]:
        self._wire += data
        events: list[Event] = []
        while (event := self._next()) is not None:
            events.append(event)
        return events

    def _next(self) -> Event | None:
        # The next event, or None when more bytes are needed.
        if self._field is _Field.OUTSIDE and not self._find_start():
            return None
        while True:
            error = self._fill()
            if error is not None:
                return error
            if self._missing:
                return None
            event = self._finish()
            if event is not None:
                return event

    def _find_start(self) -> bool:
        # Skip everything up to and including ``FF FD``.
        at = self._wire.find(_START)
        if at < 0:
            keep = 1 if self._wire.endswith(_ESCAPE) else 0
            del self._wire[: len(self._wire) - keep]
            return False
        del self._wire[: at + 2]
        self._begin()
        return True

    def _begin(self) -> None:
        self._crc = _START_CRC
        self._expect(_Field.LENGTH, 4)

    def _expect(self, field: _Field, size: int) -> None:
        self._field = field
        self._missing = size
        self._plain.clear()

    def _fill(self) -> FrameError | None:
        # Move bytes from the wire to the current field until it is full or the wire is empty.
        while self._missing and self._wire:
            chunk = bytes(self._wire[: self._missing])
            if _ESCAPE in chunk:
                chunk = _well_escaped(chunk)
            if not chunk:
                if len(self._wire) < 2:
                    return None
                chunk = bytes(self._wire[:2])
                if chunk not in (_LITERAL, _NOP):
                    return self._abort(chunk)
            del self._wire[: len(chunk)]
            self._crc = crc_hqx(chunk, self._crc)
            plain = _unescape(chunk)
            self._plain += plain
            self._missing -= len(plain)
        return None

    def _abort(self, escape: bytes) -> FrameError:
        # An escape that ends the packet: the start of another one, or an invalid one.
        del self._wire[:2]
        missing = self._missing
        if escape == _START:
            self._begin()
            return ShortPacket(missing)
        self._expect(_Field.OUTSIDE, 0)
        return BadEscape(escape[1])

    def _finish(self) -> Event | None:
        # The current field is full: judge it and go to the next one.
        if self._field is _Field.LENGTH:
            length = int.from_bytes(self._plain, "little")
            if length > self._max_payload:
                self._expect(_Field.OUTSIDE, 0)
                return Oversize(length)
            self._expect(_Field.PAYLOAD, length)
            return None
        if self._field is _Field.PAYLOAD:
            self._payload = bytes(self._plain)
            self._expected_crc = self._crc
            self._expect(_Field.CRC, 2)
            return None
        received = int.from_bytes(self._plain, "little")
        self._expect(_Field.OUTSIDE, 0)
        if received != self._expected_crc:
            return CrcMismatch(self._expected_crc, received)
        return Packet(self._payload)
