"""How far the model of cycles is from silicon: what chips took, divided by what the model says.

The points are in docs/cycles.md, and ``tests/lab/measure/test_silicon.py`` holds the ranges to them.
"""

from crtgen.boards.core import Core

__all__ = ["silicon_range"]

_RANGES = {
    "cortex-m4": (1.02, 1.07),
    "cortex-m33": (0.94, 1.01),
    "cortex-m55": (0.84, 1.32),
    "cortex-m85": (0.79, 0.88),
}

_UNSEEN = (0.8, 1.2)
"""Of cores of which nobody published times of code that is known."""


def silicon_range(core: Core) -> tuple[float, float]:
    """The least and the greatest of the factors from modelled cycles to those of chips with that core."""
    return _RANGES.get(core.family, _UNSEEN)
