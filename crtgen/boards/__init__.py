"""Boards and cores: what firmware is generated for."""

from crtgen.boards.board import (
    MAILBOX_SIZE,
    PLATFORMS,
    RUNNERS,
    Board,
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
from crtgen.boards.core import CORES, HOST, Core, find_core
from crtgen.boards.known import (
    all_boards,
    board_of_core,
    boards_that_fit,
    find_board,
    is_own,
    name_board,
    wrong_boards,
)
from crtgen.boards.loader import load_board
from crtgen.boards.units import parse_size, size_text

__all__ = [
    "CORES",
    "HOST",
    "MAILBOX_SIZE",
    "PLATFORMS",
    "RUNNERS",
    "Board",
    "Core",
    "Flash",
    "Fvp",
    "Memory",
    "Qemu",
    "Serial",
    "Timer",
    "Uart",
    "Watchdog",
    "ZephyrName",
    "all_boards",
    "board_of_core",
    "boards_that_fit",
    "find_board",
    "find_core",
    "is_own",
    "load_board",
    "name_board",
    "parse_size",
    "size_text",
    "wrong_boards",
]
