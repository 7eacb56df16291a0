"""Divisions on cores without a divide instruction: libgcc's function is run for every possible dividend.

Its branches depend on the dividend, which takes few values if it is a function of one sum; the divisor must
be a constant. Nothing relies on the function being a division: whatever it returns is kept as a table.
"""

from typing import TYPE_CHECKING, NamedTuple

from crtgen.proof.checker.algebra.meaning import table
from crtgen.proof.checker.algebra.monotone import Course, course_of
from crtgen.proof.checker.algebra.tried import tried_values
from crtgen.proof.checker.algebra.value import M32, STACK_TOP, Word, WordOp, signed, unknown
from crtgen.proof.checker.algebra.words import add
from crtgen.proof.checker.refusal import Refusal

if TYPE_CHECKING:
    from crtgen.proof.checker.core.machine import Machine

__all__ = ["Divided", "divided"]

_NAMES = ("__divsi3", "__udivsi3", "__aeabi_idiv", "__aeabi_uidiv", "__aeabi_idivmod", "__aeabi_uidivmod")
# Dividends that are tried.
_MOST = 1 << 16

_FRAME = 256
_SCRATCH = (2, 3, 12, 14)


class Divided(NamedTuple):
    """Results of a division routine for one divisor: tables of r0 and r1, its instructions, cycles, stack
    words and code.

    ``instructions`` are the fewest and the most over all dividends, ``cycles`` the most.
    """

    tables: tuple[int, int]
    instructions: tuple[int, int]
    cycles: int
    frame: int
    code: frozenset[int]


def divided(m: "Machine", target: int) -> bool:
    """Return True if the call at ``target`` is a division; its results are then in r0 and r1."""
    dividend, divisor = m.r[0], m.r[1]
    if m.image.architecture != "armv6-m" or isinstance(dividend, int) or not isinstance(divisor, int):
        return False
    if target not in {m.image.symbols.get(name) for name in _NAMES}:
        return False
    ends = _ends(dividend)
    if ends is None or ends[1] >= 1 << 31 or ends[1] - ends[0] >= _MOST:
        return False
    key = target, divisor, *ends
    if key not in m.divisions:
        m.divisions[key] = _tried(m, target, divisor, range(ends[0], ends[1] + 1))
    found = m.divisions[key]
    index = add(dividend, -ends[0] & M32)
    m.r[0], m.r[1] = (WordOp("table", number, index) for number in found.tables)
    m.spoil(_SCRATCH, found.frame)
    least, most = found.instructions
    m.varies("a division")
    m.count += most
    m.slack += most - least
    m.cycles += found.cycles
    return True


def _ends(dividend: Word) -> tuple[int, int] | None:
    # The least and the greatest dividend.
    course = course_of(dividend, lambda s: Course(*s.bounds(), 1), {})
    if course is not None:
        return course.low, course.high
    tried = tried_values(dividend)
    return None if tried is None else (int(tried.min()), int(tried.max()))


def _tried(m: "Machine", target: int, divisor: int, dividends: range) -> Divided:
    # Run the function for each, where nothing else is known but constants.
    core = m.alike()
    core.memory.allow_stack(STACK_TOP - _FRAME, STACK_TOP)
    results: list[list[int]] = []
    counts: list[int] = []
    frame = cycles = 0
    for dividend in dividends:
        before, core.cycles = core.count, 0
        core.forget_flags()
        core.r[:] = [dividend & M32, divisor, *(unknown() for _ in core.r[2:])]
        core.run(target, STACK_TOP)
        if any(not isinstance(v, int) for v in core.r[:2]):
            raise Refusal("a division that gives no numbers")
        results.append([signed(v) for v in core.r[:2] if isinstance(v, int)])
        counts.append(core.count - before)
        cycles = max(cycles, core.cycles)
        frame = max(frame, STACK_TOP - core.lowest >> 2)
    low, high = (table(values) for values in zip(*results, strict=True))
    return Divided((low, high), (min(counts), max(counts)), cycles, frame, frozenset(core.steps))
