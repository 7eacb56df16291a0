"""A board whose memories are too small for an arena in one piece."""

from dataclasses import replace
from typing import Any

import crtgen
from crtgen.boards import Board, find_board
from tests.support import ROOT

__all__ = ["CROWDED", "DIGITS", "crowded"]

DIGITS = ROOT / "demo" / "digits.tflite"
CROWDED: Any = {"pool": 4096, "stack": 4096, "receive_buffer": 2048}


def crowded(kind: str, dtcm: int = 4096, ddr: int = 0) -> Board:
    """The board with so little RAM that parts of the arena of the digits have to be elsewhere."""
    board = find_board("mps3_an547")
    compiled = crtgen.load(DIGITS).compile(board)
    needs = compiled.footprint(kind, **CROWDED).memories["ram"]
    quarters = compiled.plans[0].arena // 4 // 16 * 16 * (3 if ddr else 1)
    sizes = {"ram": needs + 1024 - quarters, "dtcm": dtcm, "ddr": ddr}
    memories = tuple(replace(m, size=sizes.get(m.name, m.size)) for m in board.memories)
    return replace(board, memories=memories, slots=None)
