"""A real board: nothing runs here but the serial port to it."""

from dataclasses import dataclass
from typing import Self

from crtgen.run.streams import SerialStream

__all__ = ["SerialDevice"]


@dataclass(slots=True, eq=False)
class SerialDevice:
    """A board that serves the RPC on a serial port; a context manager that closes the port."""

    name: str
    stream: SerialStream

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the port. More than once is fine."""
        self.stream.close()
