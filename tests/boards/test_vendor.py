"""Registers, UARTs and interrupts of the boards' files, compared with the chip makers' headers.

The headers are those of the modules in a Zephyr workspace; a compiler computes the addresses.
"""

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from crtgen.base.errors import ToolMissingError
from crtgen.boards import all_steps, find_board
from crtgen.firmware.builder import find_workspace
from tests.support import require_tool


@dataclass(frozen=True)
class Chip:
    """What a header wants to be included, and how it calls the UART and its interrupt."""

    define: str
    header: str
    folder: str
    uart: str
    irq: str
    include: str = "stdint.h"
    stubs: tuple[str, ...] = ()  # headers that it includes, and of which nothing is needed here


def _stm32(define: str, family: str, uart: str) -> Chip:
    folder = f"stm32/stm32cube/stm32{family}xx/soc"
    return Chip(define, f"stm32{family}xx.h", folder, uart, f"{uart}_IRQn")


def _nordic(define: str, header: str, uart: str, irq: str) -> Chip:
    return Chip(define, header, "nordic/nrfx/mdk", f"NRF_{uart}", irq)


STUB = "#include <stdint.h>\n#define __IM const\n#define __OM\n#define __IOM\n"

RENESAS = Chip(
    "R7FA8M1AH",
    "R7FA8M1AH.h",
    "renesas/drivers/ra/fsp/src/bsp/cmsis/Device/RENESAS/Include",
    "R_SCI_B9",
    "0",  # any: the events that it is linked to are looked at below
    "../../../../mcu/ra8m1/bsp_elc.h",
    ("core_cm85.h", "system.h"),
)

CHIPS = {
    "arduino_nano_33_ble": _nordic("NRF52840_XXAA", "nrf52840.h", "UART0", "UARTE0_UART0_IRQn"),
    "b_u585i_iot02a": _stm32("STM32U585xx", "u5", "USART1"),
    "bbc_microbit": _nordic("NRF51", "nrf51.h", "UART0", "UART0_IRQn"),
    "disco_l475_iot1": _stm32("STM32L475xx", "l4", "USART1"),
    "ek_ra8m1": RENESAS,
    "feather_nrf52840": _nordic("NRF52840_XXAA", "nrf52840.h", "UART0", "UARTE0_UART0_IRQn"),
    "netduinoplus2": _stm32("STM32F405xx", "f4", "USART1"),
    "nrf52840dk": _nordic("NRF52840_XXAA", "nrf52840.h", "UART0", "UARTE0_UART0_IRQn"),
    "nrf5340dk": _nordic("NRF5340_XXAA_APPLICATION", "nrf5340_application.h", "UARTE0_S", "SERIAL0_IRQn"),
    "nucleo_f746zg": _stm32("STM32F746xx", "f7", "USART3"),
    "nucleo_h743zi": _stm32("STM32H743xx", "h7", "USART3"),
    "nucleo_l4r5zi": _stm32("STM32L4R5xx", "l4", "LPUART1"),
    "nucleo_u575zi_q": _stm32("STM32U575xx", "u5", "USART1"),
    "olimex_stm32_h405": _stm32("STM32F405xx", "f4", "USART2"),
    "stm32f746g_disco": _stm32("STM32F746xx", "f7", "USART1"),
    "stm32vldiscovery": _stm32("STM32F100xB", "f1", "USART1"),
    "xiao_nrf52840": _nordic("NRF52840_XXAA", "nrf52840.h", "UART0", "UARTE0_UART0_IRQn"),
}


def _hal(chip: Chip) -> Path:
    try:
        hal = find_workspace().zephyr.parent / "modules" / "hal"
    except ToolMissingError as error:
        pytest.skip(f"no Zephyr workspace: {error.hint}")
    if not (hal / chip.folder).is_dir():
        pytest.skip(f"the workspace has no {hal / chip.folder}")
    return hal


def _expression(register: str, chip: Chip) -> str:
    """The address of a register as the headers call it."""
    place, _, name = register.partition(".")
    if chip is RENESAS:
        name = re.sub(r"^PA(\d+)PFS$", r"PORT[10].PIN[\1].PmnPFS", name)
        return f"&R_{place}->{name}"
    name = re.sub("^AFR([LH])$", lambda found: f"AFR[{'LH'.index(found[1])}]", name)
    return f"&{'NRF_' if 'nordic' in chip.folder else ''}{place}->{name}"


def _computed(expressions: Sequence[str], chip: Chip, folder: Path) -> list[int]:
    hal = _hal(chip)
    lines = ",\n".join(f"(unsigned)({text})" for text in expressions)
    for name in chip.stubs:
        (folder / name).write_text(STUB)
    text = "".join(f'#include "{name}"\n' for name in (chip.header, chip.include))
    (folder / "x.c").write_text(f"{text}const unsigned values[] = {{\n{lines}\n}};\n")
    includes = ["-I.", f"-I{hal / chip.folder}", f"-I{hal / 'cmsis' / 'CMSIS' / 'Core' / 'Include'}"]
    compiler = require_tool("arm-none-eabi-gcc")
    subprocess.run(
        [compiler, "-c", "-w", "-mcpu=cortex-m4", "-mthumb", f"-D{chip.define}", *includes, "x.c"],
        cwd=folder,
        check=True,
        timeout=60,
    )
    with (folder / "x.o").open("rb") as file:
        constants = ELFFile(file).get_section_by_name(".rodata")
        assert constants is not None
        data = constants.data()
    return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]


@pytest.mark.parametrize("name", CHIPS)
def test_addresses_are_those_of_the_chip_makers_headers(tmp_path: Path, name: str) -> None:
    board, chip = find_board(name), CHIPS[name]
    assert board.uart is not None
    steps = [
        step
        for step in all_steps(board.start)
        if step.address < 0xE000_0000  # behind it is the core
        and step.register.partition(".")[0] not in ("MDK", "AXI")  # makers write these as numbers, too
    ]
    registers = [step.register for step in steps]
    expressions = [chip.uart, chip.irq, *(_expression(register, chip) for register in registers)]
    base, irq, *addresses = _computed(expressions, chip, tmp_path)
    assert (base, irq) == (board.uart.base, board.uart.irq)
    assert dict(zip(registers, addresses, strict=True)) == {s.register: s.address for s in steps}


def test_interrupts_are_linked_to_the_events_of_the_uart(tmp_path: Path) -> None:
    links = [step.value for step in find_board("ek_ra8m1").start if step.register.startswith("ICU.IELSR")]
    assert links == _computed(["ELC_EVENT_SCI9_RXI", "ELC_EVENT_SCI9_ERI"], RENESAS, tmp_path)
