"""Refusals of the NPU's model."""

from crtgen.base.errors import CrtgenError

__all__ = ["StreamError"]


class StreamError(CrtgenError):
    """A command stream that the NPU, or its model, does not execute.

    ``offset`` is that of the command, in bytes from the stream's start.
    """

    def __init__(self, message: str, *, offset: int = 0, where: str = "the NPU's command stream") -> None:
        super().__init__(message, where=f"{where} at {offset:#x}")
        self.offset = offset
