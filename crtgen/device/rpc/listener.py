"""Listens to a device without sending anything, sans-IO: the log of an RPC server, or the text of a
program.
"""

from crtgen.base.text import DeviceText
from crtgen.device.rpc import frame
from crtgen.device.rpc.session import HEADER_BYTES, MessageType

__all__ = ["Listener"]

_LONGEST = 1 << 16


class Listener:
    """Bytes in, lines out: log messages, and plain text up to the first packet."""

    def __init__(self) -> None:
        self._decoder = frame.Decoder()
        self._text = b""
        self._has_packets = False

    def feed(self, data: bytes) -> list[str]:
        lines = [] if self._has_packets else self._lines_of_text(data)
        for event in self._decoder.feed(data):
            if isinstance(event, frame.Packet):
                lines += _lines_of_packet(event.payload)
        return lines

    def _lines_of_text(self, data: bytes) -> list[str]:
        end = min((at for at in (data.find(b"\xff"), data.find(frame.LEAD_IN)) if at >= 0), default=None)
        self._has_packets = end is not None
        *complete, rest = (self._text + data[:end]).split(b"\n")
        self._text = rest[-_LONGEST:]
        return [str(DeviceText.of_bytes(line.rstrip(b"\r"))) for line in complete]


def _lines_of_packet(payload: bytes) -> list[str]:
    kind = payload[HEADER_BYTES - 1] if len(payload) >= HEADER_BYTES else None
    if kind == MessageType.LOG:
        return [str(DeviceText.of_bytes(payload[HEADER_BYTES:]))]
    return ["(the device has started)"] if kind == MessageType.TERMINATE else []
