"""Cost of kernels in instructions, cycles and bytes, derived from what designs state about their code.

Instructions and bytes of assembly are counted exactly, since assembly is data here. The cost of C depends on
the compiler. So a design states how often each named *block* of its C runs, and the cost of a block on a core
with a compiler flag is measured on random layers. ``python -m benchmarks.fit_costs`` writes these figures to
``costs.csv``. A block without figures costs ``UNKNOWN``.
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
"""The block that every function has once: prologue, epilogue and the code around its loops."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Instructions of one run; bytes of code and constants in flash; bytes of scratch in the arena.

    Designs are compared by ``time``: cycles if the board describes how its flash is read, otherwise
    instructions.
    """

    instructions: float = 0.0
    code: float = 0.0
    constants: int = 0
    scratch: int = 0
    time: float = 0.0


@dataclass(frozen=True, slots=True)
class BlockCount:
    """Number of runs of a C block, and the number of copies of it in the code."""

    runs: float = 0.0
    copies: float = 0.0


@dataclass(frozen=True, slots=True)
class BlockFigures:
    instructions: float
    code: float


UNKNOWN = BlockFigures(10.0, 20.0)
"""Cost of a block that has not been measured. A test names the kernels that contain one."""


@dataclass(slots=True)
class Work:
    """Work of one run of a kernel: calls of ``assembly`` routines, and blocks of C.

    The C code reads ``constants`` bytes of constants. Each method adds work and returns the object.
    """

    assembly: Runs = field(default_factory=Runs)
    constants: float = 0.0
    blocks: dict[str, BlockCount] = field(default_factory=dict)

    def block(self, name: str, runs: float, copies: float = 1) -> "Work":
        """Add a block that occurs ``copies`` times in the code; together the copies run ``runs`` times."""
        before = self.blocks.get(name, BlockCount())
        self.blocks[name] = BlockCount(before.runs + runs, before.copies + copies)
        return self

    def words(self, kind: str, runs: float, *lines: str, copies: float = 1) -> "Work":
        """Add lines of C on elements of a type: one block for each operator and function in them."""
        self.block(kind, runs, copies)
        for word, times in words("; ".join(lines)).items():
            self.block(f"{kind} {word}", runs * times, copies * times)
        return self

    def loops(self, name: str, loops: Sequence[Loop]) -> "Work":
        for depth in range(1, len(loops)):
            self.block(f"{name} {depth} of {len(loops)}", prod(loop.count for loop in loops[:depth]))
        return self

    def copy(self, nbytes: int, runs: float, copies: float = 1, words: bool = False) -> "Work":
        """Add ``runs`` calls of ``crt_copy`` of ``nbytes`` bytes each, or of ``crt_copy_words``."""
        kind = "copy of words" if words else "copy"
        self.block(kind, runs, copies)
        for size, count in ((16, nbytes // 16), (4, nbytes % 16 // 4), (1, nbytes % 4)):
            if count:
                self.block(f"{kind} {size}", runs * count, 0)
        return self

    def fill(self, nbytes: float, runs: float = 1) -> "Work":
        """Add ``runs`` calls of ``memset`` of ``nbytes`` bytes each."""
        return self.block("fill", runs).block("fill 1", runs * nbytes, 0)


_CLAMP = re.compile(r"crt_(u?int\d+)\((.*), (-?\d+), (-?\d+)\)$")
_LIMITS = {scheme.activations.value: scheme.limits for scheme in (INT8, UINT8, INT16)}
_NOTHING = re.compile(r" [+-] 0\b(?!\.)")
_WORD = re.compile(r"(?<!\w)([a-zA-Z_]\w*)\(|\((int64_t|float)\)| ([*/+<>-]|>>) | (\?)")


@cache
def words(text: str) -> Mapping[str, int]:
    """Count the functions and operators in a line of C; a subtraction counts as an addition.

    A saturating function counts together with the number of its limits that differ from those of the type.
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
    """Return how many of the C limits ``low`` and ``high`` differ from those of the type ``kind``."""
    return sum(int(n) != limit for n, limit in zip((low, high), _LIMITS[kind], strict=True))


def estimate(kernel: str, work: Work, core: Core, flag: str) -> BlockFigures:
    """Estimate the instructions of a kernel's C and assembly, and the bytes of its C."""
    known = figures(core.measured, flag)
    instructions, code = work.assembly.instructions, 0.0
    for name, block in ((CALL, BlockCount(1, 1)), *work.blocks.items()):
        each = known.get((kernel, name), UNKNOWN)
        instructions += block.runs * each.instructions
        code += block.copies * each.code
    return BlockFigures(max(instructions, 0.0), max(code, 0.0))


@cache
def figures(core: str, flag: str) -> Mapping[tuple[str, str], BlockFigures]:
    """Return the measured figures of all blocks on a core at a compiler flag, by kernel family and block
    name.
    """
    with costs_file().open(encoding="utf-8", newline="") as file:
        rows = rows_of(file)
        column = next(rows).index(f"{core} {flag}")
        cells = ((row[0], row[1], row[column].split()) for row in rows)
        return {(kernel, name): BlockFigures(*map(float, cell)) for kernel, name, cell in cells if cell}
