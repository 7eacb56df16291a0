"""The levels of optimisation, and the settings that each of them implies for the tools."""

from dataclasses import dataclass
from math import inf

from crtgen.base.errors import UsageError

__all__ = ["LEVELS", "Level", "find_level"]


@dataclass(frozen=True, slots=True)
class Level:
    """A level of optimisation.

    ``flag`` is the option with which GCC and Clang compile the models' code. ``small_libc``: bare-metal
    programs use the runtime's small memory functions instead of the C library's. ``kernels`` are the kinds of
    kernels to choose from: those written for ``speed`` or for ``size``. ``flash`` and ``memory`` are exchange
    rates: the percentage of a model's instructions that one percent of its flash, or of its memory, is worth.
    Row loops may add at most ``slower``, a fraction of the time, and must save at least the fraction
    ``saves`` of the arena; ``streams``: they may have any length. ``expanded``: weights may take several
    times their size in flash if that is faster.
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
        """Return the objective to minimise, from fractions of a model's instructions, flash and memory."""
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
    """Return the level of that name. Raises ``UsageError`` for an unknown one."""
    if name not in LEVELS:
        raise UsageError(f"unknown optimisation {name}", hint=f"known: {', '.join(LEVELS)}")
    return LEVELS[name]
