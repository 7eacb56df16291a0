"""Checks that models fit on a board before any compiler runs, given its memories and what must be in each."""

from collections.abc import Mapping

from crtgen.base.errors import DoesNotFitError
from crtgen.boards import Board, Memory, boards_that_fit

__all__ = ["check_fit"]


def check_fit(
    board: Board, place: Mapping[str, str], arena: int, constants: int, *, spreads: bool = False
) -> None:
    """Raise ``DoesNotFitError`` if the arena or the constants, in bytes, are larger than their memory.

    ``place`` names a memory for ``arena`` and ``weights``; by default they are with the board's data and
    code. An arena that ``spreads`` may be in several memories. A model that passes may still not fit together
    with code and stack; only the linker can tell.
    """
    if not board.memories:
        return
    if spreads and arena <= sum(memory.size for memory in board.memories if memory.kind == "ram"):
        arena = 0
    arenas = board.memory(place.get("arena", board.data))
    rooms = board.memory(place.get("weights", board.code))
    if arena > arenas.size:
        raise _error(board, f"the arena needs {arena:,} bytes", arenas, arena, (constants, arena))
    if constants > rooms.size:
        raise _error(board, f"the constants need {constants:,} bytes", rooms, constants, (constants, arena))


def _error(board: Board, what: str, memory: Memory, nbytes: int, both: tuple[int, int]) -> DoesNotFitError:
    beside = [m.name for m in board.memories if m.kind == memory.kind and m.size >= nbytes]
    others = [b.name for b in boards_that_fit(*both) if b.name != board.name]
    if beside:
        part = "arena" if memory.kind == "ram" else "weights"
        hint = f"{beside[0]} is large enough: --place {part}={beside[0]}"
    else:
        hint = f"these boards may hold it: {', '.join(others)}" if others else "no known board holds it"
    return DoesNotFitError(f"{what}, and {memory.name} has {memory.size:,}", where=board.name, hint=hint)
