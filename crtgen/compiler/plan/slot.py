"""A place in the arena, or in a part of the arena that is in another memory."""

from dataclasses import dataclass

__all__ = ["NPU_PART", "ArenaPart", "ArenaSlot"]

NPU_PART = "npu"
"""The part of the arena with scratch memory that an NPU wants apart from the rest."""


@dataclass(frozen=True, slots=True)
class ArenaSlot:
    """A place in the arena: bytes from the start of a part, and length in bytes.

    ``part`` is a key of ``Plan.parts``; it is empty for the arena itself.
    """

    offset: int
    size: int
    part: str = ""


@dataclass(frozen=True, slots=True)
class ArenaPart:
    """A part of the arena in another memory: ``size`` in bytes, a size below which no layout of the same
    values exists, and True if ``size`` is proven to be the smallest.
    """

    size: int
    lower_bound: int
    optimal: bool
