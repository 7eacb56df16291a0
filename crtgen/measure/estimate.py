"""Estimated cycles from counted instructions; docs/performance.md says where the factors come from.

An estimate, not a measurement: QEMU counts instructions and knows nothing of pipelines, flash or caches.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from crtgen.boards import Core

__all__ = ["estimate_cycles", "layer_cycles"]

_OTHER = ""
_PORTABLE: Mapping[str, float] = MappingProxyType(
    {
        "conv2d": 1.74,
        "depthwise_conv2d": 1.55,
        "fully_connected": 1.74,
        "add": 1.45,
        "average_pool2d": 1.32,
        "softmax": 1.70,
        _OTHER: 1.71,
    }
)
_SINGLE_ISSUE: Mapping[str, float] = MappingProxyType(
    {
        "conv2d": 1.40,
        "depthwise_conv2d": 1.29,
        "fully_connected": 1.44,
        "add": 1.27,
        "average_pool2d": 1.52,
        "softmax": 1.16,
        _OTHER: 1.39,
    }
)
_HELIUM: Mapping[str, float] = MappingProxyType(
    {
        "conv2d": 1.37,
        "depthwise_conv2d": 1.57,
        "fully_connected": 1.12,
        "add": 1.54,
        "average_pool2d": 1.28,
        "softmax": 1.00,
        _OTHER: 1.40,
    }
)
_CYCLES_PER_INSTRUCTION = {
    "cortex-m3": _PORTABLE,
    "cortex-m4": _SINGLE_ISSUE,
    "cortex-m33": _SINGLE_ISSUE,
    "cortex-m55": _HELIUM,
}


def layer_cycles(core: Core, layers: Iterable[tuple[str, int]]) -> tuple[float, ...] | None:
    """Cycles of each layer from (operator, instructions); None for a core without a model."""
    factors = _CYCLES_PER_INSTRUCTION.get(core.name)
    if factors is None:
        return None
    return tuple(factors.get(operator, factors[_OTHER]) * count for operator, count in layers)


def estimate_cycles(core: Core, instructions: int, mix: Iterable[tuple[str, int]]) -> int | None:
    """Cycles of a run of so many instructions; None for a core without a model.

    ``mix`` says how they are shared out: (operator, instructions) of each layer, as the profile counts them.
    """
    counts = list(mix)
    cycles, total = layer_cycles(core, counts), sum(count for _, count in counts)
    return round(instructions * sum(cycles) / total) if cycles and total else None
