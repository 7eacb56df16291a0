"""Upper bounds of the cycles of each instruction.

- M0, M0+, M3 and M4: the tables of Arm's Technical Reference Manuals, section 3.3 (DDI 0432, DDI 0484,
  100165, 100166), with the single-cycle multiplier and the longest refill of the pipeline.
- M7, M55 and M85, for which Arm publishes no table: LLVM's scheduling models (ARMScheduleM7.td, M55 and M85).
  Instructions do not overlap: the next one begins when the last result of this one is available, as if its
  operand were read in the earliest stage. A refill takes one cycle more than a mispredicted branch.
- M23 and M33, for which neither source has more: the tables of M0+ and M4, plus one cycle for each
  instruction, a longer refill, and a division that takes a cycle per bit and two more.

Each fetched or loaded word waits as the slowest memory does: no cache, buffer or prefetch is counted on. A
core with caches waits for a line of eight words, and for data also for a line that is written back.
"""

from dataclasses import dataclass

from crtgen.proof.checker.binary.image import DecodedInstruction

__all__ = ["UNKNOWN", "CoreTiming"]


@dataclass(frozen=True, slots=True)
class _Core:
    """Cycle costs of a core. ``refill``: extra cycles of a taken branch. ``late``: extra cycles before a
    result can be used. ``long``: cycles of an FPU or Helium operation. ``divides``: cycles of a division.
    """

    refill: int
    late: int = 0
    long: int = 3
    divides: int = 12
    caches: bool = False


_CORES = {
    "cortex-m0": _Core(2),
    "cortex-m0plus": _Core(1),
    "cortex-m3": _Core(3),
    "cortex-m4": _Core(3),
    "cortex-m23": _Core(3, late=1, divides=34),
    "cortex-m33": _Core(4, late=1),
    "cortex-m7": _Core(7, late=2, long=6, caches=True),
    "cortex-m55": _Core(5, late=2, long=5, caches=True),
    "cortex-m85": _Core(8, late=3, long=6, caches=True),
}
# The M3's, where the cores after it take one cycle.
_MULTIPLICATIONS = {"smull": 5, "umull": 5, "smlal": 7, "umlal": 7, "mla": 2, "mls": 2}
_SLOW = {"vdiv": 16, "vsqrt": 16, "dsb": 4, "dmb": 4, "isb": 4, "mrs": 4, "msr": 4}
_OF_M4 = {"vdiv": 14, "vsqrt": 14}
# Helium reads addresses in lanes four cycles before other operands, and has what is there two later.
_GATHERS = 6
# Words that a branch may have fetched in vain, or fetches twice.
_FETCHED_AGAIN = 3
_LINE = 8


@dataclass(frozen=True, slots=True)
class CoreTiming:
    """Timing of the core with this name, with memory that adds ``waits`` cycles per word."""

    core: str
    waits: int = 0

    @property
    def is_known(self) -> bool:
        return self.core in _CORES

    @property
    def is_published(self) -> bool:
        return self.is_known and _CORES[self.core].late == 0

    @property
    def _line(self) -> int:
        # Extra cycles of a cache line if memory waits.
        return _LINE * (self.waits > 0 and _CORES[self.core].caches)

    @property
    def split(self) -> int:
        return 2 * (1 + self.waits + 2 * self._line) if self.is_known else 0

    def most(self, i: DecodedInstruction) -> int:
        """Return the worst-case cycles of an instruction, whether or not its branch is taken or its condition
        holds; 0 for unknown cores.
        """
        if not self.is_known:
            return 0
        core, words, branches = _CORES[self.core], _words(i), _branches(i)
        fetched = (i.following + 3) // 4 - (i.address + 3) // 4 + _FETCHED_AGAIN * branches
        refill = core.refill * branches
        if branches and self.core.startswith("cortex-m0") and i.name in ("bl", "pop"):
            refill += 1
        waits = (self.waits + self._line) * fetched + (self.waits + 2 * self._line) * words
        return self._plain(i, words) + core.late + refill + waits

    def _plain(self, i: DecodedInstruction, words: int) -> int:
        core = _CORES[self.core]
        if self.core == "cortex-m3" and i.name in _MULTIPLICATIONS:
            return _MULTIPLICATIONS[i.name]
        if i.name in ("sdiv", "udiv"):
            return core.divides
        if self.core in ("cortex-m4", "cortex-m33") and i.name in _OF_M4:
            return _OF_M4[i.name]
        if i.name[0] == "v" and not words:
            return _SLOW.get(i.name, core.long)
        return _SLOW.get(i.name, 1 + words + _GATHERS * _is_gather(i))


UNKNOWN = CoreTiming("")


def _branches(i: DecodedInstruction) -> bool:
    if i.name in ("bic", "bics", "bfi", "bfc"):
        return False
    to_pc = i.operands[-1:] if i.name in ("pop", "ldmia", "ldmdb") else i.operands[:1]
    return i.name[0] == "b" or i.name in _AWAY or any("pc" in o for o in to_pc)


_AWAY = frozenset(("cbz", "cbnz", "tbb", "tbh", "le", "letp", "wls", "wlstp"))


def _is_gather(i: DecodedInstruction) -> bool:
    # True if each lane has an address of its own.
    return i.name.startswith(("vldr", "vstr")) and "[" in i.operands[-1] and "q" in i.operands[-1]


def _words(i: DecodedInstruction) -> int:
    # Words that it loads or stores, at most.
    if i.name in ("ldrd", "strd"):
        return 2
    if i.name.startswith(("vldr", "vstr")) and i.operands[0][0] == "q":
        return 16 if _is_gather(i) else 4
    if not i.operands or "{" not in i.operands[-1]:
        return int(i.name.startswith(("ldr", "str", "vldr", "vstr", "tb"))) * (1 + i.name.startswith("v"))
    count = 0
    for part in i.operands[-1].strip("{} ").split(","):
        first, _, last = part.strip().partition("-")
        count += int(last[1:]) - int(first[1:]) + 1 if last else 1
    return count * (1 + i.name.startswith("v"))
