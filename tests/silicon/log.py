"""What an image writes to a chip's registers, as a text that a reviewer can read: the golden files.

``python -m tests.silicon BOARD...`` writes them anew; SVD files then have to be there for the names.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from crtgen.boards import all_steps
from tests.silicon.machine import Access, Machine, is_usb_memory
from tests.silicon.svd import Register

__all__ = ["GOLDEN", "NO_SVD", "SVD", "changed_reserved_bits", "golden_file", "log_of", "without_names"]

GOLDEN = Path(__file__).parent / "golden"

SVD = {
    "arduino_giga_r1": "STM32H747_CM7",
    "arduino_nano_33_ble": "nrf52840",
    "arduino_portenta_h7": "STM32H747_CM7",
    "arduino_uno_r4_minima": "R7FA4M1AB",
    "b_u585i_iot02a": "STM32U585",
    "bbc_microbit": "nrf51",
    "bbc_microbit_v2": "nrf52833",
    "blackpill_f411ce": "STM32F411",
    "bluepill_f103c8": "STM32F103xx",
    "disco_l475_iot1": "STM32L4x5",
    "ek_ra8m1": "R7FA8M1AH",
    "feather_m4": "ATSAMD51J19A",
    "feather_nrf52840": "nrf52840",
    "feather_rp2040": "rp2040",
    "frdm_k64f": "MK64F12",
    "frdm_mcxn947": "MCXN947_cm33_core0",
    "metro_m4": "ATSAMD51J19A",
    "netduinoplus2": "STM32F405",
    "nrf52840dk": "nrf52840",
    "nrf5340dk": "nrf5340_application",
    "nrf54l15dk": "nrf54l15_application",
    "nucleo_c031c6": "STM32C031",
    "nucleo_f411re": "STM32F411",
    "nucleo_f446re": "STM32F446",
    "nucleo_f746zg": "STM32F7x6",
    "nucleo_g0b1re": "STM32G0B1",
    "nucleo_g474re": "STM32G474xx",
    "nucleo_h563zi": "STM32H563",
    "nucleo_h743zi": "STM32H743x",
    "nucleo_l4r5zi": "STM32L4R5",
    "nucleo_l552ze_q": "STM32L552",
    "nucleo_u031r8": "STM32U031",
    "nucleo_u083rc": "STM32U031",
    "nucleo_u385rg_q": "STM32U385",
    "nucleo_u575zi_q": "STM32U575",
    "nucleo_wb55rg": "STM32WB55_CM4",
    "nucleo_wba55cg": "STM32WBA55",
    "nucleo_wl55jc": "STM32WL5x_CM4",
    "olimex_stm32_h405": "STM32F405",
    "rpi_pico": "rp2040",
    "rpi_pico2": "RP2350",
    "rpi_pico2_usb": "RP2350",
    "rpi_pico2_w": "RP2350",
    "rpi_pico_usb": "rp2040",
    "rpi_pico_w": "rp2040",
    "stm32f746g_disco": "STM32F7x6",
    "stm32vldiscovery": "STM32F100xx",
    "xiao_nrf52840": "nrf52840",
    "xiao_rp2040": "rp2040",
    "xiao_rp2350": "RP2350",
}
"""The SVD file of each board's chip, without its ending, as pyOCD, cmsis-svd-data or the maker call it."""

NO_SVD = frozenset({"ek_ra8m1", "frdm_mcxn947", "nucleo_u385rg_q", "rpi_pico2_usb"})
"""Boards for whose golden files no SVD file was at hand: names are those of the boards' files."""

_CORE = {
    0xE000_E010: "SYST.CSR",
    0xE000_E014: "SYST.RVR",
    0xE000_E018: "SYST.CVR",
    0xE000_ED08: "SCB.VTOR",
    0xE000_ED14: "SCB.CCR",
    0xE000_ED24: "SCB.SHCSR",
    0xE000_ED88: "SCB.CPACR",
    0xE000_ED94: "MPU.CTRL",
    0xE000_ED98: "MPU.RNR",
    0xE000_ED9C: "MPU.RBAR",
    0xE000_EDA0: "MPU.ATTRIBUTES",
    0xE000_EDC0: "MPU.MAIR0",
}
_LEFT_OUT = ((0xE000_E180, 0xE000_E400), (0xE000_EF50, 0xE000_EF78), (0xE000_ED84, 0xE000_ED88))
"""Interrupts that are cleared one by one, and lines of caches."""


def golden_file(board: str) -> Path:
    return GOLDEN / f"{board}.txt"


def log_of(machine: Machine) -> str:
    """A line for each write before the first byte is sent.

    Register, address, value before, value, and the fields that are not 0 in it.
    """
    named = {step.address: step.register for step in all_steps(machine.board.start)}
    lines = []
    for write in machine.writes[: machine.silent_writes]:
        if is_usb_memory(write.address) or any(low <= write.address < high for low, high in _LEFT_OUT):
            continue
        register = machine.register(write.address)
        name = named.get(write.address) or _CORE.get(write.address)
        name = name or (register.name if register is not None else _nvic(write.address))
        fields = " ".join(_fields(register, write)) if register is not None else ""
        before, value = (f"{each:0{write.bits // 4}x}" for each in (write.before, write.value))
        lines.append(f"{name:<28} {write.address:08x} {before:>8} > {value:>8}  {fields}".rstrip())
    return "\n".join(lines) + "\n"


def _nvic(address: int) -> str:
    return f"NVIC.ISER[{(address - 0xE000_E100) // 4}]" if 0xE000_E100 <= address < 0xE000_E140 else "?"


def _fields(register: Register, write: Access) -> Iterator[str]:
    value = write.value << 8 * (write.address - register.address)
    for field in sorted(register.fields, key=lambda field: field.low):
        number = (value & field.mask) >> field.low
        if number:
            text = field.values.get(number, "")
            shown = re.sub(r"\W+", "_", text) or f"{number:#x}"
            yield field.name if field.width == 1 else f"{field.name}={shown}"


_LINE = re.compile(r" ([0-9a-f]{8}) +([0-9a-f]+) > +([0-9a-f]+)")


def without_names(log: str) -> list[tuple[int, int, int]]:
    """Address, value before and value of each write: what a log says where no SVD file is at hand."""
    found = (_LINE.search(line) for line in log.splitlines())
    return [(int(m[1], 16), int(m[2], 16), int(m[3], 16)) for m in found if m is not None]


def changed_reserved_bits(machine: Machine) -> dict[str, int]:
    """The bits that belong to no field and were changed all the same, by register."""
    found: dict[str, int] = {}
    for write in machine.writes:
        register = machine.register(write.address)
        if register is None:
            continue
        shift = 8 * (write.address - register.address)
        changed = (write.before ^ write.value) & ((1 << write.bits) - 1)
        if bits := changed & ~(register.documented >> shift):
            found[register.name] = found.get(register.name, 0) | bits << shift
    return found
