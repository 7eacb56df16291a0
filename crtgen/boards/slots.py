"""Slots: flash areas for models that are replaced without changing the firmware, and drivers that write
them.
"""

from dataclasses import dataclass
from typing import NamedTuple

from crtgen.base.errors import UsageError

__all__ = ["FLASH_DRIVERS", "FlashDriver", "Slot", "Slots"]


class FlashDriver(NamedTuple):
    """Erase and write sizes in bytes, and the effect of reading a unit whose write was interrupted.

    ``torn`` is ``"nmi"`` or ``"fault"`` (a bus fault) for flash with error correction, where reading bytes
    that a power cut left half written raises it. It is empty if such a read is harmless.
    """

    erase_size: int
    write_size: int
    torn: str


FLASH_DRIVERS = {
    "ram": FlashDriver(4096, 8, ""),
    "kinetis": FlashDriver(4096, 8, ""),
    "nrf_nvmc": FlashDriver(4096, 4, ""),
    "rp2040": FlashDriver(4096, 256, ""),
    "stm32f4": FlashDriver(128 << 10, 4, ""),
    "stm32h7": FlashDriver(128 << 10, 32, "fault"),
    "stm32l4": FlashDriver(4096, 8, "nmi"),
}
"""Drivers that erase and write flash while firmware runs.

``ram`` is for simulators, whose flash is memory; the STM32F4 has such sectors behind its first 128 KiB.
"""


@dataclass(frozen=True, slots=True)
class Slot:
    """``size`` bytes at ``origin`` for a model that is replaced without changing the firmware."""

    name: str
    memory: str
    origin: int
    size: int

    @property
    def end(self) -> int:
        return self.origin + self.size


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of a board. The running model uses ``work_size`` bytes of RAM at ``work``.

    ``driver`` is a key of ``FLASH_DRIVERS``. The slots' log takes ``log_size`` bytes of flash at ``log``. A
    new model has to be confirmed within ``tries`` starts.
    """

    driver: str
    places: tuple[Slot, ...]
    work: int
    work_size: int
    log: int
    log_size: int
    tries: int

    @property
    def ranges(self) -> tuple[tuple[str, int, int], ...]:
        """Name, origin and size of each memory area that the firmware reserves for slots."""
        own = (("work", self.work, self.work_size), ("log", self.log, self.log_size))
        return (*((f"slot.{s.name}", s.origin, s.size) for s in self.places), *own)

    def find(self, name: str) -> Slot:
        for slot in self.places:
            if slot.name == name:
                return slot
        raise UsageError(
            f"there is no slot {name}", hint=f"there are: {', '.join(s.name for s in self.places)}"
        )
