"""The levels of optimisation, and what each of them means to the tools that build the code."""

from dataclasses import dataclass
from math import inf

from crtgen.base.errors import UsageError

__all__ = ["LEVELS", "Level", "find_level"]


@dataclass(frozen=True, slots=True)
class Level:
    """What code is optimised for.

    ``flag`` is the option that GCC and Clang compile the models' code with. ``small_libc`` says whether
    bare-metal programs bring the small memory functions of the runtime instead of those of the C library.
    ``kernels`` are the kinds of kernels to choose among: those that are written for ``speed``, for ``size``.
    ``flash`` and ``memory`` are how many percent of a model's instructions one percent of its flash is worth,
    and one percent of its memory. Loops over rows may add ``slower``, a share of the time, and save the share
    ``saves`` of the arena or are not made; ``streams``: they may be of any length. Weights may be
    ``expanded``: they take several times their flash where that is faster.
    """

    name: str
    flag: str
    kernels: tuple[str, ...]
    flash: float
    memory: float
    slower: float
    saves: float = 0.0
    streams: bool = False
    small_libc: bool = False
    expanded: bool = False

    def objective(self, instructions: float, flash: float = 0.0, memory: float = 0.0) -> float:
        """What is to be the least, of shares of a model's instructions, flash and memory."""
        return instructions + self.flash * flash + self.memory * memory


LEVELS = {
    level.name: level
    for level in (
        Level(
            "speed", "-O2", ("speed",), flash=0.02, memory=0.105, slower=0.0075, saves=0.125, expanded=True
        ),
        Level("balanced", "-O2", ("speed", "size"), flash=1.0, memory=0.5, slower=0.05),
        Level("size", "-Os", ("size",), flash=0.6, memory=0.5, slower=0.08, small_libc=True),
        Level("ram", "-O2", ("speed", "size"), flash=1.0, memory=100.0, slower=inf, streams=True),
    )
}
"""The levels by name: the fastest first, the one that takes any time to save memory last."""


def find_level(name: str) -> Level:
    """The level of that name. Raises ``UsageError`` for an unknown one."""
    if name not in LEVELS:
        raise UsageError(f"unknown optimisation {name}", hint=f"known: {', '.join(LEVELS)}")
    return LEVELS[name]
