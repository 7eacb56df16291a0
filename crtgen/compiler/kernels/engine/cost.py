"""What kernels cost, and what designs state of their code so that it can be told.

Assembly is data, so its instructions and bytes are counted. C is what a compiler makes of it. A design says
how often each *block* of its C runs, by a name; what a block takes on a core at a compiler's option has been
measured on random layers and lies in ``costs.csv``, which ``python -m benchmarks.fit_costs`` writes. A block
without figures counts ``UNKNOWN``.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod

from crtgen.base.formats.tables import rows_of
from crtgen.base.resources import costs_file
from crtgen.boards.core import Core
from crtgen.compiler.kernels.asm import Runs
from crtgen.compiler.kernels.engine.loops import Loop
from crtgen.network.ops.scheme import INT8, INT16, UINT8

__all__ = [
    "CALL",
    "UNKNOWN",
    "BlockCount",
    "BlockFigures",
    "Cost",
    "Work",
    "estimate",
    "figures",
    "limits_within",
]

CALL = "call"
"""The block that every function has once: prologue, epilogue and what is around its loops."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Instructions of one run, bytes of code and of constants in flash, bytes of scratch in the arena.

    ``time`` is by what designs are compared: cycles where the board says how its flash is read, else
    instructions.
    """

    instructions: float = 0.0
    code: float = 0.0
    constants: int = 0
    scratch: int = 0
    time: float = 0.0


@dataclass(frozen=True, slots=True)
class BlockCount:
    """How often a block of C runs, and how often it is written."""

    runs: float = 0.0
    copies: float = 0.0


@dataclass(frozen=True, slots=True)
class BlockFigures:
    """Instructions of a run of a block, and bytes of a copy."""

    instructions: float
    code: float


UNKNOWN = BlockFigures(10.0, 20.0)
"""A block that nobody measured. A test names the kernels that have any."""


@dataclass(slots=True)
class Work:
    """What a kernel does in a run: calls of functions in ``assembly``, and blocks of C.

    C reads ``constants`` bytes of constants. Methods add, and return the work itself.
    """

    assembly: Runs = field(default_factory=Runs)
    constants: float = 0.0
    blocks: dict[str, BlockCount] = field(default_factory=dict)

    def block(self, name: str, runs: float, copies: float = 1) -> "Work":
        """A block that is written ``copies`` times; of all its copies together, ``runs`` run."""
        before = self.blocks.get(name, BlockCount())
        self.blocks[name] = BlockCount(before.runs + runs, before.copies + copies)
        return self

    def words(self, kind: str, runs: float, *lines: str, copies: float = 1) -> "Work":
        """Lines of C on elements of a type: a block for each operator and function in them."""
        self.block(kind, runs, copies)
        for word, times in words("; ".join(lines)).items():
            self.block(f"{kind} {word}", runs * times, copies * times)
        return self

    def loops(self, name: str, loops: Sequence[Loop]) -> "Work":
        """Nested loops around an innermost one."""
        for depth in range(1, len(loops)):
            self.block(f"{name} {depth} of {len(loops)}", prod(loop.count for loop in loops[:depth]))
        return self

    def copy(self, nbytes: int, runs: float, copies: float = 1, words: bool = False) -> "Work":
        """``crt_copy`` of so many bytes, or ``crt_copy_words``."""
        kind = "copy of words" if words else "copy"
        self.block(kind, runs, copies)
        for size, count in ((16, nbytes // 16), (4, nbytes % 16 // 4), (1, nbytes % 4)):
            if count:
                self.block(f"{kind} {size}", runs * count, 0)
        return self

    def fill(self, nbytes: float, runs: float = 1) -> "Work":
        """``memset`` of so many bytes."""
        return self.block("fill", runs).block("fill 1", runs * nbytes, 0)


_CLAMP = re.compile(r"crt_(u?int\d+)\((.*), (-?\d+), (-?\d+)\)$")
_LIMITS = {scheme.activations.value: scheme.limits for scheme in (INT8, UINT8, INT16)}
_NOTHING = re.compile(r" [+-] 0\b(?!\.)")
_WORD = re.compile(r"(?<!\w)([a-zA-Z_]\w*)\(|\((int64_t|float)\)| ([*/+<>-]|>>) | (\?)")


@cache
def words(text: str) -> Mapping[str, int]:
    """How often each function and operator is in a line of C; a difference counts as a sum.

    What saturates says how many of its limits are not those of the type.
    """
    found: dict[str, int] = {}
    clamp = _CLAMP.search(text)
    if clamp:
        text = text[: clamp.start()] + clamp[2]
        found[f"clamp {limits_within(clamp[1], clamp[3], clamp[4])}"] = 1
    for groups in _WORD.findall(_NOTHING.sub("", text)):
        word = next(filter(None, groups)).replace("-", "+")
        found[word] = found.get(word, 0) + 1
    return found


def limits_within(kind: str, low: str, high: str) -> int:
    """How many of two limits, as C, are not those of the type of that name."""
    return sum(int(n) != limit for n, limit in zip((low, high), _LIMITS[kind], strict=True))


def estimate(kernel: str, work: Work, core: Core, flag: str) -> BlockFigures:
    """Instructions of the C of a template and of its assembly, and bytes of the C."""
    known = figures(core.measured, flag)
    instructions, code = work.assembly.instructions, 0.0
    for name, block in ((CALL, BlockCount(1, 1)), *work.blocks.items()):
        each = known.get((kernel, name), UNKNOWN)
        instructions += block.runs * each.instructions
        code += block.copies * each.code
    return BlockFigures(max(instructions, 0.0), max(code, 0.0))


@cache
def figures(core: str, flag: str) -> Mapping[tuple[str, str], BlockFigures]:
    """What blocks take on a core at an option of the compiler, by kernel and name."""
    with costs_file().open(encoding="utf-8", newline="") as file:
        rows = rows_of(file)
        column = next(rows).index(f"{core} {flag}")
        cells = ((row[0], row[1], row[column].split()) for row in rows)
        return {(kernel, name): BlockFigures(*map(float, cell)) for kernel, name, cell in cells if cell}
