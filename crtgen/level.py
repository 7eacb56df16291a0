"""The levels of optimisation, and what each of them means to the tools that build the code."""

from dataclasses import dataclass

from crtgen.errors import UsageError

__all__ = ["LEVELS", "Level", "find_level"]


@dataclass(frozen=True, slots=True)
class Level:
    """What code is optimised for.

    ``flag`` is the option that GCC and Clang compile the models' code with. ``small_libc`` says whether
    bare-metal programs bring the small memory functions of the runtime instead of those of the C library.
    """

    name: str
    flag: str
    small_libc: bool = False


LEVELS = {
    level.name: level
    for level in (
        Level("speed", "-O2"),
        Level("balanced", "-O2"),
        Level("size", "-Os", small_libc=True),
    )
}
"""The levels by name, the fastest first."""


def find_level(name: str) -> Level:
    """The level of that name. Raises ``UsageError`` for an unknown one."""
    if name not in LEVELS:
        raise UsageError(f"unknown optimisation {name}", hint=f"known: {', '.join(LEVELS)}")
    return LEVELS[name]
