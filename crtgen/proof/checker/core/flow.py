"""Points where both ways of a branch meet again: immediate postdominators, function by function."""

from collections.abc import Mapping
from dataclasses import replace

from crtgen.proof.checker.algebra.meaning import NEGATED
from crtgen.proof.checker.binary.image import DecodedInstruction

__all__ = ["is_jump", "meeting_points", "target"]

# Virtual exit of every function.
_END = -1


def meeting_points(code: Mapping[int, DecodedInstruction], first: int, end: int) -> dict[int, int | None]:
    """Return the immediate postdominator of each instruction, by address; None means the function's return.

    Computed by iteration: Cooper, Harvey, Kennedy, "A simple, fast dominance algorithm", section 2.
    """
    nodes = [a for a in range(first, end, 2) if a in code]
    bit = {a: 1 << i for i, a in enumerate([_END, *nodes])}
    after = {a: [t if t in bit else _END for t in _successors(code[a])] for a in nodes}
    everything = (1 << len(bit)) - 1
    sets = dict.fromkeys(nodes, everything) | {_END: bit[_END]}
    changed = True
    while changed:
        changed = False
        for a in reversed(nodes):
            common = everything
            for t in after[a]:
                common &= sets[t]
            common |= bit[a]
            if common != sets[a]:
                sets[a], changed = common, True
    owner = {s: a for a, s in sets.items()}
    found = {a: owner.get(sets[a] & ~bit[a], _END) for a in nodes}
    return {a: None if t == _END else t for a, t in found.items()}


def _successors(i: DecodedInstruction) -> list[int]:
    # Addresses that may be next; 0 is a return, or a branch that is not known.
    after = [i.following] if i.condition else []
    loops = i.name in ("cbz", "cbnz", "le", "letp", "wls", "wlstp")
    if loops or (i.name[0] == "b" and i.name[1:] in NEGATED):
        return [i.following, target(i)]
    if i.name == "b":
        return [*after, target(i)]
    if i.name in ("bx", "tbb", "tbh") or (
        i.name in ("pop", "ldmia", "ldr", "mov", "ldmdb") and _writes_pc(i)
    ):
        return [*after, 0]
    return [i.following]


_FAR = ("bx", "tbb", "tbh")


def is_jump(i: DecodedInstruction) -> bool:
    """Return True if the next instruction to run may differ from the one that follows in memory."""
    return i.name in ("bl", "blx") or _successors(replace(i, condition="")) != [i.following]


def _writes_pc(i: DecodedInstruction) -> bool:
    return "pc" in i.operands[-1] if i.name in ("pop", "ldmia", "ldmdb") else i.operands[0] == "pc"


def target(i: DecodedInstruction) -> int:
    return int(i.operands[-1], 16)
