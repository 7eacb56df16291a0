"""How many cycles an instruction takes at most, where Arm publishes it.

The tables of the Technical Reference Manuals, section 3.3: Cortex-M0 (DDI 0432) and M0+ (DDI 0484), with
the multiplier of one cycle; M3 (100165) and M4 (100166), with the longest refill of the pipeline. Each word
that is fetched or loaded waits as the slowest memory does: no cache, buffer or prefetch is counted on.
"""

from dataclasses import dataclass

from crtgen.prove.image import Instruction

__all__ = ["UNKNOWN", "Timing"]

_REFILLS = {"cortex-m0": 2, "cortex-m0plus": 1, "cortex-m3": 3, "cortex-m4": 3}
"""Cycles of a branch that is taken, beyond one."""
_MULTIPLICATIONS = {"smull": 5, "umull": 5, "smlal": 7, "umlal": 7, "mla": 2, "mls": 2}
"""The M3's, where the cores after it take one cycle."""
_SLOW = {"sdiv": 12, "udiv": 12, "vdiv": 14, "vsqrt": 14, "dsb": 4, "dmb": 4, "isb": 4, "mrs": 4, "msr": 4}
_FETCHED_AGAIN = 3
"""Words that a branch may have fetched in vain, or fetches twice."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Of a core by its name, with memory that waits ``waits`` cycles for a word."""

    core: str
    waits: int = 0

    @property
    def is_known(self) -> bool:
        """Whether there is a table of this core."""
        return self.core in _REFILLS

    @property
    def split(self) -> int:
        """What an access adds that is not aligned: two more transfers."""
        return 2 * (1 + self.waits) * self.is_known

    def most(self, i: Instruction) -> int:
        """Of one instruction, be its branch taken or not, and its condition met or not; 0 of other cores."""
        if not self.is_known:
            return 0
        words, branches = _words(i), _branches(i)
        fetched = (i.following + 3) // 4 - (i.address + 3) // 4 + _FETCHED_AGAIN * branches
        refill = _REFILLS[self.core] * branches
        if branches and self.core.startswith("cortex-m0") and i.name in ("bl", "pop"):
            refill += 1
        return self._plain(i, words) + refill + self.waits * (fetched + words)

    def _plain(self, i: Instruction, words: int) -> int:
        if self.core == "cortex-m3" and i.name in _MULTIPLICATIONS:
            return _MULTIPLICATIONS[i.name]
        if i.name[0] == "v" and not words:
            return _SLOW.get(i.name, 3)
        return _SLOW.get(i.name, 1 + words)


UNKNOWN = Timing("")


def _branches(i: Instruction) -> bool:
    if i.name in ("bic", "bics", "bfi", "bfc"):
        return False
    to_pc = i.operands[-1:] if i.name in ("pop", "ldmia", "ldmdb") else i.operands[:1]
    return i.name[0] == "b" or i.name in ("cbz", "cbnz", "tbb", "tbh") or any("pc" in o for o in to_pc)


def _words(i: Instruction) -> int:
    """Words that it loads or stores, at most."""
    if i.name in ("ldrd", "strd"):
        return 2
    if not i.operands or "{" not in i.operands[-1]:
        return int(i.name.startswith(("ldr", "str", "vldr", "vstr", "tb"))) * (1 + i.name.startswith("v"))
    count = 0
    for part in i.operands[-1].strip("{} ").split(","):
        first, _, last = part.strip().partition("-")
        count += int(last[1:]) - int(first[1:]) + 1 if last else 1
    return count * (1 + i.name.startswith("v"))
