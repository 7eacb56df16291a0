"""Boards and cores: what firmware is generated for."""

from crtgen.boards.board import Board, Memory, Qemu, Timer, Uart
from crtgen.boards.core import CORES, HOST, Core, find_core
from crtgen.boards.loader import all_boards, boards_that_fit, find_board, load_board
from crtgen.boards.units import parse_size, size_text

__all__ = [
    "CORES",
    "HOST",
    "Board",
    "Core",
    "Memory",
    "Qemu",
    "Timer",
    "Uart",
    "all_boards",
    "boards_that_fit",
    "find_board",
    "find_core",
    "load_board",
    "parse_size",
    "size_text",
]
