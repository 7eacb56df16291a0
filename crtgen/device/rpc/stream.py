"""The interface that the RPC needs from a transport."""

from typing import Protocol

__all__ = ["Stream"]


class Stream(Protocol):
    """A way for bytes, in both directions. ``crtgen.device.run.streams`` has them for real transports."""

    @property
    def flow_controlled(self) -> bool:
        """True if bytes wait until the device takes them and none is lost, unlike a serial line."""

    def read(self, timeout: float) -> bytes:
        """Read at least one byte, and whatever else has arrived.

        Raises ``LinkTimeoutError`` after ``timeout`` seconds, ``LinkClosedError`` if the peer is gone.
        """

    def write(self, data: bytes) -> None:
        """Send everything. Raises ``LinkTimeoutError`` or ``LinkClosedError``."""

    def close(self) -> None:
        """Give the transport back. More than once is fine."""
