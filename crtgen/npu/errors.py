"""Errors of the NPU's model."""

from crtgen.base.errors import CrtgenError

__all__ = ["RegionError", "StreamError"]


class RegionError(ValueError):
    """An address outside of its region, or a region that is missing or read-only."""


class StreamError(CrtgenError):
    """A command stream that the NPU, or its model, does not execute.

    ``offset`` is that of the command, in bytes from the stream's start. ``is_bus``: the bus would have
    refused an access.
    """

    def __init__(self, message: str, *, offset: int = 0, is_bus: bool = False) -> None:
        super().__init__(message, where=f"the NPU's command stream at {offset:#x}")
        self.offset = offset
        self.is_bus = is_bus
