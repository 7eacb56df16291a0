"""Boards and cores for which firmware is generated."""

from crtgen.boards.board import (
    MAILBOX_SIZE,
    NPU_WINDOW,
    PLATFORMS,
    RUNNERS,
    Board,
    BoardNpu,
    Flash,
    Fvp,
    Memory,
    Qemu,
    Serial,
    Timer,
    Uart,
    Watchdog,
    ZephyrName,
)
from crtgen.boards.checks import check_board
from crtgen.boards.chip import BOOTS, Boot, Errata, Erratum, RegisterStep, all_steps
from crtgen.boards.core import CORES, HOST, Core, find_core
from crtgen.boards.energy import CR2032, Duty, Energy
from crtgen.boards.families import family_of
from crtgen.boards.known import (
    all_boards,
    board_of,
    board_of_core,
    boards_that_fit,
    find_board,
    is_own,
    name_board,
    stand_in,
    wrong_boards,
)
from crtgen.boards.loader import installed_qemu, load_board, parse_slots
from crtgen.boards.packs import board_file, board_text, chip_board
from crtgen.boards.silicon import silicon_range
from crtgen.boards.slots import FLASH_DRIVERS, Slot, Slots
from crtgen.boards.units import parse_size, size_text

__all__ = [
    "BOOTS",
    "CORES",
    "CR2032",
    "FLASH_DRIVERS",
    "HOST",
    "MAILBOX_SIZE",
    "NPU_WINDOW",
    "PLATFORMS",
    "RUNNERS",
    "Board",
    "BoardNpu",
    "Boot",
    "Core",
    "Duty",
    "Energy",
    "Errata",
    "Erratum",
    "Flash",
    "Fvp",
    "Memory",
    "Qemu",
    "RegisterStep",
    "Serial",
    "Slot",
    "Slots",
    "Timer",
    "Uart",
    "Watchdog",
    "ZephyrName",
    "all_boards",
    "all_steps",
    "board_file",
    "board_of",
    "board_of_core",
    "board_text",
    "boards_that_fit",
    "check_board",
    "chip_board",
    "family_of",
    "find_board",
    "find_core",
    "installed_qemu",
    "is_own",
    "load_board",
    "name_board",
    "parse_size",
    "parse_slots",
    "silicon_range",
    "size_text",
    "stand_in",
    "wrong_boards",
]
