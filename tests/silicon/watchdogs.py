"""What starts the watchdogs of chips: a write of a value, to a register of an offset."""

from collections.abc import Mapping

from crtgen.boards import Watchdog

__all__ = ["started"]

_STARTS: Mapping[str, tuple[int, int]] = {
    "stm32_iwdg": (0x00, 0xCCCC),
    "nrf_wdt": (0x00, 1),
    "rp2040": (0x00, 1 << 30),
    "rp2350": (0x00, 1 << 30),
}


def started(watchdog: Watchdog, offset: int, value: int) -> bool:
    """Whether a write starts it."""
    return _STARTS.get(watchdog.kind) == (offset, value)
