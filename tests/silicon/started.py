"""The demonstration's server on a simulated chip, and what is wrong with its registers there."""

import warnings
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from crtgen import api
from crtgen.api import Image
from crtgen.boards import Board, find_board, find_core
from crtgen.device.rpc.client import SIMULATOR, Client
from crtgen.device.session import Session
from crtgen.lab.measure.verification import verify
from tests.silicon.log import SVD, changed_reserved_bits, golden_file, log_of, without_names
from tests.silicon.machine import Machine
from tests.silicon.svd import registers_of
from tests.support import ROOT

__all__ = ["check_registers", "demo_image", "start"]

DEMO = ROOT / "demo" / "digits.tflite"

_OLD_NRF52 = (
    "pyOCD's SVD is older than this register: Product Specification 1.7, errata build codes from E on"
)
_PINS = "Nordic's drivers, too, write the number of the pin, over reserved bits that are 1 after a reset"
_SIZE = "Armv7-M: SIZE has five bits, of which the SVD file knows one"
_UNDOCUMENTED = {
    "arduino_nano_33_ble": {0x4000_0558: _OLD_NRF52},
    "bbc_microbit_v2": {0x4000_0558: _OLD_NRF52},
    "feather_nrf52840": {0x4000_0558: _OLD_NRF52},
    "nrf52840dk": {0x4000_0558: _OLD_NRF52},
    "nrf5340dk": {0x00FF_0130: "Nordic's MDK reads the variant of the chip there"},
    "nrf54l15dk": {
        0x00FF_C340: "Nordic's MDK reads the chip's part there",
        0x5005_340C: "Nordic's MDK writes it: erratum 37",
        0x5012_0440: "Nordic's MDK writes it where it is 0",
    },
    "nucleo_h743zi": {0x5C00_1000: "RM0433 60.5.8: DBGMCU is in no SVD file"},
    "nucleo_l4r5zi": {0x4000_7080: "RM0432 5.4.25: the SVD file is older than PWR_CR5"},
    "xiao_nrf52840": {0x4000_0558: _OLD_NRF52},
}
"""Addresses at which a chip has a register that its SVD file has not, and why that is right."""

_RESERVED = {
    "arduino_giga_r1": {"AXI.AXI_TARG7_FN_MOD": "ST's SystemInit writes 1, too"},
    "arduino_nano_33_ble": {"UART0.PSEL.TXD": _PINS, "UART0.PSEL.RXD": _PINS},
    "arduino_portenta_h7": {"AXI.AXI_TARG7_FN_MOD": "ST's SystemInit writes 1, too"},
    "arduino_uno_r4_minima": {"SYSTEM.SCKDIVCR": "Renesas' FSP: BCLK's bits are those of PCLKB"},
    "bbc_microbit_v2": {"UART0.PSEL.TXD": _PINS, "UART0.PSEL.RXD": _PINS},
    "feather_nrf52840": {"UART0.PSEL.TXD": _PINS, "UART0.PSEL.RXD": _PINS},
    "feather_m4": {"MPU.RASR": _SIZE},
    "metro_m4": {"MPU.RASR": _SIZE},
    "nrf52840dk": {"UART0.PSEL.TXD": _PINS, "UART0.PSEL.RXD": _PINS},
    "nrf5340dk": {"SPIM0_S.PSEL.MOSI": _PINS, "SPIM0_S.PSEL.CSN": _PINS},
    "nrf54l15dk": {"GLOBAL_SPIM20_S.PSEL.MOSI": _PINS, "GLOBAL_SPIM20_S.PSEL.DCX": _PINS},
    "nucleo_h743zi": {"AXI.AXI_TARG7_FN_MOD": "ST's SystemInit writes 1, too"},
    "xiao_nrf52840": {"UART0.PSEL.TXD": _PINS, "UART0.PSEL.RXD": _PINS},
}
"""Registers of which reserved bits are changed, and why that is right."""


def as_simulated(name: str) -> Board:
    """The board; Unicorn has no Cortex-M85, whose registers a Cortex-M33 can write as well."""
    board = find_board(name)
    return replace(board, core=find_core("cortex-m33")) if board.core.mve else board


def demo_image(name: str) -> Image:
    return api.load(DEMO).compile(as_simulated(name)).generate("server").build()


def start(name: str, image: Path) -> Machine:
    """The image at its first sleep, on registers of the chip.

    Without an SVD file their values after a reset are those that the golden file shows.
    """
    machine = Machine(as_simulated(name), image, registers_of(SVD[name]))
    if not machine.known and golden_file(name).is_file():
        for address, before, _ in without_names(golden_file(name).read_text(encoding="utf-8")):
            if address < 0xE000_0000:
                machine.values.setdefault(address, before)
    machine.run()
    return machine


def check_registers(name: str, image: Image) -> None:
    """Start, an inference by the serial port, a fault: each access is where the chip has a register.

    Reserved bits stay, and what start-up code writes is what the golden file says.
    """
    if as_simulated(name).core != find_board(name).core:
        image = demo_image(name)
    machine = start(name, image.path)
    expected = golden_file(name).read_text(encoding="utf-8")
    if machine.known:
        assert log_of(machine) == expected
    else:
        assert without_names(log_of(machine)) == without_names(expected)
        warnings.warn(
            f"{name}: no {SVD[name]}.svd in CRTGEN_SVD: reserved bits are not checked", stacklevel=2
        )
    if machine.board.uart is not None and not machine.board.uart.is_usb:
        _talk(machine, image)
    machine.raise_fault()
    assert machine.was_reset
    if machine.known:
        assert {address for _, address in machine.undocumented} == _UNDOCUMENTED.get(name, {}).keys()
        assert changed_reserved_bits(machine).keys() == _RESERVED.get(name, {}).keys()


def _talk(machine: Machine, image: Image) -> None:
    """An inference through the UART, exact."""
    client = Client(machine, timeouts=SIMULATOR)
    device = cast(Any, nullcontext(machine))
    with Session(image.built, device, client, counting=False) as session:
        (verdict,) = verify(session, DEMO, None, 1)
    assert verdict.difference is None
