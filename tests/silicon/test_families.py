"""Chips of packs, whose start is that of their family: their images on registers of the maker's SVD files."""

from pathlib import Path

import pytest

from crtgen.base.errors import UsageError
from crtgen.boards import Board, name_board
from crtgen.boards.families import FAMILIES, family_of
from crtgen.boards.packs import board_file, chip_board
from tests.firmware.project.building import build_toy
from tests.silicon.log import changed_reserved_bits, golden_file, log_of, without_names
from tests.silicon.machine import Machine
from tests.silicon.svd import registers_of
from tests.support import require_tool

CHIPS = {
    "STM32F103C8": ("Cortex-M3", "0x10000", "0x20000000", "0x5000", "STM32F103xx"),
    "STM32F411RE": ("Cortex-M4", "0x80000", "0x20000000", "0x20000", "STM32F411"),
    "STM32F746ZG": ("Cortex-M7", "0x100000", "0x20000000", "0x50000", "STM32F7x6"),
    "STM32G0B1RE": ("Cortex-M0+", "0x80000", "0x20000000", "0x24000", "STM32G0B1"),
    "STM32G474RE": ("Cortex-M4", "0x80000", "0x20000000", "0x20000", "STM32G474xx"),
    "STM32L475VG": ("Cortex-M4", "0x100000", "0x20000000", "0x18000", "STM32L4x5"),
    "STM32H743ZI": ("Cortex-M7", "0x200000", "0x24000000", "0x80000", "STM32H743x"),
    "STM32C031C6": ("Cortex-M0+", "0x8000", "0x20000000", "0x3000", "STM32C031"),
    "STM32L552ZE": ("Cortex-M33", "0x80000", "0x20000000", "0x40000", "STM32L552"),
    "STM32WL55JC": ("Cortex-M4", "0x40000", "0x20000000", "0x10000", "STM32WL5x_CM4"),
    "STM32H745ZI": ("Cortex-M7", "0x100000", "0x24000000", "0x80000", ""),
    "STM32F429BOOT": ("Cortex-M4", "0x100000", "0x20000000", "0x20000", ""),
}
"""Core, flash, where the RAM is, its size, and the SVD file."""

FPU = ("Cortex-M4", "Cortex-M7")

OFTEN = [("STM32F103C8", ""), ("STM32F411RE", "PA9,PA10")]
"""Of all pairs of chip and pins, those that are built on every push: each kind of pins, and of UART."""


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """What a pack of ST's says of these chips."""
    devices = "".join(
        f'<device Dname="{name}"><processor Dcore="{core}" Dfpu="{int(core in FPU and "WL" not in name)}"/>'
        f'<memory id="IROM1" start="{"0x90000000" if "BOOT" in name else "0x08000000"}" size="{flash}"/>'
        f'<memory id="IRAM1" start="{ram}" size="{size}"/></device>'
        for name, (core, flash, ram, size, _) in CHIPS.items()
    )
    file = tmp_path / "ST.pdsc"
    file.write_text(f'<package><devices><family Dfamily="ST">{devices}</family></devices></package>')
    return file


def of_pack(chip: str, pins: str, pack: Path) -> Board:
    """The board of a file that crtgen writes for a chip."""
    file = pack.parent / f"{chip.lower()}.toml"
    file.write_text(board_file(chip_board(chip, pack), pins))
    return name_board(file)


PAIRS = [
    pytest.param(chip, pins, id=f"{chip}-{pins}", marks=() if (chip, pins) in OFTEN else pytest.mark.nightly)
    for chip, row in CHIPS.items()
    if row[-1]
    for pins in ("", "PA9,PA10")
]


@pytest.mark.qemu
@pytest.mark.parametrize(("chip", "pins"), PAIRS)
def test_an_image_for_a_chip_starts_on_its_registers(
    chip: str, pins: str, pack: Path, tmp_path: Path
) -> None:
    require_tool("arm-none-eabi-gcc")
    board = of_pack(chip, pins, pack)
    registers = registers_of(CHIPS[chip][-1])
    machine = Machine(board, build_toy(board.name, "server", tmp_path / "toy"), registers)
    machine.run()
    assert machine.uart.sent[:3] == b"\xfe\xff\xfd"
    golden = golden_file(f"chip_{chip.lower()}{'_pa9' if pins else ''}")
    if machine.known:
        undocumented = (
            {0x5C00_1000} if chip.startswith("STM32H7") else set()
        )  # RM0433 60.5.8, as nucleo_h743zi
        assert {address for _, address in machine.undocumented} == undocumented
        assert set(changed_reserved_bits(machine)) <= {"AXI.AXI_TARG7_FN_MOD"}  # as ST's SystemInit
        assert log_of(machine) == golden.read_text()
    else:
        values = [(address, value) for address, _, value in without_names(golden.read_text())]
        assert [address for address, _, _ in without_names(log_of(machine))] == [a for a, _ in values]


def test_each_family_has_both_uarts_and_every_pin_its_port() -> None:
    for family in FAMILIES:
        assert set(family.ports) == {"USART1", "USART2"}
        assert {pins.uart for pins in family.pins} == set(family.ports)
    assert {family_of(chip) for chip, row in CHIPS.items() if row[-1]} == set(FAMILIES)


@pytest.mark.parametrize(
    ("chip", "pins", "message", "hint"),
    [
        ("STM32H745ZI", "", "no table of pins", "--type library, or write a board"),
        ("STM32F429BOOT", "", "not at 0x08000000", "write a board"),
        (
            "STM32F411RE",
            "PA9,PA3",
            "no UART at these",
            "PA2,PA3 (USART2), PA9,PA10 (USART1), PB6,PB7 (USART1)",
        ),
        ("STM32F103C8", "PB6,PB7", "no UART at these", "PA2,PA3 (USART2), PA9,PA10 (USART1)"),
    ],
)
def test_what_has_no_start(chip: str, pins: str, message: str, hint: str, pack: Path) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        board_file(chip_board(chip, pack), pins)
    assert hint in caught.value.hint
