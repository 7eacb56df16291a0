"""The interface that the RPC needs from a transport."""

from typing import Protocol

__all__ = ["Stream"]


class Stream(Protocol):
    """A stream of bytes in both directions. ``crtgen.device.run.streams`` has the real transports."""

    @property
    def flow_controlled(self) -> bool:
        """True if bytes wait until the device takes them and none is lost, unlike on a serial line."""

    def read(self, timeout: float) -> bytes:
        """Read all bytes that have arrived, at least one.

        Raises ``LinkTimeoutError`` after ``timeout`` seconds, ``LinkClosedError`` if the peer is gone.
        """

    def write(self, data: bytes) -> None:
        """Send everything. Raises ``LinkTimeoutError`` or ``LinkClosedError``."""

    def close(self) -> None:
        """Release the transport. Calling it again has no effect."""
