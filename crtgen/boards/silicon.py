"""Accuracy of the cycle model: measured cycles of real chips divided by modelled cycles.

docs/cycles.md lists the points, and ``tests/lab/measure/test_silicon.py`` compares the ranges with them.
"""

from crtgen.boards.core import Core

__all__ = ["silicon_range"]

_RANGES = {
    "cortex-m4": (1.02, 1.07),
    "cortex-m33": (0.94, 1.01),
    "cortex-m55": (0.84, 1.32),
    "cortex-m85": (0.79, 0.88),
}

# For cores for which nobody published times of known code.
_UNSEEN = (0.8, 1.2)


def silicon_range(core: Core) -> tuple[float, float]:
    """Return the smallest and the largest ratio of measured to modelled cycles for that core."""
    return _RANGES.get(core.family, _UNSEEN)
