"""A place in the arena."""

from dataclasses import dataclass

__all__ = ["Slot"]


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in the arena: bytes from its start, and length in bytes."""

    offset: int
    size: int
