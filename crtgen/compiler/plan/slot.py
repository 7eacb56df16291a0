"""A place in the arena."""

from dataclasses import dataclass

__all__ = ["ArenaSlot"]


@dataclass(frozen=True, slots=True)
class ArenaSlot:
    """A place in the arena: bytes from its start, and length in bytes."""

    offset: int
    size: int
