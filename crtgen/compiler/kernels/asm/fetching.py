"""Models the time that a core waits for its flash: wait states, caches, prefetch.

Code is read line by line. A loop that fits into the instruction cache is read once per entry; otherwise it is
read in every iteration. While a line is executed, the next one is prefetched; after a jump the core waits for
a whole line. Constants are read again if a loop passes over more of them than the data cache holds; C code is
assumed to read them once. Cache contents that survive from one layer to the next are ignored.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from crtgen.boards.board import FlashReads
from crtgen.compiler.kernels.asm.effects import effects, words_of
from crtgen.compiler.kernels.asm.isa import find
from crtgen.compiler.kernels.asm.pipelines import CorePipeline
from crtgen.compiler.kernels.asm.routine import BasicBlock, Instruction, Routine, RoutineCall, Runs
from crtgen.compiler.kernels.asm.schedule import each_block

__all__ = ["waiting"]

# Roles of registers that point to constants.
_CONSTANTS = ("weights", "table", "shares", "powers", "turns", "constants")

# Bytes of a number that is loaded; all other loads bring words.
_NARROW = {"ldrb": 1, "ldrsb": 1, "ldrh": 2, "ldrsh": 2, "vldrb": 1, "vldrh": 2}


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A block: its bytes and cycles, the bytes of constants that it reads, and the enclosing loops, outermost
    first.

    Loops are identified by the index of the block that ends them.
    """

    block: BasicBlock
    size: int
    cycles: int
    constants: int
    around: tuple[int, ...]


def waiting(
    runs: Runs,
    pipeline: CorePipeline,
    code: FlashReads | None,
    constants: FlashReads | None,
    size: float = math.inf,
    weights: float = math.inf,
) -> float:
    """Return the cycles that routines wait for their code, and for their constants.

    ``size`` and ``weights`` are the bytes of code and of constants that the routines and their callers read
    repeatedly.
    """
    total = 0.0
    if constants and weights <= constants.data_cache:
        total, constants = constants.waits(weights), None
    for call in runs.calls:
        if code:
            times = min(call.times, 1.0) if size <= code.code_cache else call.times
            total += times * _code_of_a_call(call.routine, call.loops, pipeline, code)
        if constants and not call.in_ram:
            total += call.times * _constants_of_a_call(call, pipeline, constants)
    return total


def _constants_of_a_call(call: RoutineCall, pipeline: CorePipeline, reads: FlashReads) -> float:
    stretches, _ = _stretches(call.routine, pipeline)
    read = sum(stretch.block.runs(call.rounds) * stretch.constants for stretch in stretches)
    return reads.waits(read)


@lru_cache(maxsize=8192)
def _code_of_a_call(
    routine: Routine, loops: tuple[tuple[str, float], ...], pipeline: CorePipeline, reads: FlashReads
) -> float:
    stretches, spans = _stretches(routine, pipeline)
    total, rounds = 0.0, dict(loops)
    for stretch in stretches:
        times = 1.0
        for end in stretch.around:
            if spans[end] <= reads.code_cache:
                break
            times = stretches[end].block.runs(rounds)
        else:
            times = stretch.block.runs(rounds)
        total += times * _code(stretch, reads)
    return total


def _code(stretch: _Stretch, reads: FlashReads) -> float:
    # Cycles to execute a block that is not cached.
    lines = -(-stretch.size // reads.width)
    if not lines:
        return 0.0
    ahead = max(0.0, reads.wait_states + 1 - stretch.cycles / lines) if reads.ahead else reads.wait_states
    return reads.wait_states + (lines - 1) * ahead


@lru_cache(maxsize=8192)
def _stretches(routine: Routine, pipeline: CorePipeline) -> tuple[Sequence[_Stretch], Mapping[int, int]]:
    # The blocks, and the bytes of each loop by the number of the block that ends it.
    blocks, cycles = zip(*each_block(routine, pipeline)[:-2], strict=True)
    sizes = [sum(line.size for line in block.lines) for block in blocks]
    starts = {block.label.name: n for n, block in enumerate(blocks) if block.label}
    loops = {
        end: starts[operand]
        for end, block in enumerate(blocks)
        for operand in (block.lines[-1].operands if block.branches else ())
        if starts.get(operand, end + 1) <= end
    }
    spans = {end: sum(sizes[start : end + 1]) for end, start in loops.items()}
    pointers = {r for role, taken in routine.roles if role in _CONSTANTS for r in taken}
    return [
        _Stretch(
            block,
            sizes[n],
            cycles[n],
            sum(_constants(line, pointers) for line in block.lines),
            tuple(sorted((e for e, s in loops.items() if s <= n <= e), key=lambda e: -spans[e])),
        )
        for n, block in enumerate(blocks)
    ], spans


def _constants(line: Instruction, pointers: set[str]) -> int:
    # Bytes of constants that it loads.
    done = effects(line)
    if not done.loads:
        return 0
    address = line.operands[0] if line.operands[-1].startswith("{") else line.operands[-1]
    if not pointers & set(words_of(address)):
        return 0
    return _NARROW.get(find(line.mnemonic).name, 4) * _elements(line, len(done.writes - done.updated))


def _elements(line: Instruction, words: int) -> int:
    # Values per load: the lanes of a vector, which may be wider, or the registers.
    bits = line.mnemonic.partition(".")[2].lstrip("usf")
    narrow = find(line.mnemonic).name in _NARROW
    return 128 // int(bits) if bits and narrow else words
