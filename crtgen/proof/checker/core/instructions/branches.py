"""Branches, calls and the loops of Armv8.1-M."""

import re

from crtgen.proof.checker.algebra.meaning import BRANCHES, NEGATED
from crtgen.proof.checker.algebra.value import M32, Word, WordOp, unknown
from crtgen.proof.checker.binary.image import DecodedInstruction
from crtgen.proof.checker.core.flow import is_jump, target
from crtgen.proof.checker.core.instructions.registry import family
from crtgen.proof.checker.core.machine import LR, PC, SP, Machine, Step, condition
from crtgen.proof.checker.core.operands import register
from crtgen.proof.checker.refusal import Refusal

__all__: list[str] = []


@family("nop", "dsb", "isb", "dmb")
def nothing(m: Machine, i: DecodedInstruction) -> Step:
    return lambda: None


@family(*(f"it{a}{b}{c}" for a in ("", "t", "e") for b in ("", "t", "e") for c in ("", "t", "e")))
def condition_block(m: Machine, i: DecodedInstruction) -> Step:
    """Begin a block of one to four instructions. Only the last may leave it, and no other code enters it."""
    first, at, left = i.operands[0], i.following, len(i.name) - 1
    for which in f"t{i.name[2:]}":
        inner, left = m.image.instructions.get(at), left - 1
        wanted = first if which == "t" else NEGATED[first]
        if inner is None or inner.condition != wanted or inner.name.startswith(_NOT_IN_BLOCKS):
            raise Refusal("an IT block that is not whole")
        if left and is_jump(inner):
            raise Refusal("a branch within an IT block")
        at = inner.following
    after = m.image.instructions.get(at)
    if after is not None and after.condition:
        raise Refusal("an IT block that is longer than it says")

    def step() -> None:
        m.block = i.following

    return step


_NOT_IN_BLOCKS = ("it", "cb", "cps", "dls", "wls", "le", "vpst", "vpt")


@family("msr", "cpsid", "cpsie")
def special(m: Machine, i: DecodedInstruction) -> Step:
    """Return the step of CPS, or of MSR to a stack limit; both are allowed only on the way from reset."""
    which = i.operands[0].lower()
    if not m.starts or which not in (("msplim", "primask") if i.name == "msr" else ("i",)):
        raise Refusal("a register that is not followed")
    if which != "msplim":
        return lambda: None
    n = register(i.operands[1])
    return lambda: m.limit_stack(m.r[n])


@family("mrs")
def read_special(m: Machine, i: DecodedInstruction) -> Step:
    n = register(i.operands[0])

    def step() -> None:
        m.r[n] = unknown()

    return step


@family("b")
def jump(m: Machine, i: DecodedInstruction) -> Step:
    to = target(i)
    if to == i.address:
        raise Refusal("an endless loop: a branch to itself")
    return (lambda: m.rounds.back(m, to)) if to < i.address else lambda: to


@family("bl")
def call(m: Machine, i: DecodedInstruction) -> Step:
    to, following = target(i), i.following
    return lambda: m.call(to, following)


@family("blx")
def call_by_register(m: Machine, i: DecodedInstruction) -> Step:
    n, following = register(i.operands[0]), i.following

    def step() -> int:
        to = m.r[n]
        if not isinstance(to, int) or not to & 1:
            raise Refusal("a call of what depends on an input, or is no Thumb code")
        return m.call(to & ~1, following)

    return step


@family("bx")
def give_back(m: Machine, i: DecodedInstruction) -> Step:
    n = register(i.operands[0])
    return lambda: m.give_back(m.r[n])


@family("tbb", "tbh")
def branch_by_table(m: Machine, i: DecodedInstruction) -> Step:
    """Branch forward by twice an entry of the table that follows the instruction."""
    found = re.fullmatch(r"\[pc, (r\d+)(, lsl #1)?\]", ", ".join(i.operands))
    size = 2 if i.name == "tbh" else 1
    if found is None or bool(found[2]) != (size == 2):
        raise Refusal("a table of branches elsewhere")
    n, base = register(found[1]), i.address + 4

    def step() -> int:
        index = m.r[n]
        if not isinstance(index, int):
            raise Refusal("a branch by a table, which depends on an input")
        parts = [m.memory.byte(base + (size * index + k & M32)) for k in range(size)]
        return base + 2 * sum(b << 8 * k for k, b in enumerate(parts) if isinstance(b, int))

    return step


@family(*(f"b{c}" for c in BRANCHES))
def branch(m: Machine, i: DecodedInstruction) -> Step:
    condition, to, following, pc = i.name[1:], target(i), i.following, i.address

    def step() -> int | None:
        holds = m.holds(condition)
        if isinstance(holds, WordOp):
            return m.branch(holds, pc, to, following)
        return to if holds else None

    def backward() -> int | None:
        taken = step()
        return None if taken is None else m.rounds.back(m, taken)

    return backward if to <= pc else step


@family("cbz", "cbnz")
def branch_on_zero(m: Machine, i: DecodedInstruction) -> Step:
    n, to, zero = register(i.operands[0]), target(i), i.name == "cbz"
    following, pc = i.following, i.address

    def step() -> int | None:
        v = m.r[n]
        if isinstance(v, int):
            return to if (v == 0) == zero else None
        holds = m.decided(condition(WordOp("eq" if zero else "ne", v, 0)))
        if isinstance(holds, WordOp):
            return m.branch(holds, pc, to, following)
        return to if holds else None

    return step


# ---- loops. LR counts; LTPSIZE, here ``tail``, is as much state as a register: nothing ties it to the text.


def _count(v: Word) -> int:
    if not isinstance(v, int):
        raise Refusal("how often a loop runs depends on an input")
    return v


def _counter(i: DecodedInstruction) -> int:
    # The register that the count comes from.
    n = register(i.operands[1])
    if i.operands[0] != "lr" or n in (SP, PC):
        raise Refusal("a loop that is not counted by LR")
    return n


@family("dls", "wls")
def loop_start(m: Machine, i: DecodedInstruction) -> Step:
    n, to = _counter(i), target(i) if i.name == "wls" else None

    def step() -> int | None:
        left = _count(m.r[n])
        if m.tail:
            raise Refusal("a loop within one that has tail predication")
        if left == 0 and to is not None:  # LR stays as it was
            return to
        m.r[LR] = left
        return None

    return step


@family("le")
def loop_end(m: Machine, i: DecodedInstruction) -> Step:
    to = target(i)
    if len(i.operands) != 2 or i.operands[0] != "lr":
        raise Refusal("a loop that is not counted by LR")

    def step() -> int | None:
        if m.tail:
            raise Refusal("the end of another loop in one with tail predication")
        left = _count(m.r[LR])
        if left <= 1:
            return None
        m.r[LR] = left - 1
        return to

    return step


_ELEMENT = {"8": 1, "16": 2, "32": 4}


@family("dlstp", "wlstp")
def tail_loop_start(m: Machine, i: DecodedInstruction) -> Step:
    """Begin a tail-predicated loop, whose last round may process fewer elements."""
    n, size = _counter(i), _ELEMENT[i.kind]
    to = target(i) if i.name == "wlstp" else None

    def step() -> int | None:
        left = _count(m.r[n])
        if m.tail:
            raise Refusal("a loop within one that has tail predication")
        if left == 0 and to is not None:  # LR stays as it was
            return to
        m.r[LR], m.tail = left, size
        return None

    return step


@family("letp")
def tail_loop_end(m: Machine, i: DecodedInstruction) -> Step:
    to = target(i)

    def step() -> int | None:
        if not m.tail:
            raise Refusal("the end of a loop that has not begun")
        left, lanes = _count(m.r[LR]), 16 // m.tail
        if left > lanes:
            m.r[LR] = left - lanes
            return to
        m.tail = 0  # and LR stays as it is
        return None

    return step
